// One random trace, three executions: the pure algorithms, the memory store and a real Redis agree step by step.
// Replay a failure with the seed it prints: SEED=<seed> npx vitest run packages/sluice/test/differential

import fc from 'fast-check'
import { Redis } from 'ioredis'
import { memoryStore } from 'sluice'
import { redisStore } from 'sluice/redis'
import { fakeClock, type RedisProcess, seededRandom, startRedis } from 'sluice/testing'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { BARE } from '../support/bare.ts'
import { ReferenceStore } from './reference-store.ts'
import { randomTrace, replay } from './trace.ts'

const { SEED, RUNS } = process.env
const STEPS = 120

let redis: RedisProcess
let client: Redis
let stores = 0
beforeAll(async () => {
  redis = await startRedis()
  client = new Redis(redis.url)
})
afterAll(async () => {
  client.disconnect()
  await redis.stop()
})

test('pure functions, memory store and Redis agree on every step of a random trace', { timeout: 120_000 }, async () => {
  const property = fc.asyncProperty(fc.integer(), async (seed) => {
    const trace = randomTrace(seededRandom(seed), STEPS)
    const [pureClock, memoryClock, redisClock] = [fakeClock(), fakeClock(), fakeClock()]
    const onRedis = redisStore(client, { ...BARE, clock: redisClock, prefix: `d${stores++}` })
    try {
      const expected = await replay(new ReferenceStore(pureClock), pureClock, trace)
      expect(await replay(memoryStore({ clock: memoryClock }), memoryClock, trace), `memory, seed ${seed}`).toEqual(
        expected,
      )
      expect(await replay(onRedis, redisClock, trace), `redis, seed ${seed}`).toEqual(expected)
    } finally {
      await onRedis.close()
    }
  })
  const examples = SEED === undefined ? [] : [[Number(SEED)] as [number]]
  await fc.assert(property, { numRuns: Number(RUNS ?? 60), examples, endOnFailure: true })
})
