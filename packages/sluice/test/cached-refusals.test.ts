// A node refuses without asking Redis for at most 200 ms, never under a strict rule, and not after units came back
// through it. Two nodes on one Redis; the clocks of the nodes advance only when a test says so.

import { Redis } from 'ioredis'
import { createLimiter, type Decision, type Limiter, type Store, wallClock } from 'sluice'
import { redisStore } from 'sluice/redis'
import { type FakeClock, fakeClock } from 'sluice/testing'
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from 'vitest'
import { approximateStore } from '../src/approximate/approximate-store.ts'
import { leaseStore } from '../src/lease/lease-store.ts'
import { shardStore } from '../src/shards/shard-store.ts'
import { type ManualTimers, manualTimers } from '../src/testing/manual-timers.ts'
import { type RedisProcess, startRedis } from '../src/testing/redis-process.ts'

let redis: RedisProcess
let prefixes = 0
beforeAll(async () => {
  redis = await startRedis()
})
afterAll(() => redis.stop())

const STEP_MS = 10
const ALICE = { user: 'alice' }
const BASE = { rule_id: 'r', scope: 'per_user', window: '30d', on_fail: 'closed' } as const
const WINDOWS = ['fixed_window', 'sliding_window', 'sliding_window_log'] as const
const ALGORITHMS = ['token_bucket', ...WINDOWS] as const

const STRICT = {
  strict: { limit: 40, consistency: 'strict' },
  'strict and split': { limit: 40, consistency: 'strict', shards: 2 },
}
const CACHED = {
  leased: { limit: 40, consistency: 'leased' },
  'too small to lease': { limit: 6, consistency: 'leased' },
  'leased and split': { limit: 80, consistency: 'leased', shards: 2 },
  approximate: {
    limit: 40,
    consistency: 'approximate',
    approximate: { sync_ms: 2000, max_unsynced: 40 },
  },
}

type Node = {
  readonly limiter: Limiter
  readonly store: Store
  /** Requests to Redis that charge or read buckets. */
  readonly asked: () => number
}

type Fleet = { readonly first: Node; readonly other: Node; advance(ms: number): void }

function fleet(rule: object): Fleet {
  const prefix = `c${prefixes++}`
  const clock = fakeClock(wallClock.nowUs())
  const timers = manualTimers()
  /** In steps, because a clock that is ahead of the timers looks as if it had been set. */
  const advance = (ms: number) => {
    for (let left = ms; left > 0; left -= STEP_MS) {
      clock.advanceMs(Math.min(STEP_MS, left))
      timers.advance(Math.min(STEP_MS, left))
    }
  }
  return { first: nodeOf(rule, prefix, clock, timers), other: nodeOf(rule, prefix, clock, timers), advance }
}

/** The wrappers of `redisStore`, on the clock of the test. */
function nodeOf(rule: object, prefix: string, clock: FakeClock, timers: ManualTimers): Node {
  let asked = 0
  const inner = redisStore(new Redis(redis.url, { lazyConnect: true }), { prefix, leases: false, deadlineMs: 5000 })
  const counted: Store = {
    take(take) {
      asked += 1
      return inner.take(take)
    },
    peek(charges) {
      asked += 1
      return inner.peek(charges)
    },
    give: (gives, opId, key) => inner.give(gives, opId, key),
    reset: (bucket) => inner.reset(bucket),
    close: () => inner.close(),
  }
  const leased = shardStore(leaseStore(counted, { clock, timers }), { timers })
  const store = approximateStore(leased, { clock, timers })
  const limiter = createLimiter({ rules: [rule] as never, store })
  onTestFinished(() => limiter.close())
  return { limiter, store, asked: () => asked }
}

/** A fleet whose first node has spent the bucket and refuses; with what it admitted. */
async function spent(rule: object): Promise<Fleet & { readonly admitted: readonly Decision[] }> {
  const made = fleet(rule)
  const { limiter, store } = made.first
  const admitted: Decision[] = []
  for (let refused = 0; refused < 5; ) {
    const decision = await limiter.check(ALICE)
    if (decision.allowed) admitted.push(decision)
    else refused += 1 // of a split bucket, the next shard may have units
  }
  made.advance(2000)
  await vi.waitUntil(() => (store.stats?.().unsynced ?? 0) === 0)
  for (let checks = 0; checks < 5; checks += 1) expect((await limiter.check(ALICE)).allowed).toBe(false)
  return { ...made, admitted }
}

/** Events through the other node after which a request passes. All units come back, so each shard has some. */
const EVENTS: Record<string, (fleet: Fleet, admitted: readonly Decision[]) => Promise<void>> = {
  async refund({ first, other }, admitted) {
    for (const decision of admitted) await other.limiter.redeem(first.limiter.receipt(decision))
  },
  reset: ({ other }) => other.limiter.reset('r', 'alice'),
}

const rows = (cases: object) =>
  Object.keys(EVENTS).flatMap((event) =>
    ALGORITHMS.flatMap((algorithm) =>
      Object.entries(cases).map(
        ([name, fields]) => [event, name, algorithm, { ...BASE, algorithm, ...fields }] as const,
      ),
    ),
  )

describe('after units came back through another node', () => {
  test.each(rows(STRICT))('%s, %s, %s: the next check passes', async (event, _name, _algorithm, rule) => {
    const { admitted, ...made } = await spent(rule)
    await EVENTS[event]?.(made, admitted)
    expect((await made.first.limiter.check(ALICE)).allowed).toBe(true)
  })

  test.each(rows(CACHED))('%s, %s, %s: a check 200 ms later passes', async (event, name, _algorithm, rule) => {
    const { admitted, ...made } = await spent(rule)
    await EVENTS[event]?.(made, admitted)
    const { limiter } = made.first
    made.advance(199)
    const refused = await limiter.check(ALICE)
    expect(refused).toMatchObject({ allowed: false, source: name === 'approximate' ? 'local' : 'lease' })
    expect(refused.retryAfterMs, 'as if nothing had been given back').toBeGreaterThan(1000)
    made.advance(1)
    expect((await limiter.check(ALICE)).allowed).toBe(true)
  })
})

describe('on the node itself', () => {
  test.each(rows({ ...STRICT, ...CACHED }))(
    '%s, %s, %s: the next check passes',
    async (event, _name, _algorithm, rule) => {
      const { admitted, first, advance } = await spent(rule)
      await EVENTS[event]?.({ first, other: first, advance }, admitted)
      expect((await first.limiter.check(ALICE)).allowed).toBe(true)
    },
  )

  test.each(
    WINDOWS.flatMap((algorithm) =>
      Object.entries({ ...STRICT, ...CACHED }).map(
        ([name, fields]) => [name, algorithm, { ...BASE, algorithm, ...fields }] as const,
      ),
    ),
  )('a raised rule admits the next check: %s, %s', async (_name, _algorithm, rule) => {
    const { first } = await spent(rule)
    first.limiter.setRules([{ ...rule, limit: 400 }] as never)
    expect((await first.limiter.check(ALICE)).allowed).toBe(true)
  })

  test.each(Object.entries({ ...STRICT, ...CACHED }))(
    'an override admits the next check: %s',
    async (_name, fields) => {
      const { first } = await spent({ ...BASE, algorithm: 'fixed_window', ...fields })
      const raised = { id: 'o', ruleId: 'r', fact: 'user', owner: 'alice', effect: { limit: 400 }, expiresAtMs: null }
      first.limiter.changeOverrides({ set: [raised] } as never)
      expect((await first.limiter.check(ALICE)).allowed).toBe(true)
    },
  )
})

describe('a flood of refused requests', () => {
  test.each(
    ALGORITHMS.flatMap(
      (algorithm) =>
        [
          ['leased', algorithm],
          ['too small to lease', algorithm],
          ['approximate', algorithm],
        ] as const,
    ),
  )('of a rule that is %s (%s) asks Redis at most five times a second', async (name, algorithm) => {
    const { first, advance } = await spent({ ...BASE, algorithm, ...CACHED[name] })
    advance(200)
    const before = first.asked()
    for (let elapsedMs = 0; elapsedMs < 2000; elapsedMs += 10) {
      const decisions = await Promise.all(Array.from({ length: 20 }, () => first.limiter.check(ALICE)))
      expect(decisions.some(({ allowed }) => allowed)).toBe(false)
      advance(10)
    }
    expect(first.asked() - before).toBeLessThanOrEqual(10)
  })

  test('of a strict rule asks Redis each time', async () => {
    const { first } = await spent({ ...BASE, ...STRICT.strict })
    const before = first.asked()
    await Promise.all(Array.from({ length: 20 }, () => first.limiter.check(ALICE)))
    expect(first.asked() - before).toBe(20)
  })
})

test.each(ALGORITHMS)('%s: a request that is cheaper than the refused one asks Redis', async (algorithm) => {
  const { first } = fleet({ ...BASE, ...CACHED['too small to lease'], algorithm })
  const check = (cost: number) => first.limiter.check({ ...ALICE, cost })
  await check(4)
  expect([(await check(3)).source, (await check(3)).source]).toEqual(['store', 'lease'])
  expect(await check(2)).toMatchObject({ allowed: true, source: 'store' })
  expect((await check(1)).source, 'refused by the store, which is empty').toBe('store')
})

test('permits: a refusal is never cached', async () => {
  const { first, other } = fleet({ ...BASE, rule_id: 'p', algorithm: 'concurrency', limit: 1, window: '5m' })
  const permit = await other.limiter.check(ALICE)
  for (let checks = 0; checks < 3; checks += 1) expect((await first.limiter.check(ALICE)).source).toBe('store')
  await other.limiter.release(permit)
  expect((await first.limiter.check(ALICE)).allowed).toBe(true)
})
