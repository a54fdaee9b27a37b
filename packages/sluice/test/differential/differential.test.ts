// One random trace, three executions: the pure algorithms, the memory store and a real Redis agree step by step.
// Replay a failure with the seed it prints: SEED=<seed> npx vitest run packages/sluice/test/differential

import fc from 'fast-check'
import { Redis } from 'ioredis'
import { memoryStore } from 'sluice'
import { fakeClock, type RedisProcess, seededRandom, startRedis } from 'sluice/testing'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { BatchedStore } from '../../src/redis/batched-store.ts'
import { KeyNames } from '../../src/redis/key.ts'
import { ReferenceStore } from './reference-store.ts'
import { randomTrace, replay, type Step } from './trace.ts'

const { SEED, RUNS } = process.env
const STEPS = 120
/** Seeds that found a defect: a peek, then a take of a counterfactual log with another window, in one batch. */
const KNOWN_SEEDS = [-1_859_680_956]

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
  await forRandomSeeds(async (seed) => {
    const trace = randomTrace(seededRandom(seed), STEPS)
    const clock = fakeClock()
    const expected = await onReference(trace)
    expect(await replay(memoryStore({ clock }), clock, trace), `memory, seed ${seed}`).toEqual(expected)
    expect(await onRedis(trace), `redis, seed ${seed}`).toEqual(expected)
  })
})

test('pure functions and Redis agree about units on lease', { timeout: 120_000 }, async () => {
  await forRandomSeeds(async (seed) => {
    const trace = randomTrace(seededRandom(seed), STEPS, true)
    expect(await onRedis(trace), `redis, seed ${seed}`).toEqual(await onReference(trace))
  })
})

test('requests in one batch are decided one after the other', { timeout: 120_000 }, async () => {
  await forRandomSeeds(async (seed) => {
    const trace = randomTrace(seededRandom(seed), STEPS, true)
    expect(await onRedis(trace, true), `redis, seed ${seed}`).toEqual(await onReference(trace))
  })
})

async function forRandomSeeds(agree: (seed: number) => Promise<void>): Promise<void> {
  const seeds = SEED === undefined ? KNOWN_SEEDS : [Number(SEED), ...KNOWN_SEEDS]
  const examples = seeds.map((seed): [number] => [seed])
  const property = fc.asyncProperty(fc.integer(), agree)
  await fc.assert(property, { numRuns: Number(RUNS ?? 60), examples, endOnFailure: true })
}

function onReference(trace: readonly Step[]): Promise<unknown[]> {
  const clock = fakeClock()
  return replay(new ReferenceStore(clock), clock, trace)
}

async function onRedis(trace: readonly Step[], together = false): Promise<unknown[]> {
  const clock = fakeClock()
  const names = new KeyNames(`d${stores++}`, 'sluice', undefined)
  // Without the layers of redisStore: of approximate limits, too, each step asks Redis.
  const store = new BatchedStore(client, { connections: 1, names, clock, readsReplicas: false, store: 'default' })
  await store.ready
  try {
    return await replay(store, clock, trace, together)
  } finally {
    await store.close()
  }
}
