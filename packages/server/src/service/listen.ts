// Listens on an address or a socket file, with or without TLS. Renewed certificates apply to new connections; invalid
// ones are ignored.

import { lstatSync, readFileSync, unlinkSync } from 'node:fs'
import type { ServerOptions } from 'node:https'
import { type AddressInfo, connect } from 'node:net'
import { createSecureContext } from 'node:tls'
import type { FastifyInstance } from 'fastify'
import type { Log } from '../log.ts'
import { fileFingerprint, watchFile } from '../rules/file-watch.ts'
import type { Settings } from '../settings/settings.ts'

export type ListenSettings = Pick<Settings, 'host' | 'port' | 'socket' | 'tlsCert' | 'tlsKey' | 'tlsClientCa'>

/** Returns the address, such as `https://127.0.0.1:8080` or `unix:/run/sluice.sock`. */
export async function listen(app: FastifyInstance, { host, port, socket, tlsCert }: ListenSettings): Promise<string> {
  if (socket !== undefined) {
    await removeDeadSocket(socket)
    await app.listen({ path: socket })
    return `unix:${socket}`
  }
  await app.listen({ host, port })
  const { address, family, port: chosen } = app.server.address() as AddressInfo // listens on a port, not on a pipe
  const name = family === 'IPv6' ? `[${address}]` : address
  return `${tlsCert === undefined ? 'http' : 'https'}://${name}:${chosen}`
}

/** Removes the socket file of a killed process; keeps one that is still in use. */
async function removeDeadSocket(path: string): Promise<void> {
  if (!lstatSync(path, { throwIfNoEntry: false })?.isSocket()) return
  const isDead = await new Promise<boolean>((resolve) => {
    const probe = connect(path, () => {
      probe.destroy()
      resolve(false)
    })
    probe.once('error', ({ code }: NodeJS.ErrnoException) => resolve(code === 'ECONNREFUSED'))
  })
  if (isDead) unlinkSync(path)
}

/** Undefined: plain HTTP. Throws when the files are invalid or do not match. */
export function tlsOptions({ tlsCert, tlsKey, tlsClientCa }: ListenSettings): ServerOptions | undefined {
  if (tlsCert === undefined || tlsKey === undefined) return undefined
  const files = { cert: readFileSync(tlsCert), key: readFileSync(tlsKey) }
  const clients = tlsClientCa === undefined ? {} : { ca: readFileSync(tlsClientCa) }
  try {
    createSecureContext({ ...files, ...clients })
  } catch (error) {
    throw new Error(
      `the files of --tls-cert, --tls-key and --tls-client-ca cannot be used: ${(error as Error).message}`,
    )
  }
  const verify = tlsClientCa === undefined ? {} : { requestCert: true, rejectUnauthorized: true }
  return { ...files, ...clients, ...verify }
}

/** Applies changed files to new connections: `apply` replaces the certificates of a listener. */
export function followCertificates(
  settings: ListenSettings,
  log: Log,
  apply: (options: ServerOptions) => void,
): { stop(): void } {
  const paths = [settings.tlsCert, settings.tlsKey, settings.tlsClientCa].filter((path) => path !== undefined)
  const renew = () => {
    try {
      apply(tlsOptions(settings) ?? {})
      log.event('certificates_applied', {})
    } catch (error) {
      log.event('certificates_rejected', { reason: (error as Error).message })
    }
  }
  const watches = paths.map((path) => watchFile(path, fileFingerprint(path), renew))
  return {
    stop: () => {
      for (const watch of watches) watch.stop()
    },
  }
}
