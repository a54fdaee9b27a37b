// Generates certificates for a test: no key is checked in, and none expires.

import { generateKeyPairSync, type KeyObject, sign } from 'node:crypto'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { onTestFinished } from 'vitest'

export type Certificate = {
  readonly name: string
  readonly pem: string
  readonly key: KeyObject
  readonly keyPem: string
}

const ECDSA_SHA256 = sequence(oid('2a8648ce3d040302'))

/** For `localhost` and 127.0.0.1; signed by `issuer`, or by itself as an authority. */
export function makeCertificate(name: string, issuer?: Certificate): Certificate {
  const { publicKey, privateKey: key } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
  const names = tlv(0x30, tlv(0x82, Buffer.from('localhost')), tlv(0x87, Buffer.from([127, 0, 0, 1])))
  const isAuthority = issuer === undefined
  const extensions = [
    sequence(oid('551d13'), tlv(0x04, sequence(...(isAuthority ? [tlv(0x01, Buffer.from([255]))] : [])))),
    sequence(oid('551d11'), tlv(0x04, names)),
  ]
  const content = sequence(
    tlv(0xa0, tlv(0x02, Buffer.from([2]))),
    tlv(0x02, Buffer.from([isAuthority ? 1 : 2])),
    ECDSA_SHA256,
    nameOf(issuer?.name ?? name),
    sequence(tlv(0x17, Buffer.from('240101000000Z')), tlv(0x17, Buffer.from('491231235959Z'))),
    nameOf(name),
    publicKey.export({ type: 'spki', format: 'der' }),
    tlv(0xa3, sequence(...extensions)),
  )
  const signature = sign('sha256', content, issuer?.key ?? key)
  const der = sequence(content, ECDSA_SHA256, tlv(0x03, Buffer.from([0]), signature))
  const lines = der.toString('base64').match(/.{1,64}/g) ?? []
  const pem = ['-----BEGIN CERTIFICATE-----', ...lines, '-----END CERTIFICATE-----', ''].join('\n')
  return { name, pem, key, keyPem: key.export({ type: 'pkcs8', format: 'pem' }).toString() }
}

/** Paths of files with these contents, deleted after the test. */
export function filesOf<Name extends string>(contents: Readonly<Record<Name, string>>): Record<Name, string> {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-tls-'))
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
  const paths = Object.entries<string>(contents).map(([name, content]) => {
    const path = join(folder, `${name}.pem`)
    writeFileSync(path, content)
    return [name, path]
  })
  return Object.fromEntries(paths) as Record<Name, string>
}

function nameOf(commonName: string): Buffer {
  return sequence(tlv(0x31, sequence(oid('550403'), tlv(0x0c, Buffer.from(commonName)))))
}

function oid(hex: string): Buffer {
  return tlv(0x06, Buffer.from(hex, 'hex'))
}

function sequence(...parts: readonly Buffer[]): Buffer {
  return tlv(0x30, ...parts)
}

/** DER: tag, length, value. */
function tlv(tag: number, ...parts: readonly Buffer[]): Buffer {
  const value = Buffer.concat(parts)
  const { length } = value
  const size = length < 128 ? [length] : length < 256 ? [0x81, length] : [0x82, length >> 8, length & 255]
  return Buffer.concat([Buffer.from([tag, ...size]), value])
}
