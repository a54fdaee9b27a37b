import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { Redis } from 'ioredis'
import { REASONS } from 'sluice'
import { startRedis } from 'sluice/testing'
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest'
import { DECISIONS_PATH } from '../src/http/routes/decisions.ts'
import { EXPLAIN_PATH } from '../src/http/routes/explain.ts'
import { RESET_PATH } from '../src/http/routes/reset.ts'
import { keyHash } from '../src/log.ts'
import type { Settings } from '../src/settings/settings.ts'
import { sluice } from './cli/terminal.ts'
import { temporaryFolder } from './databases.ts'
import { ADMIN_TOKEN, type App, CHECK, serveApp, serveFile } from './service.ts'

const hash = keyHash('a secret of tests')
const TWO = { rule_id: 'two', name: 'Two', scope: 'per_user', limit: 2, window_seconds: 60 }
const POSTS = { rule_id: 'posts', method: 'POST', limit: 5, window_seconds: 60 }

describe(`POST ${EXPLAIN_PATH}`, () => {
  const explain = ({ post }: App, body: object) => post(EXPLAIN_PATH, body, ADMIN_TOKEN)

  test('reports what would happen, which rules apply with their numbers, and why the others do not', async () => {
    const app = await serveApp([POSTS, TWO, { ...TWO, rule_id: 'off', enabled: false }])
    await app.check({ client_id: 'alice' })
    const { status, body } = await explain(app, { client_id: 'alice', method: 'GET' })
    expect(status).toBe(200)
    expect(body).toEqual({
      answer: { allowed: true, remaining: 1, limit: 2, reset_at: expect.any(Number) },
      source: 'store',
      version: 1,
      rules: [
        {
          ...{ rule_id: 'two', applies: true, detail: expect.stringMatching(/^it applies: 2 per .* in the worst/) },
          limits: [expect.objectContaining({ name: 'default', remaining: 1, limit: 2, allowed: true })],
        },
        {
          ...{ rule_id: 'posts', applies: false, reason: 'method' },
          detail: 'it is for POST, and the request has GET',
        },
        { rule_id: 'off', applies: false, reason: 'disabled', detail: 'enabled is false' },
      ],
      left_out: 0,
      exceptions: [],
    })
  })

  test('consumes nothing, and is not counted', async () => {
    const app = await serveApp([TWO])
    for (let asked = 0; asked < 5; asked += 1) await explain(app, { client_id: 'alice' })
    expect(await app.check({ client_id: 'alice' })).toMatchObject({ remaining: 1 })
    expect(String((await app.get('/metrics')).body.text)).toContain(
      'sluice_checks_total{rule="two",result="allowed"} 1',
    )
  })

  test('a refusal is reported as a check would report it', async () => {
    const app = await serveApp([{ ...TWO, limit: 0 }])
    const { body } = await explain(app, { client_id: 'alice' })
    expect(body.answer).toMatchObject({ allowed: false, rule_id: 'two', violated_rule: 'Two', retry_after: null })
  })

  test('of thousands of rules it reports the hundred closest', async () => {
    const far = Array.from({ length: 2000 }, (_, index) => ({ ...TWO, rule_id: `far${index}`, endpoint_pattern: '/x' }))
    const app = await serveApp([...far, POSTS, TWO])
    const { body } = await explain(app, { client_id: 'alice' })
    const ids = (body.rules as { rule_id: string }[]).map(({ rule_id }) => rule_id)
    expect(ids).toHaveLength(101)
    expect(ids.slice(0, 3)).toEqual(['two', 'posts', 'far0'])
    expect(body.left_out).toBe(1901)
  })

  test('every reason is in http-api.md', () => {
    const page = readFileSync(new URL('../../../docs/reference/http-api.md', import.meta.url), 'utf8')
    const [table = ''] = /\| `reason` \| the rule does not apply[\s\S]*?\n\n/.exec(page) ?? []
    const told = table
      .split('\n')
      .slice(2)
      .flatMap((line) => [...(line.split('|')[1]?.matchAll(/`(\w+)`/g) ?? [])])
    expect(told.map(([, reason]) => reason)).toEqual([...REASONS])
  })

  test('accepts the body of a check', async () => {
    const app = await serveApp([TWO])
    expect((await explain(app, { client_idd: 'x' })).body.detail).toBe(
      'client_idd: unknown field; did you mean "client_id"?',
    )
    expect((await explain(app, { dry_run: true })).body).toMatchObject({ status: 400, code: 'REQUEST_INVALID' })
    expect((await explain(app, { ip_address: 'x' })).body).toMatchObject({ errors: [{ field: 'ip_address' }] })
  })
})

describe('an explanation from a stored hash, with Redis', () => {
  const KEY = 'k_live_"quoted" 42'
  const BY_KEY = { rule_id: 'by_key', scope: 'per_api_key', limit: 2, window_seconds: 3600, consistency: 'strict' }
  const OTHERS = { ...BY_KEY, rule_id: 'others', when: { api_key: ['somebody'] } }
  const NOT_IT = { ...BY_KEY, rule_id: 'not_it', when: { api_key: { not: [KEY] } } }
  const secret = 'a key secret of tests'
  const hashed = (fact: string, value: string) => `hmac:${keyHash(secret)(fact, value)}`
  let redis: Awaited<ReturnType<typeof startRedis>>
  let settings: Partial<Settings>

  beforeAll(async () => {
    redis = await startRedis()
    settings = { redis: redis.url, keySecret: secret, storeDeadlineMs: 10_000 }
  })
  afterAll(() => redis.stop())

  const serve = (more: Partial<Settings> = {}) => {
    const dataDir = temporaryFolder()
    const eventsSinks = [{ kind: 'jsonl', target: join(dataDir, 'events.jsonl') }] as const
    return serveFile(JSON.stringify([BY_KEY, OTHERS, NOT_IT]), { ...settings, dataDir, eventsSinks, ...more })
  }
  const explained = async (api_key: string, node: Pick<App, 'post'>) =>
    (await node.post(EXPLAIN_PATH, { api_key }, ADMIN_TOKEN)) as Awaited<ReturnType<App['post']>>

  test('describes the bucket of the key on every node, and never contains the key', async () => {
    const [one, other] = [await serve(), await serve()]
    for (let asked = 0; asked < 3; asked += 1) await one.check({ api_key: KEY })
    for (const node of [one, other]) {
      const { body } = await vi.waitFor(async () => {
        const answer = await explained(hashed('api_key', KEY), node)
        expect(answer.status).toBe(200)
        return answer
      }, 20_000)
      expect(body.answer).toMatchObject({ allowed: false, remaining: 0, limit: 2 })
      expect(body.rules).toMatchObject([
        { rule_id: 'by_key', applies: true },
        { rule_id: 'others', reason: 'when', fact: 'api_key' },
        { rule_id: 'not_it', reason: 'when', fact: 'api_key' },
      ])
      expect(JSON.stringify(body)).toContain(hashed('api_key', KEY))
      expect(JSON.stringify(body)).not.toContain('quoted')
    }
    const client = new Redis(redis.url)
    const names = await client.keys('sl:note:client-key:*')
    const stored = await client.mget(names)
    client.disconnect()
    expect(names).toHaveLength(1)
    for (const text of [...names, ...stored]) {
      expect(`${text} ${Buffer.from(text ?? '', 'base64')}`, 'encrypted').not.toContain('quoted')
    }
  })

  test('is KEY_UNKNOWN, not the full bucket of the text, for any other hash', async () => {
    const node = await serve()
    const { status, body } = await explained(hashed('api_key', 'never sent'), node)
    expect([status, body.code]).toEqual([404, 'KEY_UNKNOWN'])
    expect(body.errors).toMatchObject([{ field: 'api_key', fix: expect.stringContaining('give the key itself') }])
    const plain = await explained('hmac of nothing', node)
    expect(plain.body.answer, 'a plain key is explained as ever').toMatchObject({ allowed: true, remaining: 2 })
    for (const key of ['hmac:abc', `${hashed('api_key', KEY)}0`, `${hashed('api_key', KEY)}.${'0'.repeat(16)}`]) {
      const { body } = await explained(key, node)
      expect(body.answer, 'a key that only looks like a hash').toMatchObject({ allowed: true, remaining: 2 })
    }
  })

  test('needs the role that reads events: a caller of checks learns nothing', async () => {
    const node = await serve()
    expect(await node.post(EXPLAIN_PATH, { api_key: hashed('api_key', KEY) })).toMatchObject({ status: 401 })
  })

  test('says that on_fail answers while Redis is frozen', async () => {
    const node = await serve({ storeDeadlineMs: 50 })
    process.kill(redis.pid, 'SIGSTOP')
    try {
      const { body } = await explained('frozen', node)
      expect(body).toMatchObject({ policy_reason: expect.any(String) })
      const env = { SLUICE_URL: node.address, SLUICE_TOKEN: ADMIN_TOKEN }
      const { out } = await sluice(['explain', '--api-key', 'frozen'], { env })
      expect(out).toMatch(/on_fail decides, and what is left is unknown/)
    } finally {
      process.kill(redis.pid, 'SIGCONT')
    }
    await vi.waitFor(async () => expect((await explained('frozen', node)).body.policy_reason).toBeUndefined(), 20_000)
  })
})

describe(`GET ${DECISIONS_PATH}`, () => {
  const find = ({ get }: App, id: unknown) => get(`${DECISIONS_PATH}/${id}`, ADMIN_TOKEN)
  const list = async ({ get }: App, query = '') =>
    (await get(DECISIONS_PATH + query, ADMIN_TOKEN)).body.decisions as Record<string, unknown>[]

  test('a refusal is explained by the id that the client received', async () => {
    const app = await serveApp([{ ...TWO, limit: 1 }])
    const request = { client_id: 'alice', method: 'GET', endpoint: '/a' }
    await app.check(request)
    app.clock.advanceUs(1_000_000)
    const { request_id } = await app.check(request)
    const { status, body } = await find(app, request_id)
    expect(status).toBe(200)
    expect(body).toMatchObject({
      ...{ request_id, allowed: false, rule_id: 'two', version: 1, source: 'store' },
      ...{ method: 'GET', endpoint: '/a', limit: 1, remaining: 0, retry_after_ms: 59_000 },
      at: new Date(app.clock.nowUs() / 1000).toISOString(),
      key_hash: hash('user', 'alice'),
      limits: [{ rule_id: 'two', short: 'now' }],
    })
    expect(JSON.stringify(body)).not.toContain('alice')
  })

  test('so is an admission with a request_id, with the numbers at the time of the decision', async () => {
    const app = await serveApp([TWO])
    await app.check({ client_id: 'alice', request_id: 'order 17/a' })
    await app.check({ client_id: 'alice' })
    expect(await find(app, encodeURIComponent('order 17/a'))).toMatchObject({
      status: 200,
      body: { allowed: true, remaining: 1, key_hash: hash('user', 'alice') },
    })
  })

  test('an id may be as long as that of a check', async () => {
    const app = await serveApp([TWO])
    const request_id = 'é/'.repeat(512)
    await app.check({ client_id: 'alice', request_id })
    expect((await find(app, encodeURIComponent(request_id))).body).toMatchObject({ request_id })
  })

  test('a reused id refers to the newest decision', async () => {
    const app = await serveApp([{ ...TWO, limit: 1 }])
    for (const allowed of [true, false]) {
      await app.check({ client_id: 'alice', request_id: 'again' })
      expect((await find(app, 'again')).body).toMatchObject({ allowed })
      app.clock.advanceUs(1)
    }
  })

  test('the list is newest first: every refusal, and one in 128 admissions without a request_id', async () => {
    const app = await serveApp([{ ...TWO, limit: 300 }])
    for (let sent = 0; sent < 302; sent += 1) {
      await app.check({ client_id: 'alice' })
      app.clock.advanceUs(1)
    }
    expect((await list(app)).map(({ allowed, remaining }) => `${allowed} ${remaining}`)).toEqual([
      ...['false 0', 'false 0', `true ${300 - 256}`, `true ${300 - 128}`],
    ])
    expect(await list(app, '?limit=1')).toHaveLength(1)
  })

  test('an unknown id is a 404 that lists the possible reasons', async () => {
    const app = await serveApp([TWO])
    expect(await find(app, 'unknown')).toMatchObject({ status: 404, body: { code: 'DECISION_UNKNOWN' } })
  })

  test('a dry run is not recorded, and a decision without a matching rule has no key', async () => {
    const app = await serveApp([TWO])
    await app.check({ client_id: 'alice', dry_run: true, request_id: 'dry' })
    expect((await find(app, 'dry')).status).toBe(404)
    await app.check({ request_id: 'free' })
    expect((await find(app, 'free')).body).toMatchObject({ allowed: true, rule_id: null, key_hash: null, limits: [] })
  })
})

describe(`POST ${RESET_PATH}`, () => {
  const reset = ({ post }: App, body: unknown) => post(RESET_PATH, body, ADMIN_TOKEN)

  test('resets one key and no other', async () => {
    const app = await serveApp([{ ...TWO, limit: 1 }])
    for (const client_id of ['alice', 'bob']) await app.check({ client_id })
    expect(await reset(app, { rule_id: 'two', key: 'alice' })).toMatchObject({ status: 200, body: { reset: true } })
    expect(await app.check({ client_id: 'alice' })).toMatchObject({ allowed: true })
    expect(await app.check({ client_id: 'bob' })).toMatchObject({ allowed: false })
  })

  test('accepts the facts of a composite key by name', async () => {
    const app = await serveApp([{ ...TWO, scope: ['user', 'tenant'], limit: 1 }])
    const request = { client_id: 'alice', tenant: 'acme' }
    await app.check(request)
    await reset(app, { rule_id: 'two', key: { user: 'alice', tenant: 'acme' } })
    expect(await app.check(request)).toMatchObject({ allowed: true })
  })

  test.each([
    [{ rule_id: 'none', key: 'a' }, 'rule_id', 'give the id of an active rule'],
    [{ rule_id: 'two', key: { tenant: 'a' } }, 'key', 'give every fact of the key: user'],
    [{ rule_id: 'two' }, 'key', /give a string of at most 1024/],
    [{ rule_id: 'two', key: 5 }, 'key', /give a string of at most 1024/],
    [{ rule_id: 'two', key: { user: 5 } }, 'key.user', 'give a string'],
  ])('%j is a 400', async (body, field, fix) => {
    const answer = await reset(await serveApp([TWO]), body)
    expect(answer).toMatchObject({ status: 400, body: { code: 'REQUEST_INVALID' } })
    const [first] = answer.body.errors as { field: string; fix: string }[]
    expect(first?.field).toBe(field)
    expect(first?.fix).toMatch(fix)
  })
})

test('neither explanations nor the decision history change the answer of a check', async () => {
  const app = await serveApp([TWO])
  const { body } = await app.post(CHECK, { client_id: 'alice' })
  expect(Object.keys(body)).toEqual(['allowed', 'remaining', 'limit', 'reset_at'])
})
