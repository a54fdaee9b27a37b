import { readFileSync } from 'node:fs'
import { fastify } from 'fastify'
import { describe, expect, test } from 'vitest'
import { guardRoutes } from '../src/access/guard.ts'
import { ROLES, type Role, roleAllows } from '../src/access/roles.ts'
import { newSecret, type Token, tokenHash } from '../src/access/token.ts'
import { TokenRegistry } from '../src/access/token-registry.ts'
import { HOT_KEYS_PATH } from '../src/http/routes/hot-keys.ts'
import { KILL_SWITCH_PATH } from '../src/http/routes/kill-switch.ts'
import { Metrics } from '../src/metrics/metrics.ts'
import { isLoopback } from '../src/settings/loopback.ts'
import { ADMIN_TOKEN, type App, CHECK, RULES, serveApp } from './service.ts'

const page = readFileSync(new URL('../../../docs/reference/http-api.md', import.meta.url), 'utf8')

/** `GET /readyz` → the role that it needs, as the page says. */
const DOCUMENTED = new Map(
  [...page.matchAll(/^\| `([A-Z]+ \/[^\s?`]*)\S*` \| (\w+) \|/gm)].map(([, route = '', role = '']) => [route, role]),
)

/** Exists only on nodes that have their own tests. */
const ELSEWHERE = ['GET /api/v1/regions', 'POST /json']

const RULE = { rule_id: 'one', limit: 1000, window_seconds: 60 }
const MINUTE_US = 60_000_000

function tokenOf(secret: string, fields: Partial<Token> = {}): Token {
  return {
    ...{ tokenId: 'tok_1', name: 'test', role: 'admin', hash: tokenHash(secret) },
    ...{ createdAt: '2029-01-01T00:00:00Z', expiresAt: null, revokedAt: null, ...fields },
  }
}

type Operation = { requestBody?: { content: Record<string, { schema: { examples?: unknown[] }; example?: unknown }> } }
type Route = { readonly name: string; readonly method: string; readonly path: string; readonly body: unknown }

/** Every route, with a valid body. */
async function routesOf(app: App): Promise<Route[]> {
  const { paths } = (await app.get('/openapi.json')).body as { paths: Record<string, Record<string, Operation>> }
  return Object.entries(paths).flatMap(([url, methods]) =>
    Object.entries(methods).map(([verb, { requestBody }]) => {
      const { schema, example } = requestBody?.content['application/json'] ?? {}
      const [method, path] = [verb.toUpperCase(), url.replace(/\{\w+\}/g, 'x')]
      return { name: `${method} ${url}`, method, path, body: example ?? schema?.examples?.[0] }
    }),
  )
}

function call({ send }: App, { method, path, body }: Route, token: string | undefined) {
  const headers = {
    ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
    ...(body === undefined ? {} : { 'content-type': 'application/json' }),
  }
  return send(path, { method, headers, ...(body === undefined ? {} : { body: JSON.stringify(body) }) })
}

/** Expected result for a caller, according to the page: `let in`, or the status of the rejection. */
function expected(needed: string, role: Role | undefined, checksAreOpen: boolean): 'let in' | 401 | 403 | 500 {
  if (needed === 'open' || (needed === 'check' && checksAreOpen)) return 'let in'
  if (needed === 'proxy') return 500 // whatever the token: this node trusts no proxy
  if (role === undefined) return 401
  return roleAllows(role, needed as Role) ? 'let in' : 403
}

describe('every route admits exactly the roles that the documentation names', () => {
  const secrets = new Map(ROLES.map((role) => [role, newSecret()]))
  const tokens = [...secrets].map(([role, secret]) => tokenOf(secret, { role, tokenId: `tok_${role}` }))
  const callers = [
    ['no token', undefined, undefined] as const,
    ...[...secrets].map(([role, s]) => [role, role, s] as const),
  ]

  test.each([true, false])('checks are open: %s', async (checksAreOpen) => {
    const app = await serveApp([RULE], undefined, { tokens, checksAreOpen })
    const routes = await routesOf(app)
    const here = [...DOCUMENTED.keys()].filter((name) => !ELSEWHERE.includes(name))
    expect(routes.map(({ name }) => name).sort()).toEqual(here.sort())
    for (const route of routes) {
      for (const [caller, role, secret] of callers) {
        const { status } = await call(app, route, secret)
        const met = [401, 403, 500].includes(status) ? status : 'let in'
        const wanted = expected(DOCUMENTED.get(route.name) ?? '', role, checksAreOpen)
        expect(met, `${caller}: ${route.name} answered ${status}`).toBe(wanted)
      }
    }
  })

  test('every route that reads tokens rejects an unknown, expired or revoked one', async () => {
    const [expired, revoked] = [newSecret(), newSecret()]
    const past = '2001-01-01T00:00:00.000Z'
    const refused = [tokenOf(expired, { expiresAt: past }), tokenOf(revoked, { revokedAt: past })]
    const app = await serveApp([RULE], undefined, { tokens: refused })
    const noRoute = { name: 'no route', method: 'GET', path: '/nothing', body: undefined }
    const ofTokens = (await routesOf(app)).filter(({ name }) => DOCUMENTED.get(name) !== 'proxy')
    const routes = [...ofTokens, noRoute]
    for (const route of routes) {
      for (const token of ['wrong', newSecret(), `${ADMIN_TOKEN}x`, expired, revoked, '']) {
        app.clock.advanceUs(MINUTE_US)
        const { status, body, headers } = await call(app, route, token)
        expect({ status, code: body.code }, route.name).toEqual({ status: 401, code: 'UNAUTHORIZED' })
        expect(headers.get('www-authenticate')).toBe('Bearer realm="sluice"')
      }
    }
    expect(String((await app.get('/metrics')).body.text)).toContain(`sluice_tokens_rejected_total ${routes.length * 6}`)
  })

  test('forward auth ignores forwarded credentials, which belong to another service', async () => {
    const app = fastify()
    const metrics = new Metrics()
    guardRoutes(app, { tokens: new TokenRegistry(), adminToken: undefined, checksAreOpen: false, metrics })
    app.get('/auth', { config: { access: 'proxy' } }, ({ caller }) => caller.id)
    const { statusCode, body } = await app.inject({ url: '/auth', headers: { authorization: 'Bearer of.a.client' } })
    expect([statusCode, body]).toEqual([200, 'anonymous'])
  })

  test('HEAD needs the role of GET', async () => {
    const { address } = await serveApp([RULE])
    const head = async (headers: Record<string, string>) => {
      return (await fetch(address + RULES, { method: 'HEAD', headers })).status
    }
    expect([await head({}), await head({ authorization: `Bearer ${ADMIN_TOKEN}` })]).toEqual([401, 200])
  })

  test('a route without a role is rejected', () => {
    const app = fastify()
    const metrics = new Metrics()
    guardRoutes(app, { tokens: new TokenRegistry(), adminToken: undefined, checksAreOpen: true, metrics })
    expect(() => app.get('/new', () => 'secret')).toThrow('GET /new declares no role')
  })

  test('a route that writes and is in no row of the write paths is rejected', () => {
    const app = fastify()
    guardRoutes(app, {
      ...{ tokens: new TokenRegistry(), adminToken: undefined, checksAreOpen: true, metrics: new Metrics() },
    })
    for (const method of ['POST', 'PUT', 'PATCH', 'DELETE'] as const) {
      const add = () => app.route({ method, url: '/new', config: { access: 'admin' }, handler: () => 'written' })
      expect(add).toThrow(`${method} /new is in no row of rules/write-paths.ts`)
    }
  })
})

test('roles: check may only make checks; each later role includes the earlier ones', () => {
  const table = ROLES.map((role) => [role, ROLES.filter((needed) => roleAllows(role, needed))])
  expect(Object.fromEntries(table)).toEqual({
    check: ['check'],
    viewer: ['viewer'],
    editor: ['viewer', 'editor'],
    approver: ['viewer', 'editor', 'approver'],
    admin: [...ROLES],
  })
})

describe('a token', () => {
  test('expires exactly at expires_at, and the answer names that time', async () => {
    const secret = newSecret()
    const app = await serveApp([RULE])
    const endsMs = app.clock.nowUs() / 1000 + 5000
    const expiresAt = new Date(endsMs).toISOString()
    const withToken = await serveApp([RULE], undefined, { tokens: [tokenOf(secret, { expiresAt })] })
    withToken.clock.advanceUs(5_000_000 - 1)
    expect((await withToken.get(RULES, secret)).status).toBe(200)
    withToken.clock.advanceUs(1)
    expect((await withToken.get(RULES, secret)).body.detail).toBe(`This token expired at ${expiresAt}.`)
  })

  test('uses the Bearer scheme, in any case; other schemes are ignored', async () => {
    const app = await serveApp([RULE])
    const statuses = async (authorization: string) => {
      const init = { headers: { authorization } }
      return [(await app.send(RULES, init)).status, (await app.send('/readyz', init)).status]
    }
    expect(await statuses(`bearer ${ADMIN_TOKEN} `)).toEqual([200, 200])
    expect(await statuses(`Basic ${ADMIN_TOKEN}`)).toEqual([401, 200])
    expect(await statuses(ADMIN_TOKEN)).toEqual([401, 200])
  })

  test('is never logged or sent in an answer', async () => {
    const secret = newSecret()
    const app = await serveApp([RULE], undefined, { tokens: [tokenOf(secret)] })
    const answers = [await app.get(RULES, secret), await app.get(RULES, `${secret}x`), await app.get('/metrics')]
    expect(JSON.stringify([answers, app.logged])).not.toContain(secret)
  })

  test('is required even on a node without tokens: the answer says how to configure one', async () => {
    const app = await serveApp([RULE], undefined, { adminToken: undefined })
    expect((await app.get(RULES)).body.detail).toMatch(/role viewer.*start it with --tokens-file or --admin-token/)
  })
})

describe('admin endpoints are rate limited', () => {
  test('a token gets a burst of 500 requests and 50 a second, without affecting others', async () => {
    const [busy, calm] = [newSecret(), newSecret()]
    const tokens = [tokenOf(busy, { tokenId: 'tok_busy' }), tokenOf(calm, { tokenId: 'tok_calm' })]
    const app = await serveApp([RULE], undefined, { tokens })
    const ask = async (secret: string) => (await app.get(HOT_KEYS_PATH, secret)).status
    for (let sent = 0; sent < 500; sent += 1) expect(await ask(busy)).toBe(200)
    const { status, headers, body } = await app.get(HOT_KEYS_PATH, busy)
    expect({ status, code: body.code }).toEqual({ status: 429, code: 'TOO_MANY_REQUESTS' })
    expect(headers.get('retry-after')).toBe('1')
    expect(await ask(calm)).toBe(200)
    expect((await app.post(CHECK, {}, busy)).status, 'checks have limits of their own').toBe(200)
    app.clock.advanceUs(20_000)
    expect([await ask(busy), await ask(busy)]).toEqual([200, 429])
  })

  test('a valid token always passes; of a flood of invalid ones 20 a minute get a 401, the rest a 429', async () => {
    const secret = newSecret()
    const app = await serveApp([RULE], undefined, { tokens: [tokenOf(secret)] })
    const statusOf = async (token: string) => (await app.get('/readyz', token)).status
    const flood = await Promise.all(Array.from({ length: 300 }, (_, index) => statusOf(`guess-${index}`)))
    expect(flood.filter((status) => status === 401)).toHaveLength(20)
    expect(flood.filter((status) => status === 429)).toHaveLength(280)
    expect(await statusOf(secret)).toBe(200)
    const kill = { rule_id: RULE.rule_id, on: true }
    for (let used = 0; used < 30; used += 1) {
      expect((await app.post(KILL_SWITCH_PATH, kill, ADMIN_TOKEN)).status, 'from the address of the flood').toBe(200)
      expect(await statusOf(`${ADMIN_TOKEN}${used}`)).toBe(429)
    }
    app.clock.advanceUs(2 * MINUTE_US)
    expect(await statusOf('guess')).toBe(401)
    expect(String((await app.get('/metrics')).body.text)).toContain('sluice_tokens_rejected_total 331')
  })
})

test.each([
  ['127.0.0.1', true],
  ['127.9.9.9', true],
  ['::1', true],
  ['localhost', true],
  ['0.0.0.0', false],
  ['::', false],
  ['192.168.0.1', false],
  ['example.org', false],
])('%s is a loopback address: %s', (host, loopback) => {
  expect(isLoopback(host)).toBe(loopback)
})
