import { request } from 'node:http'
import { join } from 'node:path'
import { parseCidr } from 'sluice/http'
import { describe, expect, test } from 'vitest'
import type { ClientSettings } from '../src/settings/client-settings.ts'
import { temporaryFolder } from './databases.ts'
import { type App, serveApp, serveFile } from './service.ts'

const AUTH = '/api/v1/rate-limit/auth'
const LOOPBACK = { trustedProxies: [parseCidr('127.0.0.1')].flatMap((cidr) => cidr ?? []) }
const NGINX = { 'x-original-uri': '/messages?page=1', 'x-original-method': 'POST', 'x-forwarded-for': '192.0.2.7' }
const TRAEFIK = {
  'x-forwarded-uri': '/messages',
  'x-forwarded-method': 'POST',
  'x-forwarded-for': '192.0.2.7',
  'x-forwarded-host': 'example.org',
  'x-forwarded-proto': 'https',
}
const ONE = {
  rule_id: 'one',
  endpoint_pattern: '/messages',
  method: 'POST',
  limit: 1,
  window_seconds: 60,
  scope: 'per_ip',
}

function serveAuth(rules: unknown, clients: Partial<ClientSettings> = LOOPBACK): Promise<App> {
  return serveApp(rules, undefined, { clients })
}

describe('forward auth', () => {
  test.each([
    ['nginx', NGINX],
    ['ingress-nginx', { ...NGINX, 'x-original-uri': '', 'x-original-url': 'https://example.org/messages?page=1' }],
    ['Traefik and Caddy', TRAEFIK],
  ])('%s: 204, then 429, both with headers to copy', async (_proxy, headers) => {
    const { send } = await serveAuth([ONE])
    const allowed = await send(AUTH, { headers })
    expect(allowed.status).toBe(204)
    expect(allowed.headers.get('x-ratelimit-limit')).toBe('1')
    expect(allowed.headers.get('ratelimit')).toBe('"one";r=0;t=60')
    const refused = await send(AUTH, { method: 'POST', headers })
    expect(refused).toMatchObject({ status: 429, body: { status: 429, rule_id: 'one', retry_after: 60 } })
    expect(refused.headers.get('content-type')).toContain('application/problem+json')
    expect(refused.headers.get('retry-after')).toBe('60')
    const other = await send(AUTH, { headers: { ...headers, 'x-forwarded-for': '192.0.2.8' } })
    expect(other.status, 'another client').toBe(204)
  })

  test('a refusal has rule, tier, limit and wait of a check; in a header for proxies that drop bodies', async () => {
    const limits = [
      { limit: 9, window: '1s' },
      { name: 'daily', limit: 1, window: '1d' },
    ]
    const rule = { rule_id: 'one', name: 'Erste Régel "1"', scope: 'per_ip', algorithm: 'fixed_window', limits }
    const { send, check: checkOf } = await serveAuth([rule])
    await send(AUTH, { headers: NGINX })
    const check = await checkOf({ ip_address: NGINX['x-forwarded-for'] })
    const { rule_id, violated_rule, violated_tier, violated_limit, retry_after, retry_after_ms } = check
    expect([violated_rule, violated_tier, violated_limit]).toEqual(['Erste Régel "1"', 'per_ip', 'daily'])
    const same = { rule_id, violated_rule, violated_tier, violated_limit, retry_after, retry_after_ms }
    const refused = await send(AUTH, { headers: { ...NGINX, accept: 'application/json' } })
    expect(refused).toMatchObject({ status: 429, body: same })
    expect(refused.headers.has('sluice-refusal')).toBe(false)
    const browser = { ...NGINX, accept: 'text/html' }
    expect((await send(AUTH, { headers: browser })).headers.get('content-type')).toMatch(/^text\/plain\b/)
    const header = (await send(`${AUTH}?refused=403`, { headers: browser })).headers.get('sluice-refusal') ?? ''
    expect(JSON.parse(header), 'the document, also for a client that prefers text').toMatchObject({
      status: 429,
      ...same,
    })
  })

  test('?refused=403 is for a proxy that forwards no other status', async () => {
    const { send } = await serveAuth([{ ...ONE, limit: 0 }])
    const refused = await send(`${AUTH}?refused=403`, { headers: NGINX })
    expect(refused).toMatchObject({ status: 403, body: { status: 429, rule_id: 'one' } })
    expect(await send(`${AUTH}?refused=200`, { headers: NGINX })).toMatchObject({
      status: 400,
      body: { errors: [{ field: 'refused', fix: 'use 429, or 403 for a proxy that forwards no other status' }] },
    })
  })

  test('a peer that is not a trusted proxy gets a 500 with the fix, never a decision, even on loopback', async () => {
    const { send, metrics, logged, clock } = await serveAuth([ONE], {})
    const ask = () => send(`${AUTH}?refused=403`, { headers: NGINX })
    const answer = await ask()
    expect(answer).toMatchObject({
      status: 500,
      body: { code: 'PEER_UNTRUSTED', detail: expect.stringContaining('--trusted-proxies 127.0.0.1') },
    })
    expect(answer.headers.get('sluice-problem')).toBe('PEER_UNTRUSTED')
    for (const _ of [1, 2]) await ask()
    const warnings = () => logged.filter(({ level }) => level === 'warn')
    expect(warnings(), 'logged once a minute').toMatchObject([{ code: 'PEER_UNTRUSTED', peer: '127.0.0.1', count: 1 }])
    clock.advanceUs(60_000_000)
    await ask()
    expect(warnings()).toMatchObject([{ count: 1 }, { count: 4 }])
    const text = await metrics.registry.metrics()
    expect(text).not.toContain('sluice_checks_total{')
    expect(text).toContain('sluice_forward_auth_errors_total{code="PEER_UNTRUSTED"} 4')
  })

  test('a proxy on a Unix socket has no address to trust: the answer says so', async () => {
    const socket = join(temporaryFolder(), 'sluice.sock')
    const { logged } = await serveFile('[]', { socket, ...LOOPBACK })
    const answered = new Promise<number | undefined>((resolve, reject) => {
      const asked = request({ socketPath: socket, path: AUTH, headers: NGINX }, (response) => {
        response.resume()
        resolve(response.statusCode)
      })
      asked.once('error', reject)
      asked.end()
    })
    expect(await answered).toBe(500)
    const fix = expect.stringContaining('use --host and --port instead of --socket')
    expect(logged.filter(({ level }) => level === 'warn')).toMatchObject([{ code: 'PEER_UNTRUSTED', fix }])
  })

  test.each([
    ['a client of nginx names another path', { ...NGINX, 'x-forwarded-uri': '/free' }],
    ['a client of nginx names another method', { ...NGINX, 'x-forwarded-method': 'GET' }],
    ['a client of Traefik names another path', { ...TRAEFIK, 'x-original-uri': '/free' }],
    ['a proxy that forgets the method', { ...NGINX, 'x-original-method': '' }],
    ['a proxy of two minds', { ...NGINX, 'x-original-method': '', 'x-forwarded-method': 'GET' }],
    ['a proxy that tells nothing', { 'x-forwarded-for': '192.0.2.7' }],
    ['a proxy that hides its client', { 'x-original-uri': '/', 'x-original-method': 'GET' }],
  ])('%s: 400 that names the fix', async (_case, headers) => {
    const { send, logged, metrics } = await serveAuth([ONE])
    const sent = Object.entries(headers).filter(([, value]) => value !== '')
    expect(await send(AUTH, { headers: Object.fromEntries(sent) })).toMatchObject({
      status: 400,
      body: { code: 'REQUEST_INVALID', detail: expect.stringContaining('make the proxy') },
    })
    const fix = expect.stringContaining('make the proxy')
    expect(logged.filter(({ level }) => level === 'warn')).toMatchObject([{ code: 'REQUEST_INVALID', fix }])
    const text = await metrics.registry.metrics()
    expect(text).toContain('sluice_forward_auth_errors_total{code="REQUEST_INVALID"} 1')
  })

  test('a repeated header is rejected', async () => {
    const { address } = await serveAuth([ONE])
    const headers = [...Object.entries(NGINX), ['x-original-uri', '/free']].flat()
    expect(await statusOf(`${address}${AUTH}`, headers)).toBe(400)
  })

  test.each([
    ['behind a spoofed hop', '10.9.9.9, 192.0.2.7'],
    ['mapped to IPv6', '::ffff:192.0.2.7'],
    ['with a port', '192.0.2.7:4711'],
  ])('a client %s is the same client', async (_way, forwardedFor) => {
    const { send } = await serveAuth([ONE])
    expect((await send(AUTH, { headers: NGINX })).status).toBe(204)
    expect((await send(AUTH, { headers: { ...NGINX, 'x-forwarded-for': forwardedFor } })).status).toBe(429)
  })

  test.each(['/messages/', '//messages', '/./messages', '/%6Dessages', '/x/../messages', '/messages?a#b'])(
    'the path written as %s is the same path',
    async (path) => {
      const { send } = await serveAuth([ONE])
      expect((await send(AUTH, { headers: NGINX })).status).toBe(204)
      expect((await send(AUTH, { headers: { ...NGINX, 'x-original-uri': path } })).status).toBe(429)
    },
  )

  test('facts come from where the settings say, and rules see the headers they name', async () => {
    const rules = [
      { rule_id: 'user', limit: 1, window_seconds: 60, scope: 'per_user' },
      { rule_id: 'mobile', limit: 1, window_seconds: 60, scope: 'per_api_key', when: { 'header.x-client': 'mobile' } },
    ]
    const { send } = await serveAuth(rules, {
      ...LOOPBACK,
      userFrom: { kind: 'header', name: 'x-user' },
      apiKeyFrom: { kind: 'cookie', name: 'key' },
    })
    const as = (more: Record<string, string>) => send(AUTH, { headers: { ...NGINX, ...more } })
    expect((await as({ 'x-user': 'alice' })).status).toBe(204)
    expect((await as({ 'x-user': 'alice' })).body).toMatchObject({ rule_id: 'user' })
    expect((await as({ 'x-user': 'bob' })).status).toBe(204)
    expect((await as({ cookie: 'a=b; key=k1', 'x-client': 'mobile' })).status).toBe(204)
    expect((await as({ cookie: 'key="k1"; a=b', 'x-client': 'mobile' })).body).toMatchObject({ rule_id: 'mobile' })
    expect((await as({ cookie: 'key=k2; key=k1', 'x-client': 'mobile' })).status, 'which one is read?').toBe(400)
    for (const cookie of ['key=k2 key=k1', 'key=k2, key=k1', 'key=k2\tkey=k1', 'a=b key=k1', 'key=k2 k1']) {
      expect((await as({ cookie, 'x-client': 'mobile' })).status, cookie).toBe(400)
    }
    expect((await as({ cookie: 'key=k1' })).status).toBe(204)
  })

  test('permits are released immediately, because no later request would release them', async () => {
    const rule = { rule_id: 'one', algorithm: 'concurrency', limit: 1, window: '1d', scope: 'per_ip' }
    const { send, logged } = await serveAuth([rule])
    for (const _ of [1, 2, 3]) expect((await send(AUTH, { headers: NGINX })).status).toBe(204)
    const warnings = logged.filter(({ event }) => event === 'forward_auth_permit_not_held')
    expect(warnings).toMatchObject([{ rule_id: 'one', level: 'warn' }])
  })

  test('a leaky bucket never delays longer than a proxy waits: it refuses instead, and consumes nothing', async () => {
    const slow = { rule_id: 'slow', algorithm: 'leaky_bucket', limit: 6, burst: 6, window_seconds: 60, scope: 'per_ip' }
    const { send, metrics } = await serveAuth([slow])
    expect((await send(AUTH, { headers: NGINX })).status).toBe(204)
    for (const _ of [1, 2, 3, 4, 5, 6, 7, 8]) {
      const refused = await send(AUTH, { headers: NGINX })
      expect(refused).toMatchObject({ status: 429, body: { rule_id: 'slow', 'violated-policies': ['slow'] } })
      expect(refused.headers.get('retry-after')).toMatch(/^(9|10)$/)
    }
    expect(await metrics.registry.metrics()).toContain('sluice_checks_total{rule="slow",result="refused"} 8')
  })

  test('a forwarded body is ignored', async () => {
    const { send } = await serveAuth([ONE])
    const init = { method: 'POST', headers: { ...NGINX, 'content-type': 'text/csv' }, body: 'x'.repeat(200_000) }
    expect((await send(AUTH, init)).status).toBe(204)
  })
})

/** Sends repeated headers separately; `fetch` would join them. */
function statusOf(url: string, headers: readonly string[]): Promise<number | undefined> {
  return new Promise((resolve, reject) => {
    const { host } = new URL(url)
    const sent = request(url, { headers: ['host', host, ...headers] }, (answer) => {
      answer.resume().on('end', () => resolve(answer.statusCode))
    })
    sent.on('error', reject).end()
  })
}
