import { Redis } from 'ioredis'
import { startRedis } from 'sluice/testing'
import { describe, expect, onTestFinished, test, vi } from 'vitest'
import { DRILL_PATH } from '../src/http/routes/drill.ts'
import { RESET_PATH } from '../src/http/routes/reset.ts'
import { BATCH, CHECK, REFUND, serveFile } from './service.ts'

const ADMIN = 'token-of-the-admins'

const RULES = `
- { rule_id: ten, limit: 10, window: 1d, scope: per_user, algorithm: fixed_window }
- { rule_id: exports, limit: 1, window: 5m, scope: per_user, algorithm: concurrency, endpoint_pattern: /exports }
`

/** The machine may be busy: these tests check the replies of Redis, not its latency. */
const PATIENT = { storeDeadlineMs: 5000 }

async function freshRedis() {
  const redis = await startRedis()
  onTestFinished(() => redis.stop())
  return redis
}

describe('on Redis', () => {
  test('two nodes share one limit: together they admit exactly that many', async () => {
    const { url } = await freshRedis()
    const settings = { ...PATIENT, redis: url }
    const nodes = [await serveFile(RULES, settings), await serveFile(RULES, { ...settings, redisConnections: 2 })]
    const answers = await Promise.all(
      Array.from({ length: 40 }, (_, index) => nodes[index % 2]?.check({ client_id: 'a' }) ?? {}),
    )
    expect(answers.filter((answer) => 'allowed' in answer && answer.allowed)).toHaveLength(10)
    expect(await nodes[0]?.get('/readyz')).toMatchObject({ status: 200, body: { status: 'ready', store: 'redis' } })
  })

  test('a batch is one round trip, its answers are in order, and refunds and dry runs work', async () => {
    const { url } = await freshRedis()
    const { post, check, get } = await serveFile(RULES, { ...PATIENT, redis: url })
    const checks = Array.from({ length: 12 }, () => ({ client_id: 'a', request_id: 'r' }))
    const { body } = await post(BATCH, { checks })
    const remaining = (body.results as { remaining: number }[]).map((result) => result.remaining)
    expect(remaining).toEqual([9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 0, 0])
    expect(await post(REFUND, { request_id: 'r' })).toMatchObject({ status: 200 })
    expect(await check({ client_id: 'a', dry_run: true })).toMatchObject({ allowed: true, remaining: 1 })
    const text = String((await get('/metrics')).body.text)
    expect(text).toContain('sluice_store_batch_requests_bucket{le="10"} 2\n') // the refund, the dry run
    expect(text).toContain('sluice_store_batch_requests_bucket{le="20"} 3\n') // and the twelve
    expect(text).toContain('sluice_store_duration_seconds_count{store="default",server="all"} 3\n')
  })

  test('a scrape queries Redis, but does not wait for a frozen one', async () => {
    const redis = await freshRedis()
    const { check, get } = await serveFile(RULES, { ...PATIENT, redis: redis.url })
    const keys = async () => {
      const text = String((await get('/metrics')).body.text)
      return Number(/^sluice_redis_keys\{store="default"\} (\d+)$/m.exec(text)?.[1])
    }
    await Promise.all(Array.from({ length: 3 }, (_, user) => check({ client_id: `u${user}` })))
    const known = await keys()
    expect(known, 'at the very first scrape').toBeGreaterThanOrEqual(3)
    process.kill(redis.pid, 'SIGSTOP')
    for (let scraped = 0; scraped < 4; scraped += 1) expect(await keys(), 'the last known value').toBe(known)
    process.kill(redis.pid, 'SIGCONT')
  })

  test('a permit is released by its id', async () => {
    const { url } = await freshRedis()
    const { check, post } = await serveFile(RULES, { ...PATIENT, redis: url })
    const request = { client_id: 'a', endpoint: '/exports' }
    const { request_id } = await check(request)
    expect(await check(request)).toMatchObject({ allowed: false, rule_id: 'exports' })
    expect(await post(REFUND, { request_id, units: 0 })).toMatchObject({ status: 200 })
    expect(await check(request)).toMatchObject({ allowed: true })
  })

  test('a value that cannot be read is a 503 for that client alone', async () => {
    const { url } = await freshRedis()
    const { check, post, get } = await serveFile(RULES, { ...PATIENT, redis: url })
    await check({ client_id: 'a' })
    const client = new Redis(url)
    const [key = ''] = await client.keys('*user:a*')
    await client.set(key, 'garbage')
    client.disconnect()
    const { status, body } = await post(CHECK, { client_id: 'a' })
    expect({ status, body }).toMatchObject({ status: 503, body: { code: 'STORE_CORRUPT' } })
    const reasons = [expect.stringContaining('store: STORE_CORRUPT, redis has values that cannot be read')]
    expect((await get('/readyz')).body).toMatchObject({ status: 'degraded', reasons })
    expect(await check({ client_id: 'b' })).toMatchObject({ allowed: true, remaining: 9 })
  })
})

const FAILING = `
- { rule_id: open, limit: 100, window: 1m, scope: per_user, endpoint_pattern: /open }
- { rule_id: closed, limit: 100, window: 1m, scope: per_user, endpoint_pattern: /closed, on_fail: closed }
- { rule_id: local, limit: 10, window: 1d, scope: per_user, endpoint_pattern: /local, on_fail: local }
`

describe('while Redis is down', () => {
  test('every check is answered by on_fail, and the node is degraded until Redis is back', async () => {
    const redis = await freshRedis()
    const { get, check, logged } = await serveFile(FAILING, { redis: redis.url, nodes: 5 })
    const ask = (endpoint: string) => check({ client_id: 'a', endpoint, detail: true })
    await vi.waitFor(async () => expect(await ask('/open')).toMatchObject({ allowed: true, source: 'store' }))
    await redis.stop()
    await vi.waitFor(async () => expect(await ask('/closed')).toMatchObject({ allowed: false, source: 'policy' }))
    expect(await ask('/open')).toMatchObject({ allowed: true, source: 'policy' })
    const local = [await ask('/local'), await ask('/local'), await ask('/local')]
    expect(local.map(({ allowed, source }) => [allowed, source])).toEqual([
      [true, 'local'],
      [true, 'local'],
      [false, 'local'],
    ]) // a fifth of ten
    const reasons = ['store: STORE_UNAVAILABLE']
    expect(await get('/readyz')).toMatchObject({ status: 200, body: { status: 'degraded', reasons } })
    const text = String((await get('/metrics')).body.text)
    expect(text).toMatch(/sluice_store_errors_total\{store="default",server="all",code="STORE_UNAVAILABLE"\} [1-9]/)
    expect(text).toMatch(/sluice_decisions_total\{source="policy"\} [1-9]/)

    const again = await startRedis(['--port', String(redis.port)])
    onTestFinished(() => again.stop())
    await vi.waitFor(async () => expect((await get('/readyz')).body).toMatchObject({ status: 'ready' }), {
      timeout: 20_000,
    })
    await vi.waitFor(async () => expect(await ask('/closed')).toMatchObject({ allowed: true, source: 'store' }))
    const events = logged.map(({ event }) => event)
    expect(events[0]).toBe('store_unavailable')
    expect(events).toContain('store_available')
  })

  test('a reset is answered with 503 while Redis is frozen, and works afterwards', async () => {
    const redis = await freshRedis()
    const { check, send } = await serveFile(FAILING, { redis: redis.url, storeDeadlineMs: 1000, adminToken: ADMIN })
    const reset = () =>
      send(RESET_PATH, {
        method: 'POST',
        headers: { 'content-type': 'application/json', authorization: `Bearer ${ADMIN}` },
        body: JSON.stringify({ rule_id: 'open', key: 'a' }),
      })
    await check({ client_id: 'a', endpoint: '/open' })
    process.kill(redis.pid, 'SIGSTOP')
    try {
      expect(await reset()).toMatchObject({ status: 503, body: { code: 'STORE_UNAVAILABLE' } })
    } finally {
      process.kill(redis.pid, 'SIGCONT')
    }
    await vi.waitFor(async () => expect(await reset()).toMatchObject({ status: 200 }), { timeout: 20_000 })
  })

  test('a node starts anyway', async () => {
    const redis = await freshRedis()
    await redis.stop()
    const { get, check } = await serveFile(FAILING, { redis: redis.url })
    expect(await get('/readyz')).toMatchObject({ status: 200, body: { status: 'degraded' } })
    expect(await check({ client_id: 'a', endpoint: '/open' })).toMatchObject({ allowed: true, source: 'policy' })
  })
})

describe('a drill', () => {
  const adminToken = ADMIN
  const drill = (seconds: number, token = adminToken) => ({
    method: 'POST',
    headers: { 'content-type': 'application/json', authorization: `Bearer ${token}` },
    body: JSON.stringify({ seconds }),
  })

  test('opens the circuit breaker, reports it, and ends', async () => {
    const { url } = await freshRedis()
    const { check, send, get, logged } = await serveFile(FAILING, { redis: url, adminToken })
    const ask = () => check({ client_id: 'a', endpoint: '/closed', detail: true })
    await vi.waitFor(async () => expect(await ask()).toMatchObject({ allowed: true, source: 'store' }))
    expect(await send(DRILL_PATH, drill(30))).toMatchObject({ status: 200, body: { seconds: 30 } })
    expect(await ask()).toMatchObject({ allowed: false, source: 'policy' })
    expect((await get('/readyz')).body).toMatchObject({ status: 'degraded' })
    expect(await send(DRILL_PATH, drill(0))).toMatchObject({ status: 200 })
    await vi.waitFor(async () => expect(await ask()).toMatchObject({ allowed: true, source: 'store' }))
    expect(logged.map(({ event }) => event)).toContain('drill_started')
  })

  test('requires a valid token, and Redis', async () => {
    const { url } = await freshRedis()
    const onRedis = await serveFile(FAILING, { redis: url, adminToken })
    expect(await onRedis.send(DRILL_PATH, drill(30, 'another'))).toMatchObject({ body: { code: 'UNAUTHORIZED' } })
    const inMemory = await serveFile(FAILING, { adminToken })
    expect(await inMemory.send(DRILL_PATH, drill(30))).toMatchObject({ body: { code: 'NOTHING_TO_DRILL' } })
  })
})
