// Analytics and the event stream over HTTP and on the command line, on a real node.

import { readdirSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, onTestFinished, test, vi } from 'vitest'
import { sluice } from './cli/terminal.ts'
import { emptyDataDir, sharedDataDir, usePostgres } from './databases.ts'
import { ADMIN_TOKEN, BATCH, CHECK, type Client, REFUND, RULE_SET, serveFile, serveSettings } from './service.ts'

const PATIENTLY = { timeout: 20_000, interval: 100 }
const ANALYTICS = '/api/v1/analytics'
const STREAM = '/api/v1/events/stream'
const RULES = [
  { rule_id: 'login', endpoint_pattern: '/login', scope: 'per_user', limit: 5, window: '1d' },
  { rule_id: 'keys', endpoint_pattern: '/keys/:id', scope: 'per_api_key', limit: 2, window: '1d' },
]

type Json = Record<string, never>

async function ask(client: Client, path: string, query: Record<string, string> = {}): Promise<Json> {
  const { status, body } = await client.get(`${ANALYTICS}/${path}?${new URLSearchParams(query)}`, ADMIN_TOKEN)
  expect(body).toEqual(expect.objectContaining({}))
  expect(status, JSON.stringify(body)).toBe(200)
  return body as Json
}

/** A node with rules of its own and an embedded database. */
async function serve(settings: Parameters<typeof serveSettings>[0] = {}): Promise<Client> {
  const node = await serveSettings({ ...settings, dataDir: settings.dataDir ?? (await sharedDataDir()) })
  const body = JSON.stringify({ rules: RULES })
  const headers = { 'content-type': 'application/json', authorization: `Bearer ${ADMIN_TOKEN}` }
  expect(await node.send(RULE_SET, { method: 'PUT', headers, body })).toMatchObject({ status: 200 })
  return node
}

async function viewerOf(node: Client, name: string): Promise<string> {
  return String((await node.post('/api/v1/admin/tokens', { name, role: 'viewer' }, ADMIN_TOKEN)).body.token)
}

/** 8 logins of each user: 5 are admitted. */
async function logIn(node: Client, users: readonly string[], more: object = {}): Promise<void> {
  const checks = users.flatMap((client_id) =>
    Array.from({ length: 8 }, () => ({ client_id, endpoint: '/login', method: 'POST', ...more })),
  )
  expect(await node.post(BATCH, { checks })).toMatchObject({ status: 200 })
}

async function counted(node: Client, checks: number): Promise<void> {
  await vi.waitFor(async () => expect(await ask(node, 'summary')).toMatchObject({ checks }), PATIENTLY)
}

describe('analytics', () => {
  test('count every decision by rule, endpoint, plan, tenant, client, limit and source', async () => {
    const node = await serve({ eventsSample: 0 })
    await logIn(node, ['ann', 'bob'], { plan: 'free', tenant: 'acme' })
    await logIn(node, ['cyd'], { plan: 'pro' })
    await node.post(CHECK, { client_id: 'ann', endpoint: '/elsewhere' })
    await counted(node, 25)
    expect(await ask(node, 'summary')).toMatchObject({
      ...{ allowed: 16, refused: 9, refused_share: 0.36 },
      rules: [{ name: 'login', allowed: 15, refused: 9 }],
      endpoints: [{ name: '/login', refused: 9 }],
      latency: { count: 25 },
    })
    const timeline = async (query: Record<string, string>) => {
      const { series } = (await ask(node, 'timeline', query)) as unknown as {
        series: { name: string; points: { allowed: number; refused: number }[] }[]
      }
      return series.map(({ name, points }) => {
        const sum = (of: 'allowed' | 'refused') => points.reduce((total, point) => total + point[of], 0)
        return [name, sum('allowed'), sum('refused')]
      })
    }
    expect(await timeline({ by: 'rule' })).toEqual([
      ['login', 15, 9],
      ['none', 1, 0],
    ])
    expect(await timeline({ by: 'plan', rule: 'login' })).toEqual([
      ['free', 10, 6],
      ['pro', 5, 3],
    ])
    expect(await timeline({ tenant: 'acme', result: 'refused' })).toEqual([['all', 0, 6]])
    expect(await timeline({ by: 'limit' })).toEqual([['login/default', 15, 9]])
    expect(await timeline({ plan: 'none' })).toEqual([['all', 1, 0]])
    expect(await ask(node, 'top', { by: 'allowed', count: '1' })).toMatchObject({
      top: [{ name: 'ann', kind: 'user', allowed: 6, refused: 3, near_limit: 2 }],
    })
    expect(await ask(node, 'clients/bob')).toMatchObject({
      ...{ client: 'bob', kind: 'user', allowed: 5, refused: 3 },
      events: [{ client_id: 'bob', allowed: false, rule_id: 'login' }, {}, {}], // refusals only: the sample is 0
    })
    expect(await ask(node, 'clients/nowhere')).toMatchObject({ allowed: 0, refused: 0, points: [], events: [] })
  })

  test.each([
    ['timeline', { from: 'yesterday' }, 'from'],
    ['timeline', { from: '1h', to: '2h' }, 'from'],
    ['timeline', { from: '2020-01-01' }, 'from'],
    ['timeline', { step: '7' }, 'step'],
    ['timeline', { step: '1m', from: '60d' }, 'step'],
    ['timeline', { by: 'colour' }, 'by'],
    ['timeline', { limit: 'login/default', plan: 'free' }, 'plan'],
    ['timeline', { limit: 'login' }, 'limit'],
    ['timeline', { rul: 'login' }, 'rul'],
    ['top', { of: 'client', result: 'refused' }, 'result'],
    ['top', { of: 'client', rule: 'login', by: 'allowed' }, 'by'],
    ['top', { of: 'limit', plan: 'free' }, 'plan'],
    ['top', { of: 'rule', by: 'near_limit' }, 'by'],
    ['top', { count: '0' }, 'count'],
    ['clients/ann', { kind: 'address' }, 'kind'],
    ['clients/ann', { from: '999999d', to: '999900d' }, 'from'],
    ['latency', { rule: 'login' }, 'rule'],
    ['summary', { source: 'policy' }, 'source'],
  ])('%s with %j is a 400 that names the field', async (path, query: Record<string, string>, field) => {
    const node = await serveFile('[]')
    const { status, body } = await node.get(`${ANALYTICS}/${path}?${new URLSearchParams(query)}`, ADMIN_TOKEN)
    expect(status).toBe(400)
    expect(body.errors).toMatchObject([{ field, fix: expect.any(String) }])
  })

  test('without a database and without ClickHouse are not available', async () => {
    const node = await serveFile('[]')
    for (const path of [`${ANALYTICS}/timeline`, `${ANALYTICS}/clients/ann`, STREAM]) {
      expect(await node.get(path, ADMIN_TOKEN)).toMatchObject({ status: 409, body: { code: 'NO_ANALYTICS' } })
    }
  })

  test('with hashed keys find clients by their plain key, and no file has it', async () => {
    const dataDir = await emptyDataDir()
    const jsonl = join(dataDir, 'decisions.jsonl')
    const node = await serve({
      dataDir,
      eventsKeys: { embedded: 'hmac' },
      eventsSinks: [{ kind: 'jsonl', target: jsonl }],
    })
    const secrets = { client_id: 'secret-user', tenant: 'secret-tenant', ip_address: '198.51.100.77' }
    await logIn(node, ['secret-user'], secrets)
    await node.post(CHECK, { api_key: 'secret-key', endpoint: '/keys/secret-path' })
    await counted(node, 9)
    expect(await ask(node, 'clients/secret-user')).toMatchObject({ allowed: 5, refused: 3 })
    expect(await ask(node, 'clients/secret-key', { kind: 'api_key' })).toMatchObject({ allowed: 1 })
    expect(await ask(node, 'summary', { tenant: 'secret-tenant' })).toMatchObject({ checks: 8 })
    expect(JSON.stringify(await ask(node, 'top'))).not.toContain('secret')
    await (node as unknown as { close(): Promise<void> }).close()
    for (const file of filesIn(dataDir)) {
      const bytes = readFileSync(file, 'latin1')
      for (const text of ['secret-user', 'secret-tenant', 'secret-key', 'secret-path', '198.51.100.77']) {
        expect(bytes.includes(text), `${text} in ${file}`).toBe(false)
      }
    }
    expect(readFileSync(jsonl, 'utf8').trimEnd().split('\n')).toHaveLength(9)
    expect(JSON.stringify(node.logged)).not.toMatch(/secret-|198\.51/)
  })
})

describe('nodes of one database', () => {
  const postgres = usePostgres()

  test('answer for all of them, and a node with another secret says so', async () => {
    const database = postgres().createDatabase()
    const one = await serve({ database, keySecret: '0123456789abcdef' })
    const other = await serveSettings({ database, keySecret: 'fedcba9876543210' })
    await logIn(one, ['ann'])
    await logIn(other, ['bob'])
    for (const node of [one, other]) await counted(node, 16)
    expect(await one.get('/readyz')).toMatchObject({ body: { status: 'ready' } })
    const { body } = await other.get('/readyz')
    expect(body).toMatchObject({ status: 'degraded', reasons: [expect.stringContaining('--key-secret differs')] })
  })
})

describe('the event stream', () => {
  /** Reads until `count` events came. */
  async function events(node: Client, query: string, count: number, then: () => Promise<void> = async () => {}) {
    const abort = new AbortController()
    onTestFinished(() => abort.abort())
    const headers = { authorization: `Bearer ${ADMIN_TOKEN}` }
    const response = await fetch(`${node.address}${STREAM}?${query}`, { headers, signal: abort.signal })
    expect(response.headers.get('content-type')).toContain('text/event-stream')
    const found: Record<string, unknown>[] = []
    let text = ''
    let started = false
    for await (const chunk of (response.body as ReadableStream<Uint8Array>).pipeThrough(new TextDecoderStream())) {
      text += chunk
      if (!started) {
        started = true
        await then()
      }
      for (const [, data = ''] of text.matchAll(/^event: decision\nid: .*\ndata: (.*)\n\n/gm))
        found.push(JSON.parse(data))
      text = text.slice(text.lastIndexOf('\n\n') + 2)
      if (found.length >= count) break
    }
    abort.abort()
    return found
  }

  test('sends the newest stored events, then new ones, each once and filtered', async () => {
    const node = await serve()
    await logIn(node, ['ann', 'bob'])
    await counted(node, 16)
    const newest = await events(node, 'last=3&client=ann&result=refused', 3)
    expect(newest).toHaveLength(3)
    expect(newest.every(({ client_id, allowed }) => client_id === 'ann' && allowed === false)).toBe(true)
    const live = await events(node, 'result=refused&rule=login', 6, () => logIn(node, ['cyd', 'dan']))
    expect(live.map(({ client_id }) => client_id).sort()).toEqual(['cyd', 'cyd', 'cyd', 'dan', 'dan', 'dan'])
    expect(new Set([...newest, ...live].map(({ event_id }) => event_id)).size).toBe(9)
  })

  test('has a bounded number of subscribers, and ends when the node closes', async () => {
    const node = (await serve()) as Client & { close(): Promise<void> }
    const headersOf = (token: string) => ({ headers: { authorization: `Bearer ${token}` } })
    const openFive = (token: string) =>
      Promise.all(Array.from({ length: 5 }, () => fetch(node.address + STREAM, headersOf(token))))
    const viewers = await Promise.all(['a', 'b', 'c', 'd'].map((name) => viewerOf(node, name)))
    const [greedy = '', ...others] = viewers
    const open = await openFive(greedy)
    for (const path of [STREAM, '/api/v1/fleet/stream']) {
      const { status, body } = await node.get(path, greedy)
      expect([status, body]).toMatchObject([429, { code: 'TOO_MANY_STREAMS_OF_TOKEN' }])
      expect(body.detail).toMatch(/has 5 streams open on this process/)
    }
    for (const other of others) open.push(...(await openFive(other)))
    expect(open.map(({ status }) => status)).toEqual(open.map(() => 200))
    expect(open).toHaveLength(20)
    expect(await node.get(STREAM, ADMIN_TOKEN)).toMatchObject({ status: 503, body: { code: 'TOO_MANY_STREAMS' } })
    await open[0]?.body?.cancel()
    await vi.waitFor(async () => {
      const again = await fetch(node.address + STREAM, headersOf(greedy))
      expect(again.status, 'a closed stream makes room').toBe(200)
      open[0] = again
    }, PATIENTLY)
    await open[0]?.body?.cancel()
    const [rest] = await Promise.all([Promise.all(open.slice(1).map((response) => response.text())), node.close()])
    expect(rest).toHaveLength(19)
  })
})

describe('sluice events', () => {
  test('tail, top and query print tables, and JSON for programs', async () => {
    const node = await serve()
    await logIn(node, ['ann\u202e', 'bob'])
    await counted(node, 16)
    const run = (...args: string[]) => sluice(args, { env: { SLUICE_URL: node.address, SLUICE_TOKEN: ADMIN_TOKEN } })
    const tail = await run('events', 'tail', '--result', 'refused', '--count', '6', '--last', '6')
    expect(tail).toMatchObject({ code: 0, told: '' })
    expect(tail.out).not.toContain('\u202e')
    expect(tail.out).toMatch(/^\S+Z {2}refused {2}bob POST \/login {2}login\/default 0\/5 left, retry in \d+ ms$/m)
    const json = await run('events', 'tail', '--client', 'bob', '--count', '2', '--last', '8', '--json')
    expect(
      json.out
        .trimEnd()
        .split('\n')
        .map((line) => JSON.parse(line)),
    ).toMatchObject([{ client_id: 'bob' }, {}])
    const top = await run('events', 'top', '--by', 'refused')
    expect(top.out).toMatch(/^ {2}CLIENT +KIND +REFUSED +ALLOWED +NEAR LIMIT\n/)
    expect(top.out).toMatch(/^ {2}bob +user +3 +5 +2$/m)
    const byRule = await run('events', 'top', '--rule', 'login')
    expect(byRule.out).toMatch(/^ {2}CLIENT +KIND +REFUSED\n/)
    expect(byRule.out).toMatch(/^ {2}bob +user +3$/m)
    expect((await run('events', 'top', '--rule', 'keys')).told).toBe('no decisions found\n')
    expect((await run('events', 'top', '--of', 'rule', '--from', '15m')).out).toMatch(/^ {2}login +6 +10$/m)
    expect((await run('events', 'query', '--by', 'rule')).out).toMatch(/Z +login +10 +6$/m)
    expect(JSON.parse((await run('events', 'query', '--json')).out)).toMatchObject({ series: [{ name: 'all' }] })
    expect(await run('events', 'query', '--rule', 'other')).toEqual({ code: 0, out: '', told: 'no decisions found\n' })
    expect(await run('events', 'query', '--step', 'x')).toMatchObject({
      code: 2,
      told: expect.stringContaining('step'),
    })
    await node.check({ client_id: 'zoe', endpoint: '/other', request_id: 'given back' })
    await node.post(REFUND, { request_id: 'given back' })
    await vi.waitFor(async () => {
      const newest = await run('events', 'tail', '--last', '1', '--count', '1')
      expect(newest.out).toMatch(/^\S+Z {2}refund {3}request given back$/m)
    }, 20_000)
    const denied = await sluice(['events', 'tail'], { env: { SLUICE_URL: node.address } })
    expect(denied).toMatchObject({ code: 4, told: expect.stringContaining('--token') })
  })
})

function filesIn(folder: string): string[] {
  return readdirSync(folder).flatMap((name) => {
    const path = join(folder, name)
    return statSync(path).isDirectory() ? filesIn(path) : [path]
  })
}
