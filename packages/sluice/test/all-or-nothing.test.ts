// A refused request consumes nothing from any rule: property over random rule sets and requests, on both stores.
// Replay a failure with the seed it prints: SEED=<seed> npx vitest run packages/sluice/test/all-or-nothing

import fc from 'fast-check'
import { Redis } from 'ioredis'
import {
  ALGORITHM_NAMES,
  createLimiter,
  type Decision,
  type Limiter,
  memoryStore,
  type RuleInput,
  type Store,
  type Subject,
} from 'sluice'
import { redisStore } from 'sluice/redis'
import { type FakeClock, fakeClock, type Random, type RedisProcess, seededRandom, startRedis } from 'sluice/testing'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { BARE } from './support/bare.ts'

const { SEED } = process.env
const REQUESTS = 60

let redis: RedisProcess
let client: Redis
let runs = 0
beforeAll(async () => {
  redis = await startRedis()
  client = new Redis(redis.url)
})
afterAll(async () => {
  client.disconnect()
  await redis.stop()
})

const stores: Record<string, (clock: FakeClock) => Store> = {
  memory: (clock) => memoryStore({ clock }),
  redis: (clock) => redisStore(client, { ...BARE, clock, prefix: `aon${runs++}` }),
}

test.each(Object.entries(stores))(
  '%s: a refused request consumes nothing',
  { timeout: 120_000 },
  async (_name, storeOf) => {
    let refusals = 0
    const property = fc.asyncProperty(fc.integer(), async (seed) => {
      const random = seededRandom(seed)
      const clock = fakeClock()
      const limiter = createLimiter({ rules: randomRules(random), store: storeOf(clock), clock })
      try {
        for (let index = 0; index < REQUESTS; index += 1) {
          clock.advanceUs(random.pick([0, 0, 1, 12_345, 700_000]))
          if (await refusedWithoutCost(limiter, randomSubject(random))) refusals += 1
        }
      } finally {
        await limiter.close()
      }
    })
    await fc.assert(property, { numRuns: 30, examples: SEED === undefined ? [] : [[Number(SEED)]], endOnFailure: true })
    expect(refusals, 'enough requests were refused').toBeGreaterThan(100)
  },
)

/** Returns true if the request was refused, after asserting that no bucket has changed. */
async function refusedWithoutCost(limiter: Limiter, subject: Subject): Promise<boolean> {
  const before = await limiter.peek(subject)
  const decision = await limiter.check(subject)
  expect(decision.allowed, 'a peek predicts the decision').toBe(before.allowed)
  if (decision.allowed) return false
  const after = await limiter.peek(subject)
  expect(numbersOf(after)).toEqual(numbersOf(before))
  expect(numbersOf(decision)).toEqual(numbersOf(before))
  return true
}

function numbersOf(decision: Decision): unknown[] {
  return decision.outcomes.map(({ ruleId, name, remaining, resetAfterMs }) => [ruleId, name, remaining, resetAfterMs])
}

function randomRules(random: Random): RuleInput[] {
  return Array.from({ length: random.between(1, 8) }, (_, index) => ({
    rule_id: `rule-${index}`,
    scope: random.pick(['global', 'per_user', 'per_ip', 'per_tenant', 'per_endpoint', ['user', 'endpoint']]),
    endpoint_pattern: random.pick(['/**', '/a/:id', '/a/**']),
    algorithm: random.pick(ALGORITHM_NAMES),
    mode: random.pick(['enforce', 'enforce', 'enforce', 'shadow']),
    limits: Array.from({ length: random.between(1, 3) }, (_, place) => ({
      name: `l${place}`,
      limit: random.between(1, 12),
      window_seconds: random.pick([0.5, 1, 10]),
    })),
  }))
}

function randomSubject(random: Random): Subject {
  return {
    user: random.pick(['alice', 'bob']),
    ip: random.pick(['192.0.2.1', '2001:db8::1']),
    tenant: 'acme',
    method: random.pick(['GET', 'POST']),
    path: random.pick(['/a/1', '/a/1/b', '/c']),
    cost: random.pick([1, 1, 1, 2, 5]),
  }
}
