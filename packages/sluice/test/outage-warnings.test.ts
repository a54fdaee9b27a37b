// An application that passes no `onTransition` hears of an outage of Redis all the same: once when it begins, once when
// it is over, for each outage.

import { Redis } from 'ioredis'
import { createLimiter } from 'sluice'
import { type RedisStoreOptions, redisStore } from 'sluice/redis'
import { type RedisProcess, startRedis } from 'sluice/testing'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'

const WAIT = { timeout: 20_000, interval: 20 }
const RULE = { rule_id: 'a', scope: 'per_user', limit: 1000, window: '1d', consistency: 'strict' }

let redis: RedisProcess

beforeEach(async () => {
  vi.spyOn(process, 'emitWarning').mockImplementation(() => {})
  redis = await startRedis()
})

afterEach(async () => {
  vi.restoreAllMocks()
  await redis.stop()
})

const given = () => vi.mocked(process.emitWarning).mock.calls.map(([, options]) => (options as { code: string }).code)

function limiterOn(options: RedisStoreOptions) {
  const client = new Redis(redis.url, { lazyConnect: true })
  const store = redisStore(client, { deadlineMs: 500, ...options })
  const limiter = createLimiter({ rules: [RULE], store })
  const until = (state: string) =>
    vi.waitFor(async () => {
      await limiter.check({ user: 'ada' })
      expect(store.breaker()).toBe(state)
    }, WAIT)
  return { limiter, store, until }
}

test('each outage is told twice: when it begins, and when it is over', { timeout: 60_000 }, async () => {
  const port = String(redis.port)
  const { limiter, store, until } = limiterOn({})
  await store.ready()
  await until('closed')
  for (const outage of [1, 2]) {
    await redis.stop()
    await until('open')
    // Checks and probes that fail meanwhile are no other outage.
    for (let tries = 0; tries < 50; tries += 1) await limiter.check({ user: 'ada' })
    redis = await startRedis(['--port', port])
    await until('closed')
    expect(given()).toEqual(Array(outage).fill(['SLUICE_STORE_DOWN', 'SLUICE_STORE_UP']).flat())
  }
  const [first] = vi.mocked(process.emitWarning).mock.calls
  expect(first?.[0]).toMatch(/^sluice: store default: Redis does not answer, so on_fail .* Pass onTransition/)
  await limiter.close()
})

test('an application with onTransition is told there, and nowhere else', async () => {
  const states: string[] = []
  const { limiter, store, until } = limiterOn({ onTransition: ({ state }) => void states.push(state) })
  await store.ready()
  await redis.stop()
  await until('open')
  expect([states[0], given()]).toEqual(['open', []])
  await limiter.close()
})
