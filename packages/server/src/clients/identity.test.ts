import { generateKeyPairSync, type KeyObject } from 'node:crypto'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { SignJWT, UnsecuredJWT } from 'jose'
import { describe, expect, onTestFinished, test } from 'vitest'
import type { IdentitySettings } from '../settings/client-settings.ts'
import { createIdentify } from './identity.ts'

const NOTHING: IdentitySettings = {
  userFrom: undefined,
  apiKeyFrom: undefined,
  tenantFrom: undefined,
  planFrom: undefined,
  jwtSecret: undefined,
  jwtKey: undefined,
}
const BY_TOKEN: IdentitySettings = {
  ...NOTHING,
  userFrom: { kind: 'jwt', name: 'sub' },
  tenantFrom: { kind: 'jwt', name: 'org' },
}
const SECRET = 'a secret that is long enough for HS256'
const bytes = (text: string) => new TextEncoder().encode(text)

async function userOf(settings: IdentitySettings, token: string): Promise<string | undefined> {
  const identify = createIdentify(settings)
  return (await identify({ rawHeaders: ['Host', 'x', 'Authorization', `Bearer ${token}`] })).user
}

function signed(algorithm: string, key: KeyObject | Uint8Array, expires = '1h'): Promise<string> {
  const token = new SignJWT({ sub: 'alice', org: 7 }).setProtectedHeader({ alg: algorithm })
  return token.setExpirationTime(expires).sign(key)
}

function pemFile(content: string | Buffer): string {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-key-'))
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
  writeFileSync(join(folder, 'key.pem'), content)
  return join(folder, 'key.pem')
}

describe('facts from a token', () => {
  const rsa = generateKeyPairSync('rsa', { modulusLength: 2048 })
  const ec = generateKeyPairSync('ec', { namedCurve: 'P-256' })

  test('are trusted when signed with the secret', async () => {
    const settings = { ...BY_TOKEN, jwtSecret: SECRET }
    const identify = createIdentify(settings)
    const rawHeaders = ['authorization', `bearer ${await signed('HS256', bytes(SECRET))}`]
    expect(await identify({ rawHeaders })).toEqual({ user: 'alice', tenant: '7' })
  })

  test.each([
    ['RS256', rsa],
    ['PS256', rsa],
    ['ES256', ec],
  ])('are trusted when signed with the key and %s', async (algorithm, pair) => {
    const jwtKey = pemFile(pair.publicKey.export({ type: 'spki', format: 'pem' }))
    expect(await userOf({ ...BY_TOKEN, jwtKey }, await signed(algorithm, pair.privateKey))).toBe('alice')
  })

  test.each([
    ['another secret signed it', () => signed('HS256', bytes(`${SECRET}!`))],
    ['it has expired', () => signed('HS256', bytes(SECRET), '-1m')],
    ['it is not signed', async () => new UnsecuredJWT({ sub: 'alice' }).encode()],
    ['it is not a token', async () => 'alice'],
    ['a key of another kind signed it', () => signed('RS256', rsa.privateKey)],
  ])('are ignored when %s', async (_why, token) => {
    expect(await userOf({ ...BY_TOKEN, jwtSecret: SECRET }, await token())).toBeUndefined()
  })

  test('a public key is not an HMAC secret: facts of a token signed with its text are ignored', async () => {
    const pem = rsa.publicKey.export({ type: 'spki', format: 'pem' }).toString()
    expect(await userOf({ ...BY_TOKEN, jwtKey: pemFile(pem) }, await signed('HS256', bytes(pem)))).toBeUndefined()
  })

  test('are not verified without a key', async () => {
    expect(await userOf(BY_TOKEN, await signed('HS256', bytes('anything'.repeat(5))))).toBe('alice')
    expect(await userOf(BY_TOKEN, 'not.a.token')).toBeUndefined()
  })

  test('two Authorization headers are rejected', async () => {
    const rawHeaders = ['Authorization', 'Bearer a', 'authorization', 'Bearer b']
    await expect(async () => createIdentify(BY_TOKEN)({ rawHeaders })).rejects.toThrow('send this header once')
  })
})

describe('different spellings of one identity are one client', () => {
  test.each([
    'session=a%20b/c',
    'x=1; session=a%20b/c',
    'session=%61%20b%2Fc',
    'session = a%20b/c ;x=2',
    'session="a%20b/c"',
    'session= "a%20b/c"; Session=another',
    'y;session\t=\ta%20b/c',
    'other=1 2, 3; session=a%20b/c; my-session=x',
  ])('the cookie in %j', (cookie) => {
    const identify = createIdentify({ ...NOTHING, userFrom: { kind: 'cookie', name: 'session' } })
    expect(identify({ rawHeaders: ['Cookie', cookie] })).toEqual({ user: 'a b/c' })
  })

  test.each([
    ['in one header', ['Cookie', 'session=junk; session=alice']],
    ['in two headers', ['Cookie', 'session=junk', 'cookie', 'x=1; session =alice']],
    ['with the same value', ['Cookie', 'session=alice; session="alice"']],
    ['of which one is empty', ['Cookie', 'session=; session=alice']],
    ['after a space', ['Cookie', 'session=j1 session=alice']],
    ['after a comma', ['Cookie', 'session=j1,session=alice']],
    ['after a comma and a space', ['Cookie', 'session=j1, session =alice']],
    ['after a tab', ['Cookie', 'session=j1\tsession=alice']],
    ['within the value of another', ['Cookie', 'session=j1; a=b session=alice']],
    ['within the value of another, in two headers', ['Cookie', 'a=b,session=alice', 'Cookie', 'session=j1']],
    ['within quotes', ['Cookie', 'session="j1; session=alice"']],
  ])('a repeated cookie is rejected, %s', (_how, rawHeaders) => {
    const identify = createIdentify({ ...NOTHING, userFrom: { kind: 'cookie', name: 'session' } })
    expect(() => identify({ rawHeaders })).toThrow('send the cookie of this name once')
    expect(() => identify({ rawHeaders })).not.toThrow('alice')
  })

  test.each(['a=b session=alice', 'a=b, session=alice', 'a\tsession=alice', 'a="b; c" session=alice'])(
    'a cookie within the value of another is rejected: %j',
    (cookie) => {
      const identify = createIdentify({ ...NOTHING, userFrom: { kind: 'cookie', name: 'session' } })
      expect(() => identify({ rawHeaders: ['Cookie', cookie] })).toThrow('put a semicolon before the cookie')
    },
  )

  test.each(['a b', '"a b"', 'a,b', 'a\tb', '"a', 'a"b"', '"al\\151ce"', 'a\\b'])(
    'a cookie whose value services parse differently is rejected: %j',
    (value) => {
      const identify = createIdentify({ ...NOTHING, userFrom: { kind: 'cookie', name: 'session' } })
      expect(() => identify({ rawHeaders: ['Cookie', `x=1; session=${value}; y=2`] })).toThrow('percent-encode')
    },
  )

  test('a cookie name may consist of punctuation', () => {
    const identify = createIdentify({ ...NOTHING, userFrom: { kind: 'cookie', name: '$a.b+-*' } })
    expect(identify({ rawHeaders: ['Cookie', '$aXb+-*=1; $a.b+-*=alice'] })).toEqual({ user: 'alice' })
    expect(() => identify({ rawHeaders: ['Cookie', '$a.b+-*=j $a.b+-*=alice'] })).toThrow('once')
  })

  // Anything slower than linear would exceed the timeout of the test.
  test('a cookie header of a million awkward characters takes linear time', () => {
    const identify = createIdentify({ ...NOTHING, userFrom: { kind: 'cookie', name: 'session' } })
    for (const unit of [' ', ';', ', ', 'session ', '"', 'session']) {
      const rawHeaders = ['Cookie', `${unit.repeat(1_000_000 / unit.length)};session=alice`]
      expect(identify({ rawHeaders })).toEqual({ user: 'alice' })
    }
  })

  test('invalid percent-encoding is kept as it is, and cookies of other names are ignored', () => {
    const identify = createIdentify({ ...NOTHING, userFrom: { kind: 'cookie', name: 'session' } })
    expect(identify({ rawHeaders: ['Cookie', 'session=%zz%'] })).toEqual({ user: '%zz%' })
    expect(identify({ rawHeaders: ['Cookie', 'Session=a; xsession=b; session; =session=c'] })).toEqual({})
  })

  test.each(['Bearer  ', 'bEARER \t', ' Bearer '])('the token after %j', async (scheme) => {
    const identify = createIdentify({ ...BY_TOKEN, jwtSecret: SECRET })
    const rawHeaders = ['Authorization', `${scheme}${await signed('HS256', bytes(SECRET))}`]
    expect(await identify({ rawHeaders })).toMatchObject({ user: 'alice' })
  })
})

test('facts come from the certificate of the connection', () => {
  const userFrom = { kind: 'cert', name: 'cn' } as const
  expect(createIdentify({ ...NOTHING, userFrom }, true)({ rawHeaders: [], certificate: { cn: 'meter-7' } })).toEqual({
    user: 'meter-7',
  })
})

const UNFIT_KEYS: Readonly<Record<string, () => KeyObject>> = {
  x25519: () => generateKeyPairSync('x25519').publicKey,
  rsa1024: () => generateKeyPairSync('rsa', { modulusLength: 1024 }).publicKey,
  secp256k1: () => generateKeyPairSync('ec', { namedCurve: 'secp256k1' }).publicKey,
}

describe('settings without effect are rejected', () => {
  test.each([
    ['a secret without tokens', { jwtSecret: SECRET }, '--jwt-secret: remove it'],
    ['a key without tokens', { jwtKey: 'package.json' }, '--jwt-key: '],
    ['a key type that cannot sign tokens', { ...BY_TOKEN, jwtKey: 'x25519' }, '--jwt-key: give an RSA key'],
    ['a key that is too short', { ...BY_TOKEN, jwtKey: 'rsa1024' }, '--jwt-key: give an RSA key'],
    ['a curve that cannot sign tokens', { ...BY_TOKEN, jwtKey: 'secp256k1' }, '--jwt-key: give an RSA key'],
    ['a file without a key', { ...BY_TOKEN, jwtKey: 'package.json' }, '--jwt-key: give a file with a public key'],
    [
      'certificate sources without client certificates',
      { userFrom: { kind: 'cert', name: 'cn' } as const },
      '--user-from: use another source',
    ],
  ])('%s', (_what, settings, message) => {
    const { jwtKey } = settings as { jwtKey?: string }
    const made = jwtKey === undefined ? undefined : UNFIT_KEYS[jwtKey]?.()
    const key = made === undefined ? {} : { jwtKey: pemFile(made.export({ type: 'spki', format: 'pem' })) }
    expect(() => createIdentify({ ...NOTHING, ...settings, ...key })).toThrow(message)
  })
})
