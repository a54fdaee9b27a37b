import { describe, expect, test } from 'vitest'
import { compileLimit, type LimitNumbers } from '../algorithms/limit.ts'
import type { Decision } from '../decision.ts'
import { guardStore } from '../failure/guard-store.ts'
import { createLimiter } from '../limiter.ts'
import { memoryStore } from '../store/memory.ts'
import type { Charge, Source, Store, Take, Taken } from '../store/store.ts'
import { fakeClock } from '../testing/fake-clock.ts'
import { shardStore } from './shard-store.ts'

const MINUTE_US = 60_000_000
const NUMBERS: LimitNumbers = { id: 'r', fact: 'user', algorithm: 'token_bucket', units: 10, windowUs: MINUTE_US }
const split = compileLimit({ ...NUMBERS, shards: 4 })
const other = compileLimit({ ...NUMBERS, id: 'o', units: 3 })

function chargeOf(limit = split, more: Partial<Charge> = {}): Charge {
  return { limit, owner: 'alice', detail: '', min: 1, max: 1, kind: 'enforce', ...more }
}

/** A shard store on memory that records its takes; `answer` may replace the result of a take. */
function bench(answer: (taken: Taken, takes: number) => Taken = (taken) => taken) {
  const clock = fakeClock()
  const memory = memoryStore({ clock })
  const takes: Take[] = []
  const take = (sent: Take) => answer(memory.take(sent) as Taken, takes.push(sent))
  const inner: Store = {
    take,
    takeSync: take,
    give: (gives, opId) => memory.give(gives, opId),
    peek: (charges) => memory.peek(charges),
    reset: (bucket) => memory.reset(bucket),
    close: () => memory.close(),
  }
  const store = shardStore(inner, { random: () => 0 })
  const granted = (charges: readonly Charge[], count: number) => {
    return Array.from({ length: count }, () => store.takeSync?.({ charges })).filter((taken) => taken?.granted).length
  }
  const remaining = (limit = split) => (store.peek([chargeOf(limit)]) as Taken).grants[0]?.remaining
  return { clock, store, takes, granted, remaining }
}

describe('the shards of a limit', () => {
  test.each<[Partial<LimitNumbers>, number, number[], number[]]>([
    [{ units: 10 }, 4, [3, 3, 2, 2], [3, 3, 2, 2]],
    [{ units: 8, burst: 21 }, 2, [4, 4], [11, 10]],
    [{ units: 7, burst: 5, algorithm: 'leaky_bucket' }, 5, [2, 2, 1, 1, 1], [1, 1, 1, 1, 1]],
    [{ units: 5, algorithm: 'sliding_window_log' }, 2, [3, 2], [3, 2]],
  ])('of %j, %d of them, add up to it', (numbers, shards, units, capacities) => {
    const compiled = compileLimit({ ...NUMBERS, ...numbers, shards }).shards
    expect(compiled?.map((shard) => shard.units)).toEqual(units)
    expect(compiled?.map((shard) => shard.capacity)).toEqual(capacities)
  })

  test('are leased by their own size', () => {
    const { lease, shards } = compileLimit({ ...NUMBERS, units: 1000, shards: 4, lease: {} })
    expect(lease?.unitsMax).toBe(100)
    expect(shards?.map((shard) => shard.lease?.unitsMax)).toEqual([25, 25, 25, 25])
    expect(shards?.map((shard) => shard.lease?.storeLimit.shard?.index)).toEqual([1, 2, 3, 4])
  })

  test('are absent where there is nothing to split', () => {
    expect(compileLimit({ ...NUMBERS, shards: 1 }).shards).toBeUndefined()
    expect(compileLimit({ ...NUMBERS, units: 0, shards: 4 }).shards).toBeUndefined()
  })
})

describe('a split bucket', () => {
  test('admits exactly its limit', () => {
    const { granted, clock } = bench()
    expect(granted([chargeOf()], 100)).toBe(10)
    clock.advanceMs(60_000)
    expect(granted([chargeOf()], 100)).toBe(10)
  })

  test('charges one shard, and one other if that refuses', () => {
    const { granted, takes } = bench()
    granted([chargeOf()], 100)
    takes.length = 0
    expect(granted([chargeOf()], 1)).toBe(0)
    const indexes = takes.map(({ charges }) => charges[0]?.limit.shard?.index)
    expect(indexes).toHaveLength(2)
    expect(new Set(indexes).size).toBe(2)
  })

  test('two in one request each use all their shards', () => {
    const twin = compileLimit({ ...NUMBERS, id: 't', shards: 4 })
    const { granted, takes } = bench()
    expect(granted([chargeOf(), chargeOf(twin)], 100)).toBe(10)
    for (const place of [0, 1]) {
      expect(new Set(takes.map(({ charges }) => charges[place]?.limit.shard?.index)).size).toBe(4)
    }
  })

  test('is not retried where another limit refuses as well', () => {
    const { granted, takes } = bench()
    expect(granted([chargeOf(), chargeOf(other)], 20)).toBe(3)
    takes.length = 0
    granted([chargeOf(), chargeOf(other)], 1)
    expect(takes).toHaveLength(1)
  })

  test('a refused request consumes nothing, from any shard or other limit', () => {
    const { granted, remaining } = bench()
    granted([chargeOf(other)], 2)
    granted([chargeOf()], 100)
    expect(granted([chargeOf(), chargeOf(other)], 20)).toBe(0)
    expect([remaining(), remaining(other)]).toEqual([0, 1])
  })

  test('a forced charge is applied once, even when the split limit refuses', () => {
    const { store, granted, remaining } = bench()
    granted([chargeOf()], 100)
    expect(store.takeSync?.({ charges: [chargeOf(), chargeOf(other, { kind: 'force' })] })?.granted).toBe(false)
    expect(remaining(other)).toBe(2)
  })

  test('reports the shorter wait of the two shards', () => {
    const even = compileLimit({ ...NUMBERS, units: 4, burst: 2, shards: 2 }) // each shard: 2 a minute, burst 1
    const { store, clock, granted } = bench()
    granted([chargeOf(even)], 1)
    clock.advanceMs(10_000)
    granted([chargeOf(even)], 10)
    const waits = Array.from({ length: 6 }, () => store.takeSync?.({ charges: [chargeOf(even)] })?.grants[0])
    expect(waits.map((grant) => grant?.retryAfterUs)).toEqual(Array(6).fill(20_000_000))
  })

  test('is peeked and reset as a whole', async () => {
    const { store, granted, remaining } = bench()
    granted([chargeOf()], 6)
    expect(remaining()).toBe(4)
    expect((store.peek([chargeOf()]) as Taken).granted).toBe(true)
    granted([chargeOf()], 100)
    expect((store.peek([chargeOf(), chargeOf(other)]) as Taken).granted).toBe(false)
    await store.reset(chargeOf())
    expect(remaining()).toBe(10)
  })

  test('estimates the remaining units of the limit from the shard', () => {
    const limit = compileLimit({ ...NUMBERS, units: 100, shards: 4 })
    const { store } = bench()
    expect(store.takeSync?.({ charges: [chargeOf(limit)] })?.grants[0]?.remaining).toBe(96)
  })
})

test('takes without split limits pass through unchanged', () => {
  const { store, takes } = bench()
  const take = { charges: [chargeOf(other)] }
  store.takeSync?.(take)
  store.take(take)
  expect(takes[0]).toBe(take)
  expect(takes[1]).toBe(take)
})

describe('when the store does not reply', () => {
  const instead = (taken: Taken, granted: boolean, source: Source): Taken => {
    return { granted, nowUs: 0, grants: taken.grants, source, replayed: false }
  }

  test('to the first attempt, its failure policy decides, once', () => {
    const { store, takes } = bench((taken) => instead(taken, false, 'policy'))
    expect(store.take({ charges: [chargeOf()] })).toMatchObject({ granted: false, source: 'policy' })
    expect(takes).toHaveLength(1)
  })

  test('to the second attempt, the refusal of the first stands', () => {
    let spent = Number.POSITIVE_INFINITY
    const { store, granted, takes } = bench((taken, count) => (count > spent ? instead(taken, true, 'policy') : taken))
    granted([chargeOf()], 100)
    spent = takes.length + 1
    expect(store.take({ charges: [chargeOf()] })).toMatchObject({ granted: false, source: 'store' })
    expect(takes).toHaveLength(spent + 1)
  })
})

test('gives sent with a take are applied once', () => {
  const { store, granted, remaining } = bench()
  granted([chargeOf(other)], 3)
  granted([chargeOf()], 100)
  const gives = [{ ...chargeOf(other), units: 1, bookedUs: fakeClock().nowUs() }]
  expect(store.take({ charges: [chargeOf()], gives })).toMatchObject({ granted: false })
  expect(remaining(other)).toBe(1)
})

test('both attempts share one deadline', () => {
  const { store, granted, takes } = bench()
  granted([chargeOf()], 100)
  takes.length = 0
  const spent = { ms: 7 }
  store.take({ charges: [chargeOf()], spent })
  store.take({ charges: [chargeOf()] })
  const [first, second, third, fourth] = takes
  expect([first?.spent, second?.spent]).toEqual([spent, spent])
  expect(third?.spent).toBe(fourth?.spent)
  expect(third?.spent).toEqual({ ms: 0 })
})

test('while the store is unreachable, a node applies its share of the whole limit', async () => {
  const down = Promise.reject(new Error('down'))
  down.catch(() => {})
  const store = shardStore(guardStore({ ...memoryStore(), take: () => down }, { nodes: 2 }))
  const year = { ...NUMBERS, windowUs: 366 * 86_400_000_000, onFail: 'local' } as const
  const charges = [chargeOf(compileLimit({ ...year, units: 20, shards: 10 }))]
  expect(await store.take({ charges })).toMatchObject({ granted: true, source: 'local', grants: [{ remaining: 9 }] })
  const others = await Promise.all(Array.from({ length: 50 }, () => store.take({ charges })))
  expect(others.filter(({ granted }) => granted)).toHaveLength(9)
})

describe('a limiter', () => {
  const RULE = { rule_id: 'a', limit: 10, window: '1m', shards: 4 }

  function limiterOf(rules: readonly object[], wrap: (store: Store) => Store = shardStore) {
    const clock = fakeClock()
    const limiter = createLimiter({ rules, store: wrap(memoryStore({ clock })), clock })
    const check = () => limiter.checkSync({}) as Decision
    const admitted = () => Array.from({ length: 100 }, check).filter(({ allowed }) => allowed)
    return { limiter, check, admitted }
  }

  test('reports the whole limit', () => {
    const { check, admitted } = limiterOf([RULE])
    expect(check()).toMatchObject({ limit: 10, outcomes: [{ limit: 10, burst: 10 }] })
    admitted()
    expect(check()).toMatchObject({ limit: 10, remaining: 0, allowed: false })
  })

  test('gives back to the shard that granted', async () => {
    const { limiter, admitted } = limiterOf([RULE])
    const decisions = admitted()
    expect(decisions).toHaveLength(10)
    for (const decision of decisions) await limiter.give(decision)
    expect((await limiter.peek({})).remaining).toBe(10)
    expect(admitted()).toHaveLength(10)
  })

  test('in memory works without shards', () => {
    const { check, admitted } = limiterOf([RULE], (store) => store)
    expect(check().remaining).toBe(9)
    expect(admitted()).toHaveLength(9)
  })

  test('refuses requests without the fact in shadow, split or not', () => {
    const { check } = limiterOf([{ ...RULE, scope: 'per_user', on_missing: 'refuse', mode: 'shadow' }])
    expect(check().outcomes).toMatchObject([{ allowed: false, short: 'never' }])
  })
})
