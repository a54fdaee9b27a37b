// Without `onTransition`, each Redis outage emits two process warnings: one when it starts and one when it ends.

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

const emitted = () => vi.mocked(process.emitWarning).mock.calls.map(([, options]) => (options as { code: string }).code)

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

test('each outage warns twice: when it starts and when it ends', { timeout: 60_000 }, async () => {
  const port = String(redis.port)
  const { limiter, store, until } = limiterOn({})
  await store.ready()
  await until('closed')
  for (const outage of [1, 2]) {
    await redis.stop()
    await until('open')
    // Failing checks and probes do not count as another outage.
    for (let tries = 0; tries < 50; tries += 1) await limiter.check({ user: 'ada' })
    redis = await startRedis(['--port', port])
    await until('closed')
    expect(emitted()).toEqual(Array(outage).fill(['SLUICE_STORE_DOWN', 'SLUICE_STORE_UP']).flat())
  }
  const [first] = vi.mocked(process.emitWarning).mock.calls
  expect(first?.[0]).toMatch(/^sluice: store default: Redis does not answer, so on_fail .* Pass onTransition/)
  await limiter.close()
})

test('onTransition replaces the warnings', async () => {
  const states: string[] = []
  const { limiter, store, until } = limiterOn({ onTransition: ({ state }) => void states.push(state) })
  await store.ready()
  await redis.stop()
  await until('open')
  expect([states[0], emitted()]).toEqual(['open', []])
  await limiter.close()
})
