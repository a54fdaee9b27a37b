// A refund returns all units of its request to the bucket in Redis, whether they came from a lease, a shard or were not
// synced yet. Token buckets are excluded: they discount the age of units.

import { Redis } from 'ioredis'
import { createLimiter, type Decision } from 'sluice'
import { redisStore } from 'sluice/redis'
import { type RedisProcess, seededRandom, startRedis } from 'sluice/testing'
import { afterAll, beforeAll, expect, test } from 'vitest'

const USERS = Array.from({ length: 20 }, (_, index) => `user-${index}`)
const CHECKS = 60
const LIMIT = 1000
/** No window ends while a test runs. */
const WINDOW_SECONDS = 86_400

let redis: RedisProcess
let client: Redis
beforeAll(async () => {
  redis = await startRedis()
  client = new Redis(redis.url)
})
afterAll(async () => {
  client.disconnect()
  await redis.stop()
})

const ALGORITHMS = ['sliding_window_log', 'fixed_window', 'sliding_window']
const PATHS: [string, object][] = [
  ['leased', { consistency: 'leased' }],
  ['leased and sharded', { consistency: 'leased', shards: 3 }],
  ['approximate', { consistency: 'approximate', approximate: { sync_ms: 20, max_unsynced: 100 } }],
]
const CASES = ALGORITHMS.flatMap((algorithm) => PATHS.map(([name, path]) => [algorithm, name, path] as const))

test.each(CASES)('%s, %s: refunds return every unit', async (algorithm, name, path) => {
  const rule = { scope: 'per_user', algorithm, limit: LIMIT, window_seconds: WINDOW_SECONDS, ...path }
  const rules = [{ rule_id: `${algorithm}-${name}`.replaceAll(' ', '-'), ...rule }]
  const store = redisStore(client, { deadlineMs: 0 })
  await store.ready()
  const limiter = createLimiter({ store, rules })
  const random = seededRandom(17)
  await Promise.all(
    USERS.map(async (user) => {
      const decisions: Decision[] = []
      for (let check = 0; check < CHECKS; check += 1) {
        decisions.push(await limiter.check({ user, cost: random.between(1, 5) }))
      }
      for (const decision of decisions) await limiter.give(decision)
    }),
  )
  await limiter.close()
  expect(await usedBy(rules)).toEqual(USERS.map(() => 0))
})

/** Units in use, as Redis counts them. */
async function usedBy(rules: readonly object[]): Promise<number[]> {
  const strict = rules.map((rule) => ({ ...rule, consistency: 'strict', approximate: undefined }))
  const reader = createLimiter({ store: redisStore(client, { deadlineMs: 0 }), rules: strict })
  const peeks = await Promise.all(USERS.map((user) => reader.peek({ user })))
  await reader.close()
  return peeks.map(({ remaining }) => LIMIT - (remaining ?? 0))
}
