import { Redis } from 'ioredis'
import { startRedis } from 'sluice/testing'
import { describe, expect, onTestFinished, test, vi } from 'vitest'
import { BATCH, CHECK, REFUND, serveFile } from './service.ts'

const RULES = `
- { rule_id: ten, limit: 10, window: 1d, scope: per_user, algorithm: fixed_window }
- { rule_id: exports, limit: 1, window: 5m, scope: per_user, algorithm: concurrency, endpoint_pattern: /exports }
`

async function freshRedis() {
  const redis = await startRedis()
  onTestFinished(() => redis.stop())
  return redis
}

describe('on Redis', () => {
  test('two nodes share one limit: in total exactly as many are admitted', async () => {
    const { url } = await freshRedis()
    const nodes = [await serveFile(RULES, { redis: url }), await serveFile(RULES, { redis: url, redisConnections: 2 })]
    const answers = await Promise.all(
      Array.from({ length: 40 }, (_, index) => nodes[index % 2]?.check({ client_id: 'a' }) ?? {}),
    )
    expect(answers.filter((answer) => 'allowed' in answer && answer.allowed)).toHaveLength(10)
    expect(await nodes[0]?.get('/readyz')).toMatchObject({ status: 200, body: { status: 'ready', store: 'redis' } })
  })

  test('a batch is one round trip, its answers are in order, and refunds and dry runs work', async () => {
    const { url } = await freshRedis()
    const { post, check, get } = await serveFile(RULES, { redis: url })
    const checks = Array.from({ length: 12 }, () => ({ client_id: 'a', request_id: 'r' }))
    const { body } = await post(BATCH, { checks })
    const remaining = (body.results as { remaining: number }[]).map((result) => result.remaining)
    expect(remaining).toEqual([9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 0, 0])
    expect(await post(REFUND, { request_id: 'r' })).toMatchObject({ status: 200 })
    expect(await check({ client_id: 'a', dry_run: true })).toMatchObject({ allowed: true, remaining: 1 })
    const text = String((await get('/metrics')).body.text)
    expect(text).toContain('sluice_batch_takes_bucket{le="10"} 3\n') // the probe at start, the refund, the dry run
    expect(text).toContain('sluice_batch_takes_bucket{le="20"} 4\n') // and the twelve
    expect(text).toContain('sluice_store_seconds_count 4\n')
  })

  test('a permit is released by its id', async () => {
    const { url } = await freshRedis()
    const { check, post } = await serveFile(RULES, { redis: url })
    const request = { client_id: 'a', endpoint: '/exports' }
    const { request_id } = await check(request)
    expect(await check(request)).toMatchObject({ allowed: false, rule_id: 'exports' })
    expect(await post(REFUND, { request_id, units: 0 })).toMatchObject({ status: 200 })
    expect(await check(request)).toMatchObject({ allowed: true })
  })

  test('a value that cannot be read is a 503 for that client alone', async () => {
    const { url } = await freshRedis()
    const { check, post } = await serveFile(RULES, { redis: url })
    await check({ client_id: 'a' })
    const client = new Redis(url)
    const [key = ''] = await client.keys('*')
    await client.set(key, 'garbage')
    client.disconnect()
    const { status, body } = await post(CHECK, { client_id: 'a' })
    expect({ status, body }).toMatchObject({ status: 503, body: { code: 'STORE_CORRUPT' } })
    expect(await check({ client_id: 'b' })).toMatchObject({ allowed: true, remaining: 9 })
  })
})

describe('while Redis is down', () => {
  test('checks are 503 with a code, the node stays ready but degraded, and both end when Redis is back', async () => {
    const redis = await freshRedis()
    const { post, get, check, logged } = await serveFile(RULES, { redis: redis.url })
    expect(await check({ client_id: 'a' })).toMatchObject({ allowed: true })
    await redis.stop()
    await vi.waitFor(async () => {
      expect(await post(CHECK, { client_id: 'a' })).toMatchObject({ status: 503, body: { code: 'STORE_UNAVAILABLE' } })
    })
    const trouble = ['store: STORE_UNAVAILABLE']
    expect(await get('/readyz')).toMatchObject({ status: 200, body: { status: 'degraded', trouble } })
    expect(String((await get('/metrics')).body.text)).toMatch(
      /sluice_store_errors_total\{code="STORE_UNAVAILABLE"\} [1-9]/,
    )
    const again = await startRedis(['--port', String(redis.port)])
    onTestFinished(() => again.stop())
    await vi.waitFor(async () => expect((await get('/readyz')).body).toMatchObject({ status: 'ready' }), {
      timeout: 20_000,
    })
    expect(await check({ client_id: 'a' })).toMatchObject({ allowed: true })
    const said = logged.map(({ level, msg }) => `${level} ${msg}`)
    expect(said).toEqual(['error Redis does not answer: checks answer 503', 'info Redis answers again'])
  })

  test('a node starts all the same', async () => {
    const redis = await freshRedis()
    await redis.stop()
    const { get, post } = await serveFile(RULES, { redis: redis.url })
    expect(await get('/readyz')).toMatchObject({ status: 200, body: { status: 'degraded' } })
    expect(await post(CHECK, { client_id: 'a' })).toMatchObject({ status: 503 })
  })
})
