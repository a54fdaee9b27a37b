import { request } from 'node:http'
import { type Cidr, parseCidr } from 'sluice/http'
import { describe, expect, test } from 'vitest'
import { AllowedHosts } from '../src/access/allowed-hosts.ts'
import { openSession, sealSession } from '../src/access/session.ts'
import { newSecret, type Token, tokenHash } from '../src/access/token.ts'
import { type AccessOptions, ADMIN_TOKEN, type App, RULES, ruleFile, serveApp, serveFile } from './service.ts'

const SESSION = '/api/v1/session'
const HOUR_US = 3_600_000_000
const RULE = { rule_id: 'one', limit: 1000, window_seconds: 60 }

function tokenOf(secret: string, fields: Partial<Token> = {}): Token {
  return {
    ...{ tokenId: 'tok_1', name: 'ana', role: 'viewer', hash: tokenHash(secret) },
    ...{ createdAt: '2029-01-01T00:00:00Z', expiresAt: null, revokedAt: null, ...fields },
  }
}

type Session = { csrf: string; role: string; token_id: string; token_name: string; expires_at: string }

/** A browser: keeps its cookie, and sends the headers that browsers add. */
async function signIn(app: Pick<App, 'address' | 'send'>, token: string, headers: Record<string, string> = {}) {
  const answer = await app.send(SESSION, {
    method: 'POST',
    headers: { 'content-type': 'application/json', origin: app.address, ...headers },
    body: JSON.stringify({ token }),
  })
  const setCookie = answer.headers.get('set-cookie') ?? ''
  const [cookie = ''] = setCookie.split(';', 1)
  const session = answer.body.session as Session
  const call = (path: string, init: { method?: string; headers?: Record<string, string>; body?: string } = {}) =>
    app.send(path, { ...init, headers: { cookie, ...init.headers } })
  return { answer, setCookie, cookie, session, call }
}

const reset = { method: 'POST', body: JSON.stringify({ rule_id: 'one', key: '' }) }
const RESET = '/api/v1/rate-limit/buckets/reset'
const json = { 'content-type': 'application/json' }

describe('a session', () => {
  const secret = newSecret()
  const app = (fields: Partial<Token> = {}, options: AccessOptions = {}) =>
    serveApp([RULE], undefined, { tokens: [tokenOf(secret, fields)], ...options })

  test('is probed with 200 while signed out', async () => {
    const { get } = await app()
    expect(await get(SESSION)).toMatchObject({ status: 200, body: { session: null, can_sign_in: true } })
  })

  test('has the role of its token, in a cookie that scripts and other sites cannot use', async () => {
    const service = await app()
    const { answer, setCookie, session, call } = await signIn(service, secret)
    expect(answer.status).toBe(200)
    expect(session).toMatchObject({ role: 'viewer', token_id: 'tok_1', token_name: 'ana' })
    expect(setCookie).toMatch(/^sluice_session=\S+; Path=\/; HttpOnly; SameSite=Strict; Max-Age=43200$/)
    expect(setCookie, 'the token is not readable').not.toContain(secret)
    expect((await call(SESSION)).body).toMatchObject({ session: { role: 'viewer', csrf: session.csrf } })
    const read = await call(RULES)
    expect([read.status, read.headers.get('cache-control')]).toEqual([200, 'no-store'])
    const write = await call(RESET, { ...reset, headers: { ...json, 'x-sluice-csrf': session.csrf } })
    expect([write.status, write.body.code]).toEqual([403, 'FORBIDDEN'])
    expect(write.body.detail).toBe('This requires the role editor; the token of your session has the role viewer.')
  })

  test('over TLS has a cookie that is bound to its host', async () => {
    const { setCookie } = await signIn(await app(), secret, { 'x-forwarded-proto': 'https' })
    expect(setCookie).toMatch(/^__Host-sluice_session=\S+; Path=\/; .*; Secure$/)
  })

  test('is accepted by every node that knows the token, and by no other', async () => {
    const { cookie } = await signIn(await app(), secret)
    const answers = await Promise.all(
      [await app(), await app({ hash: tokenHash(newSecret()) }), await app({ tokenId: 'tok_2' })].map((other) =>
        other.send(RULES, { headers: { cookie } }),
      ),
    )
    expect(answers.map(({ status }) => status)).toEqual([200, 401, 401])
  })

  test('ends after its time', async () => {
    const service = await app()
    const { call } = await signIn(service, secret)
    service.clock.advanceUs(12 * HOUR_US - 1_000_000)
    expect((await call(RULES)).status).toBe(200)
    service.clock.advanceUs(1_000_000)
    expect((await call(RULES)).status).toBe(401)
    expect((await call(SESSION)).body.session).toBeNull()
  })

  test.each<[string, (app: App) => void]>([
    ['is revoked', ({ admin }) => admin.tokens.replace([tokenOf(secret, { revokedAt: '2029-01-01T00:00:00Z' })])],
    ['is deleted', ({ admin }) => admin.tokens.replace([])],
    ['is replaced', ({ admin }) => admin.tokens.replace([tokenOf(newSecret())])],
  ])('ends when its token %s', async (_name, end) => {
    const service = await app()
    const { call } = await signIn(service, secret)
    expect((await call(RULES)).status).toBe(200)
    end(service)
    expect((await call(RULES)).status).toBe(401)
  })

  test('never lasts longer than its token', async () => {
    const service = await app()
    const nowMs = service.clock.nowUs() / 1000
    const expiresAt = new Date(nowMs + 60_000).toISOString()
    service.admin.tokens.replace([tokenOf(secret, { expiresAt })])
    const { session, setCookie } = await signIn(service, secret)
    expect(session.expires_at).toBe(expiresAt)
    expect(setCookie).toContain('Max-Age=60')
  })

  test('of the admin token of the settings survives a restart of the node', async () => {
    const rules = ruleFile('[]')
    const first = await serveFile('[]', { rules })
    const { cookie } = await signIn(first, ADMIN_TOKEN)
    const second = await serveFile('[]', { rules })
    expect((await second.send(RULES, { headers: { cookie } })).status).toBe(200)
  })

  test('is ended by signing out', async () => {
    const { call, session } = await signIn(await app(), secret)
    const headers = { 'x-sluice-csrf': session.csrf }
    const { status, headers: answered } = await call(SESSION, { method: 'DELETE', headers })
    expect(status).toBe(204)
    expect(answered.getSetCookie()).toEqual([
      expect.stringContaining('Max-Age=0'),
      expect.stringContaining('Max-Age=0'),
    ])
  })

  test.each([
    ['an unknown token', newSecret(), 401],
    ['no token', '', 400],
  ])('does not start with %s', async (_name, token, status) => {
    const { answer, setCookie } = await signIn(await app(), token)
    expect([answer.status, setCookie]).toEqual([status, ''])
  })

  test('does not start with a token that may only check', async () => {
    const { answer } = await signIn(await app({ role: 'check' }), secret)
    expect([answer.status, answer.body.detail]).toEqual([401, expect.stringContaining('needs viewer')])
  })

  test('does not start without --dashboard', async () => {
    const service = await serveFile('[]', { dashboard: 'off' })
    expect((await signIn(service, ADMIN_TOKEN)).answer.status).toBe(404)
  })

  test('attempts to guess a token are limited per address, and a valid token still works', async () => {
    const service = await app()
    const statuses: number[] = []
    for (let i = 0; i < 25; i++) statuses.push((await signIn(service, newSecret())).answer.status)
    expect([statuses.indexOf(429), new Set(statuses)]).toEqual([20, new Set([401, 429])])
    expect((await signIn(service, secret)).answer.status).toBe(200)
  })
})

describe('another site', () => {
  const secret = newSecret()
  const service = () => serveApp([RULE], undefined, { tokens: [tokenOf(secret, { role: 'admin' })] })

  test.each<[string, (csrf: string, own: string) => Record<string, string>, number]>([
    ['without the CSRF token', () => ({}), 403],
    ['with a wrong one', () => ({ 'x-sluice-csrf': 'A'.repeat(24) }), 403],
    ['with a foreign origin', (csrf) => ({ 'x-sluice-csrf': csrf, origin: 'https://evil.example' }), 403],
    ['from a sandboxed page', (csrf) => ({ 'x-sluice-csrf': csrf, origin: 'null' }), 403],
    ['marked as cross-site', (csrf) => ({ 'x-sluice-csrf': csrf, 'sec-fetch-site': 'cross-site' }), 403],
    [
      'from the dashboard',
      (csrf, own) => ({ 'x-sluice-csrf': csrf, origin: own, 'sec-fetch-site': 'same-origin' }),
      200,
    ],
  ])('cannot change anything: a write %s', async (_name, headersOf, status) => {
    const app = await service()
    const { call, session } = await signIn(app, secret)
    const headers = { ...json, ...headersOf(session.csrf, app.address) }
    expect((await call(RESET, { ...reset, headers })).status).toBe(status)
  })

  test.each<[string, Record<string, string>, number]>([
    ['its own page', { 'sec-fetch-site': 'same-origin', 'sec-fetch-mode': 'cors' }, 200],
    ['a bookmark', { 'sec-fetch-site': 'none', 'sec-fetch-mode': 'navigate' }, 200],
    ['a link of another port', { 'sec-fetch-site': 'same-site', 'sec-fetch-mode': 'navigate' }, 200],
    ['a script of another port', { 'sec-fetch-site': 'same-site', 'sec-fetch-mode': 'cors' }, 403],
    ['an image of another site', { 'sec-fetch-site': 'cross-site', 'sec-fetch-mode': 'no-cors' }, 403],
  ])('cannot use a session to read, or to hold streams: %s gets %i', async (_name, headers, status) => {
    const app = await service()
    const { cookie } = await signIn(app, secret)
    // Not fetch, which sets Sec-Fetch-Mode itself.
    const statusOf = (path: string) =>
      new Promise<number | undefined>((resolve, reject) => {
        const sent = request(app.address + path, { headers: { ...headers, cookie } }, (response) => {
          response.destroy()
          resolve(response.statusCode)
        })
        sent.on('error', reject).end()
      })
    expect([await statusOf(RULES), await statusOf('/api/v1/fleet/stream')]).toEqual([status, status])
  })

  test.each(['http://localhost:1', 'http://127.0.0.1:1', 'https://127.0.0.1', 'http://localhost'])(
    'cannot sign a browser in from another port or scheme: %s',
    async (origin) => {
      const { answer } = await signIn(await service(), secret, { origin })
      expect(answer.status).toBe(403)
    },
  )

  test('cannot sign a browser in', async () => {
    const { answer } = await signIn(await service(), secret, { origin: 'https://evil.example' })
    expect(answer.status).toBe(403)
  })

  test('cannot read through a name that it made resolve to this service', async () => {
    const app = await service()
    const { cookie } = await signIn(app, secret)
    const rebound = await new Promise<number | undefined>((resolve) => {
      const headers = { host: 'evil.example', cookie, accept: 'application/json' }
      request(app.address + RULES, { headers }, (response) => {
        response.resume()
        resolve(response.statusCode)
      }).end()
    })
    expect(rebound).toBe(401)
  })
})

test('a forged cookie opens no session', () => {
  const [secret, other] = [newSecret(), newSecret()]
  const token = tokenOf(secret)
  const find = () => token
  const { cookie } = sealSession(token, secret, 1000)
  expect(openSession(cookie, find, 999)?.token).toBe(token)
  // A copy of the database contains the key of the cookie, but not the token.
  const forged = sealSession(token, other, 1000).cookie
  const [version, id, text = ''] = cookie.split('.')
  const flipped = Buffer.from(text, 'base64url')
  flipped[40] = (flipped[40] ?? 0) ^ 1
  const changed = [version, id, flipped.toString('base64url')].join('.')
  for (const bad of [forged, changed, '', 'v1', 'v1..', `v1.${id}.`, `v2.${id}.${text}`, 'x'.repeat(5000)]) {
    expect(openSession(bad, find, 0), bad.slice(0, 40)).toBeUndefined()
  }
})

test.each<[string | undefined, boolean]>([
  ['localhost:8080', true],
  ['LOCALHOST', true],
  ['127.0.0.1:8080', true],
  ['10.1.2.3', true],
  ['[::1]:8080', true],
  ['sluice.example.com:443', true],
  ['sluice.example.com.', true],
  ['evil.example', false],
  ['localhost.evil.example', false],
  ['127.0.0.1.evil.example', false],
  ['sluice.example.com@evil.example', false],
  ['', false],
  [undefined, false],
])('the dashboard under the name %s: %s', (host, allowed) => {
  expect(new AllowedHosts(['Sluice.example.com']).allows(host)).toBe(allowed)
})

/** Origin, headers of the request, whether the node has TLS, whether the peer is a trusted proxy. */
type OriginCase = [origin: string, headers: Record<string, string>, hasTls: boolean, isProxied: boolean]

const HOST = 'sluice.example.com'
const FORWARDED = { host: 'internal:8080', 'x-forwarded-proto': 'https', 'x-forwarded-host': HOST }
const SAME: readonly OriginCase[] = [
  ['http://localhost:8080', { host: 'localhost:8080' }, false, false],
  ['http://localhost', { host: 'localhost' }, false, false],
  ['http://localhost', { host: 'LOCALHOST:80' }, false, false],
  ['https://10.1.2.3', { host: '10.1.2.3:443' }, true, false],
  ['http://[::1]:8080', { host: '[::1]:8080' }, false, false],
  [`https://${HOST}`, { host: HOST }, true, false],
  // A proxy that terminates TLS and keeps Host: the browser has compared the origins, or the proxy is trusted.
  ['https://10.1.2.3:8443', { host: '10.1.2.3:8443', 'sec-fetch-site': 'same-origin' }, false, false],
  ['https://10.1.2.3:8443', { host: '10.1.2.3:8443', 'x-forwarded-proto': 'https' }, false, true],
  [`https://${HOST}`, FORWARDED, false, true],
  // A proxy that rewrites Host: the name is in --dashboard-hosts.
  [`https://${HOST}`, { host: 'internal:8080' }, false, false],
  [`http://${HOST}`, { host: 'internal:8080' }, false, false],
]
const FOREIGN: readonly OriginCase[] = [
  ['http://localhost:9999', { host: 'localhost:8080' }, false, false],
  ['http://localhost', { host: 'localhost:8080' }, false, false],
  ['http://127.0.0.1:8080', { host: 'localhost:8080' }, false, false],
  ['https://localhost:8080', { host: 'localhost:8080' }, false, false],
  ['http://localhost:8080', { host: 'localhost:8080' }, true, false],
  ['http://localhost:9999', { host: 'localhost:8080', 'sec-fetch-site': 'same-origin' }, false, false],
  ['http://localhost:8080', { host: 'localhost:8080', 'sec-fetch-site': 'same-site' }, false, false],
  ['http://localhost:8080', { host: 'localhost:8080', 'sec-fetch-site': 'cross-site' }, false, false],
  [`https://${HOST}:8443`, { host: HOST }, true, false],
  [`http://${HOST}`, { host: HOST }, true, false],
  [`https://a.${HOST}`, { host: HOST }, true, false],
  [`https://${HOST}.evil.example`, { host: HOST }, true, false],
  [`https://${HOST}@evil.example`, { host: HOST }, true, false],
  [`https://${HOST}/`, { host: HOST }, true, false],
  ['https://evil.example', { host: 'internal:8080', 'x-forwarded-host': 'evil.example' }, false, false],
  ['https://other.example', FORWARDED, false, true],
  ['http://10.9.9.9', { host: 'internal:8080' }, false, false],
  ['null', { host: 'localhost:8080' }, false, false],
  ['', { host: 'localhost:8080' }, false, false],
  ['file://', { host: 'localhost:8080' }, false, false],
]

test.each([...SAME.map((one) => [...one, true] as const), ...FOREIGN.map((one) => [...one, false] as const)])(
  'the origin %s of a request with %j (TLS: %s, from a trusted proxy: %s) is that of the dashboard: %s',
  (origin, headers, encrypted, isProxied, isSame) => {
    const hosts = new AllowedHosts([HOST], ['127.0.0.1'], [parseCidr('10.0.0.1') as Cidr])
    const socket = { encrypted, remoteAddress: isProxied ? '10.0.0.1' : '10.0.0.2' }
    expect(hosts.isSameOrigin({ headers: { ...headers, origin }, socket })).toBe(isSame)
  },
)
