// Exceptions reach every node and worker within a second, survive restarts, and scale to their caps.

import { startRedis } from 'sluice/testing'
import { describe, expect, onTestFinished, test, vi } from 'vitest'
import { openDatabase } from '../../src/db/open-database.ts'
import { deleteOldOverrides } from '../../src/exceptions/override-rows.ts'
import { OVERRIDES_MAX } from '../../src/exceptions/override-table.ts'
import { BYPASS_PATH } from '../../src/http/routes/bypass-tokens.ts'
import { INCIDENT_PATH } from '../../src/http/routes/incident.ts'
import { OVERRIDES_PATH } from '../../src/http/routes/overrides.ts'
import { SIGNALS_PATH } from '../../src/http/routes/signals.ts'
import { temporaryFolder, usePostgres } from '../databases.ts'
import { type Echoed, echo, linesOf, openGateway, startUpstream } from '../gateway/setup.ts'
import { start } from '../process.ts'
import { ADMIN_TOKEN, type Client, clientOf, RULE_SET, serveSettings } from '../service.ts'
import { withinRunTime } from '../stalls.ts'

const RULES = [
  {
    ...{ rule_id: 'two', scope: 'per_user', limit: 2, window: '1d', consistency: 'strict' },
    on_signal: { abuse: { factor: 0.5 } },
  },
]
/** The promise. Nodes query the database for changes every 10 s, so it holds only if they are notified. */
const PROMISE_MS = 1000
const PATIENTLY = { timeout: 20_000, interval: 50 }
const BAN = { ban: true, forever: true, reason: 'test' }

const postgres = usePostgres()

async function redisUrl(): Promise<string> {
  const redis = await startRedis()
  onTestFinished(() => redis.stop())
  return redis.url
}

type Node = Omit<Client, 'logged'> & { close?(): Promise<void> }

async function putRules({ send }: Node): Promise<void> {
  const headers = { authorization: `Bearer ${ADMIN_TOKEN}`, 'content-type': 'application/json' }
  const { status } = await send(RULE_SET, { method: 'PUT', headers, body: JSON.stringify({ rules: RULES }) })
  expect(status).toBe(200)
}

async function post({ post }: Node, path: string, body: object): Promise<Record<string, unknown>> {
  const { status, body: answer } = await post(path, body, ADMIN_TOKEN)
  expect([status, answer]).toEqual([expect.toSatisfy((code: number) => code < 300), answer])
  return answer
}

async function twoNodes(): Promise<[Node, Node]> {
  const shared = { database: postgres().createDatabase(), redis: await redisUrl(), storeDeadlineMs: 5000 }
  const one = await serveSettings({ ...shared, dataDir: temporaryFolder() })
  const other = await serveSettings({ ...shared, dataDir: temporaryFolder() })
  await putRules(one)
  await vi.waitFor(async () => expect((await other.check({ client_id: 'x', dry_run: true })).limit).toBe(2), PATIENTLY)
  return [one, other]
}

describe('two nodes with PostgreSQL and Redis', () => {
  test('every exception is in force on the other node within a second, and ends as fast', async () => {
    const [one, other] = await twoNodes()
    const allowed = async (client_id: string, more = {}) => (await other.check({ client_id, ...more })).allowed
    const limit = async (client_id: string) => (await other.check({ client_id, dry_run: true })).limit

    const { override_id: id } = await post(one, OVERRIDES_PATH, { key: 'user:eve', ...BAN })
    await withinRunTime(PROMISE_MS, async () => expect(await allowed('eve')).toBe(false))
    const headers = { authorization: `Bearer ${ADMIN_TOKEN}` }
    expect((await one.send(`${OVERRIDES_PATH}/${id}`, { method: 'DELETE', headers })).status).toBe(204)
    await withinRunTime(PROMISE_MS, async () => expect(await allowed('eve')).toBe(true))

    const bypass = { name: 'test', expires_in: '1h', limit_per_minute: 1000 }
    const { token: bypass_token } = await post(one, BYPASS_PATH, bypass)
    for (let used = 0; used < 3; used += 1) await allowed('ann')
    await withinRunTime(PROMISE_MS, async () => expect(await allowed('ann', { bypass_token })).toBe(true))

    await post(one, SIGNALS_PATH, { key: 'user:bob', kind: 'abuse', severity: 'low', ttl_seconds: 60 })
    await withinRunTime(PROMISE_MS, async () => expect(await limit('bob')).toBe(1))

    await post(one, `${INCIDENT_PATH}/factor`, { factor: 10, expires_in: '1h', reason: 'test' })
    await withinRunTime(PROMISE_MS, async () => expect(await limit('cid')).toBe(20))
  })

  test('the limit of a bypass token counts over both nodes', async () => {
    const [one, other] = await twoNodes()
    const { token: bypass_token } = await post(one, BYPASS_PATH, { name: 't', expires_in: '1h', limit_per_minute: 6 })
    const passes = async ({ check }: Node) => (await check({ client_id: 'ann', bypass_token })).allowed
    await vi.waitFor(async () => expect(await passes(other)).toBe(true), PATIENTLY)
    let admitted = 0
    for (let sent = 0; sent < 10; sent += 1) {
      for (const node of [one, other]) if (await passes(node)) admitted += 1
    }
    expect(admitted).toBeLessThanOrEqual(6 + 2)
  })

  test('a node that starts while the database is down uses its copies, and catches up later', async () => {
    const database = postgres().createDatabase()
    const settings = { database, dataDir: temporaryFolder() }
    const first = await serveSettings(settings)
    await putRules(first)
    await post(first, OVERRIDES_PATH, { key: 'user:eve', ...BAN })
    const { token: bypass_token } = await post(first, BYPASS_PATH, {
      ...{ name: 't', expires_in: '1h', limit_per_minute: 1000 },
    })
    await post(first, `${INCIDENT_PATH}/factor`, { factor: 0.5, expires_in: '1h', reason: 'test' })
    await first.close()
    await postgres().down()
    onTestFinished(() => postgres().up())
    const again = await serveSettings(settings)
    expect((await again.check({ client_id: 'eve' })).allowed).toBe(false)
    expect((await again.check({ client_id: 'ann' })).limit).toBe(1)
    expect((await again.check({ client_id: 'ann', bypass_token })).allowed).toBe(true)
    expect((await again.post(OVERRIDES_PATH, { key: 'user:x', ...BAN }, ADMIN_TOKEN)).status).toBe(503)
    await postgres().up()
    await vi.waitFor(
      async () => expect((await again.post(OVERRIDES_PATH, { key: 'user:x', ...BAN }, ADMIN_TOKEN)).status).toBe(201),
      { timeout: 20_000, interval: 100 },
    )
    expect((await again.check({ client_id: 'x' })).allowed).toBe(false)
  })
})

describe('with --workers', () => {
  test('every worker applies an override, and uses of tokens add up', async () => {
    const shared = ['--database', postgres().createDatabase(), '--redis', await redisUrl()]
    const more = ['--workers', '2', '--admin-token', ADMIN_TOKEN, '--store-deadline-ms', '5000', '--drain-ms', '0']
    const { address } = await start([...shared, ...more])
    const node = clientOf(address)
    await putRules(node)
    const close = { 'content-type': 'application/json', connection: 'close' }
    const check = async (body: object) =>
      (await node.send('/api/v1/rate-limit/check', { method: 'POST', headers: close, body: JSON.stringify(body) })).body
    await post(node, OVERRIDES_PATH, { key: 'user:eve', ...BAN })
    await vi.waitFor(async () => {
      for (let sent = 0; sent < 10; sent += 1) expect((await check({ client_id: 'eve' })).allowed).toBe(false)
    }, PATIENTLY)
    const bypass = { name: 't', expires_in: '1h', limit_per_minute: 1000 }
    const { token: bypass_token } = await post(node, BYPASS_PATH, bypass)
    await vi.waitFor(async () => {
      for (let sent = 0; sent < 10; sent += 1)
        expect(await check({ client_id: 'ann', bypass_token, detail: true })).toHaveProperty('exceptions')
    }, PATIENTLY)
    await vi.waitFor(async () => {
      const { bypass_tokens: listed } = (await node.get(BYPASS_PATH, ADMIN_TOKEN)).body
      expect(listed).toMatchObject([{ uses: expect.toSatisfy((uses: number) => uses >= 10) }])
    }, PATIENTLY)
  })
})

describe('the gateway', () => {
  test('applies a bypass token of its header, and the upstream never sees it', async () => {
    const { url } = await startUpstream(echo)
    const settings = { upstream: url, database: postgres().createDatabase(), dataDir: temporaryFolder() }
    const gateway = await openGateway([], { ...settings, rules: undefined, adminToken: ADMIN_TOKEN })
    const node = clientOf(gateway.apiAddress)
    const rules = [{ rule_id: 'one', scope: 'per_ip', limit: 1, window: '1d' }]
    const headers = { authorization: `Bearer ${ADMIN_TOKEN}`, 'content-type': 'application/json' }
    await node.send(RULE_SET, { method: 'PUT', headers, body: JSON.stringify({ rules }) })
    const { token } = await post(node, BYPASS_PATH, { name: 't', expires_in: '1h', limit_per_minute: 1000 })
    const statuses: number[] = []
    for (const sent of [{}, {}, { 'x-sluice-bypass': String(token) }]) {
      const response = await fetch(gateway.address, { headers: sent })
      statuses.push(response.status)
      if (!response.ok) continue
      const { rawHeaders } = (await response.json()) as Echoed
      expect([linesOf(rawHeaders, 'x-sluice-bypass'), JSON.stringify(rawHeaders)]).toEqual([
        ...[[], expect.not.stringContaining(String(token))],
      ])
    }
    expect(statuses).toEqual([200, 429, 200])
  })
})

describe('100,000 overrides', () => {
  test('load, change, page, and stop at the cap; old rows are deleted', {
    timeout: 120_000,
  }, async () => {
    const settings = { database: postgres().createDatabase(), dataDir: temporaryFolder() }
    const first = await serveSettings(settings)
    await putRules(first)
    const database = await openDatabase(settings)
    onTestFinished(() => database.close())
    await database.query(
      `INSERT INTO overrides
         (override_id, revision, state, rule_id, fact, owner, slot, effect, reason, actor, created_at)
       SELECT 'ovr_' || lpad(to_hex(i), 24, '0'), i, 'active', 'two', 'user', 'user ' || i, 'limit ', '{"limit": 1}',
         'load', 'test', now() FROM generate_series(1, ${OVERRIDES_MAX - 1}) i`,
    )
    await database.query(`UPDATE override_revision SET revision = ${OVERRIDES_MAX}`)
    const node = await serveSettings({ ...settings, dataDir: temporaryFolder() })
    expect((await node.check({ client_id: 'user 50000' })).limit).toBe(1)
    await post(node, OVERRIDES_PATH, { key: 'user:eve', ...BAN })
    await vi.waitFor(async () => expect((await first.check({ client_id: 'eve' })).allowed).toBe(false), PATIENTLY)
    const full = await node.post(OVERRIDES_PATH, { key: 'user:mallory', ...BAN }, ADMIN_TOKEN)
    expect(full).toMatchObject({ status: 409, body: { code: 'TOO_MANY_OVERRIDES' } })
    const page = await node.get(`${OVERRIDES_PATH}?limit=1000`, ADMIN_TOKEN)
    expect(page.body.overrides).toHaveLength(1000)
    const one = await node.get(`${OVERRIDES_PATH}?key=user:user+77777`, ADMIN_TOKEN)
    expect(one.body.overrides).toHaveLength(1)

    await database.query("UPDATE overrides SET state = 'removed', removed_at = now() WHERE revision < 5000")
    expect(await deleteOldOverrides(database, new Date(4e12))).toBe(1000)
    const [row] = await database.query<{ purged: number }>('SELECT purged FROM override_revision')
    expect(row?.purged).toBeGreaterThan(0)
  })
})
