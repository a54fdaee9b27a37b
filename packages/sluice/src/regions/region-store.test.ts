import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { compileLimit, type Limit, type LimitNumbers } from '../algorithms/limit.ts'
import { LimiterError } from '../errors.ts'
import { createLimiter } from '../limiter.ts'
import { memoryStore } from '../store/memory.ts'
import type { Charge, Store, Taken } from '../store/store.ts'
import { fakeClock } from '../testing/fake-clock.ts'
import { manualTimers } from '../testing/manual-timers.ts'
import { remote } from '../testing/remote.ts'
import { regionLimits, splitUnits } from './region-limits.ts'
import type { RegionOptions } from './region-options.ts'
import { regionStore } from './region-store.ts'
import { exactShares, type Shares } from './shares.ts'

const WEIGHTS = { eu: 0.6, us: 0.4 }
const SHARES: Shares = { weights: WEIGHTS, homeShare: 0.5 }
const MINUTE_US = 60_000_000
/** Below any round trip. */
const FAR = -1

function limitOf(numbers: Partial<LimitNumbers> = {}): Limit {
  return compileLimit({ id: 'r', algorithm: 'fixed_window', units: 10, windowUs: MINUTE_US, spread: true, ...numbers })
}

function chargeOf(limit: Limit, more: Partial<Charge> = {}): Charge {
  return { limit, owner: 'alice', detail: '', min: 1, max: 1, kind: 'enforce', ...more }
}

/** Two regions and their global store, in memory. */
function world(options: Partial<RegionOptions> = {}) {
  const clock = fakeClock()
  const timers = manualTimers()
  const global = remote(memoryStore({ clock }))
  const regional = remote(memoryStore({ clock }))
  const shared = { shares: SHARES, global, clock, timers, nearMs: FAR }
  const eu = regionStore({ name: 'eu', regional, ...shared, ...options })
  const us = regionStore({ name: 'us', regional: remote(memoryStore({ clock })), ...shared, ...options })
  return { clock, timers, global, regional, eu, us }
}

async function granted(store: Store, limit: Limit, times: number): Promise<number> {
  let count = 0
  for (let index = 0; index < times; index += 1) {
    if ((await store.take({ charges: [chargeOf(limit)] })).granted) count += 1
  }
  return count
}

const remaining = async (store: Store, limit: Limit) => (await store.peek([chargeOf(limit)])).grants[0]?.remaining
const lost = () => Promise.reject(new LimiterError('STORE_UNAVAILABLE', 'unreachable'))

describe('the sublimits of a limit', () => {
  const split = (numbers: Partial<LimitNumbers>, homeShare: number) => {
    const { homes, pool } = splitUnits(limitOf(numbers), [exactShares({ weights: WEIGHTS, homeShare }, 'shares')])
    return [homes.get('eu'), homes.get('us'), pool]
  }

  test.each<[string, Partial<LimitNumbers>, number, number[]]>([
    ['a tenth at home', { units: 100 }, 0.1, [6, 4, 90]],
    ['half at home: one region may use 30, the other 70', { units: 100 }, 0.5, [30, 20, 50]],
    ['all at home: a static split', { units: 100 }, 1, [60, 40, 0]],
    ['a small limit is all in the pool', { units: 3 }, 0.1, [0, 0, 3]],
    ['the remainder of an uneven split is in the pool', { units: 3 }, 1, [1, 1, 1]],
    ['a bucket: rate and burst in one ratio', { algorithm: 'token_bucket', units: 100, burst: 150 }, 0.1, [6, 4, 90]],
    [
      'a bucket whose rate and burst have no common divisor is all in the pool',
      { algorithm: 'token_bucket', units: 7, burst: 13 },
      1,
      [0, 0, 7],
    ],
    ['permits have no pool', { algorithm: 'concurrency', units: 10 }, 0.1, [6, 4, 0]],
    ['leaky buckets have no pool', { algorithm: 'leaky_bucket', units: 10, burst: 20 }, 0.1, [6, 4, 0]],
  ])('%s', (_, numbers, homeShare, sublimits) => {
    expect(split(numbers, homeShare)).toEqual(sublimits)
  })

  const shares = fc
    .tuple(
      fc.array(fc.integer({ min: 0, max: 1000 }), { minLength: 3, maxLength: 3 }),
      fc.integer({ min: 0, max: 100 }),
    )
    .map(([parts, home]) => {
      const sum = Math.max(
        1,
        parts[0] ?? 0,
        parts.reduce((total, part) => total + part, 0),
      )
      const weights = Object.fromEntries(parts.map((part, index) => [`r${index}`, part / sum]))
      return exactShares({ weights, homeShare: home / 100 }, 'shares')
    })
  const limit = fc
    .record({
      units: fc.integer({ min: 1, max: 1000 }),
      burst: fc.integer({ min: 1, max: 1000 }),
      bucket: fc.boolean(),
    })
    .map(({ units, burst, bucket }) => limitOf(bucket ? { algorithm: 'token_bucket', units, burst } : { units }))

  test('never add up to more than the limit, even while regions have different shares', () => {
    fc.assert(
      fc.property(limit, shares, shares, fc.array(fc.boolean(), { minLength: 4, maxLength: 4 }), (whole, a, b, mix) => {
        for (const one of [a, b]) {
          const parts = [splitUnits(whole, [one]), splitUnits(whole, [a, b])] as const
          const of = (index: number) => parts[mix[index] ? 0 : 1]
          const homes = [0, 1, 2].map((index) => of(index).homes.get(`r${index}`) ?? 0)
          expect(homes.reduce((sum, home) => sum + home, of(3).pool)).toBeLessThanOrEqual(whole.units)
        }
      }),
    )
  })

  test('have the same window, lease TTL and ratio of burst to rate under any shares', () => {
    const leased = ['token_bucket', 'sliding_window_log'] as const
    fc.assert(
      fc.property(
        fc.constantFrom(...leased),
        fc.integer({ min: 20, max: 900 }),
        shares,
        shares,
        (algorithm, units, a, b) => {
          const whole = limitOf({ algorithm, units, burst: 2 * units, lease: {} })
          for (const sublimit of [a, b].flatMap((one) => Object.values(regionLimits(whole, [one], 'r0')))) {
            if (sublimit === undefined) continue
            expect(sublimit.lease?.ttlUs).toBe(whole.lease?.ttlUs)
            expect(sublimit.lease?.storeLimit.windowUs).toBe(whole.lease?.storeLimit.windowUs)
            expect(sublimit.capacity / sublimit.units).toBe(whole.capacity / whole.units)
          }
        },
      ),
    )
  })

  test('under old and new shares, used in turns on one bucket, admit no more than the larger alone', async () => {
    const clock = fakeClock()
    const store = memoryStore({ clock })
    const whole = limitOf({ algorithm: 'token_bucket', units: 60, burst: 40 })
    const large = exactShares({ weights: WEIGHTS, homeShare: 1 }, 'shares')
    const small = exactShares({ weights: WEIGHTS, homeShare: 0.3 }, 'shares')
    const homes = [[large], [large, small]].map((both) => regionLimits(whole, both, 'eu').home as Limit)
    let admitted = 0
    for (let turn = 0; turn < 600; turn += 1) {
      clock.advanceMs(100)
      for (const home of homes) admitted += await granted(store, home, 2)
    }
    expect(admitted).toBeLessThanOrEqual(24 + 36) // its burst, and a minute of refill
  })
})

describe('a charge', () => {
  test('is paid by one sublimit: together regions admit the limit, one alone its home and the pool', async () => {
    const { eu, us } = world()
    const limit = limitOf()
    expect(await granted(eu, limit, 20)).toBe(3 + 5)
    expect(await granted(us, limit, 20)).toBe(2)
  })

  test.each(['token_bucket', 'fixed_window', 'sliding_window', 'sliding_window_log'] as const)(
    'against a strict %s tries the home, then the pool, and the regions admit the limit together',
    async (algorithm) => {
      const { eu, us } = world()
      const limit = limitOf({ algorithm })
      const turns = [eu, us, eu, us, eu, us, eu, us, us, us, us, eu]
      const admitted = []
      for (const store of turns) admitted.push(await granted(store, limit, 1))
      expect(admitted.reduce((sum, one) => sum + one, 0)).toBe(10)
    },
  )

  test('is paid by a pool that is near before the home is', async () => {
    const { eu, us } = world({ nearMs: 5 })
    const limit = limitOf()
    for (const store of [eu, us]) await store.peek([chargeOf(limit)]) // measures the round trip
    expect([await granted(eu, limit, 5), await granted(us, limit, 9), await granted(eu, limit, 9)]).toEqual([5, 2, 3])
    expect(eu.stats()).toMatchObject({ region_home_units: 3, region_borrowed_units: 5 })
  })

  test('against a limit of 3 for two regions is paid by the pool', async () => {
    const { eu, us } = world({ shares: { weights: WEIGHTS } })
    const limit = limitOf({ units: 3, lease: {} })
    expect([await granted(us, limit, 1), await granted(eu, limit, 9), await granted(us, limit, 9)]).toEqual([1, 2, 0])
  })

  test('above the home is paid by the pool, and one above both is refused permanently', async () => {
    const { eu } = world()
    const costs = async (min: number) => await eu.take({ charges: [chargeOf(limitOf(), { min, max: min })] })
    expect(await costs(5)).toMatchObject({ granted: true })
    expect((await costs(6)).grants[0]).toMatchObject({ short: 'never', retryAfterUs: Number.POSITIVE_INFINITY })
  })

  test('that another rule refuses costs the pool nothing', async () => {
    const { eu } = world({ shares: { weights: WEIGHTS, homeShare: 0 } })
    const limit = limitOf()
    const narrow = limitOf({ id: 'narrow', units: 1, spread: false })
    const both = { charges: [chargeOf(limit), chargeOf(narrow)] }
    expect([(await eu.take(both)).granted, (await eu.take(both)).granted]).toEqual([true, false])
    expect(await remaining(eu, limit)).toBe(9)
  })

  test('is given back to the sublimit that paid, once', async () => {
    const { eu } = world()
    const rule = {
      rule_id: 'r',
      limit: 10,
      window: '1m',
      algorithm: 'fixed_window',
      spread: 'global',
      consistency: 'strict',
    }
    const limiter = createLimiter({ store: eu, rules: [rule] })
    const decisions = []
    for (let index = 0; index < 8; index += 1) decisions.push(await limiter.check({}))
    expect((await limiter.check({})).allowed).toBe(false)
    for (const decision of decisions) await limiter.give(decision)
    const { remaining: left } = await limiter.peek({})
    expect(left).toBe(8) // three at home and five in the pool
    expect(eu.stats()).toMatchObject({ region_home_units: 3, region_borrowed_units: 5 })
  })

  test('in shadow refuses nothing and is counted', async () => {
    const { eu } = world()
    const shadow = chargeOf(limitOf(), { kind: 'shadow' })
    for (let index = 0; index < 12; index += 1) expect((await eu.take({ charges: [shadow] })).granted).toBe(true)
    expect(await remaining(eu, limitOf())).toBe(5) // the home is charged, the pool is not
  })
})

describe('leases of the pool', () => {
  test('pay most checks without a round trip; homes pay the first ones', async () => {
    const { eu } = world({ shares: { weights: WEIGHTS } })
    const limit = limitOf({ units: 1000, lease: {} })
    const answers: Taken[] = []
    for (let index = 0; index < 100; index += 1) answers.push(await eu.take({ charges: [chargeOf(limit)] }))
    const synchronous = answers.filter(({ source }) => source === 'lease').length
    expect(synchronous).toBeGreaterThan(90)
    const { region_home_units: home, region_borrowed_units: borrowed } = eu.stats()
    expect([home, borrowed]).toEqual([expect.any(Number), 100 - Number(home)])
    expect(home).toBeLessThan(10)
  })

  test('are given back when the store closes', async () => {
    const { eu, us } = world({ shares: { weights: WEIGHTS, homeShare: 0 } })
    const limit = limitOf({ units: 1000, lease: {} })
    await granted(eu, limit, 50)
    await eu.close()
    expect(await remaining(us, limit)).toBe(950)
  })
})

describe('home and pool', () => {
  test('are both read by a peek and cleared by a reset', async () => {
    const { eu } = world()
    const limit = limitOf()
    expect(await remaining(eu, limit)).toBe(8)
    await granted(eu, limit, 20)
    expect(await eu.peek([chargeOf(limit)])).toMatchObject({ granted: false })
    await eu.reset(chargeOf(limit))
    expect(await remaining(eu, limit)).toBe(8)
  })

  test('for permits: each region has a home by weight, and there is no pool', async () => {
    const { eu, us } = world()
    const limit = limitOf({ algorithm: 'concurrency' })
    const take = async (store: Store, id: string) =>
      (await store.take({ charges: [chargeOf(limit)], op: { id } })).granted
    const permits = []
    for (let index = 0; index < 8; index += 1) permits.push(await take(eu, `eu${index}`), await take(us, `us${index}`))
    expect(permits.filter(Boolean)).toHaveLength(10)
  })
})

describe('without the global store', () => {
  const broken = (): Partial<RegionOptions> => {
    return { global: { ...remote(memoryStore()), take: lost, peek: lost } }
  }

  test('a region has its home, and reports that it is isolated', async () => {
    const { eu } = world(broken())
    const limit = limitOf({ onFail: 'open' })
    expect(await granted(eu, limit, 20)).toBe(3)
    expect(eu.isIsolated).toBe(true)
    expect((await eu.take({ charges: [chargeOf(limit)] })).grants[0]?.short).toBe('now')
    expect(await remaining(eu, limit)).toBe(0)
  })

  test('a limit that is all in the pool is refused, with a retry after one second', async () => {
    const { eu } = world(broken())
    const { granted: passed, grants } = await eu.take({ charges: [chargeOf(limitOf({ units: 1, onFail: 'open' }))] })
    expect([passed, grants[0]?.retryAfterUs]).toEqual([false, 1_000_000])
  })
})

describe('invalid options and rules', () => {
  const { eu: example } = world()
  const open = (options: Partial<RegionOptions>) => () => world(options)

  test.each<[Partial<RegionOptions>, string, string]>([
    [{ shares: { weights: {} } }, 'shares.weights', 'name 1 to 64 regions'],
    [{ shares: { weights: { EU: 1 } } }, 'shares.weights', 'characters of a-z'],
    [{ shares: { weights: { eu: 60, us: 40 } } }, 'shares.weights.eu', 'from 0 to 1'],
    [{ shares: { weights: { eu: 0.7, us: 0.4 } } }, 'shares.weights', 'their sum is 1.1'],
    [{ shares: { weights: WEIGHTS, homeShare: 2 } }, 'shares.homeShare', 'from 0 to 1'],
    [{ nextShares: { weights: { eu: Number.NaN } } }, 'nextShares.weights.eu', 'from 0 to 1'],
    [{ shares: { weights: { ap: 1 } } }, 'name', 'give the region a weight'],
  ])('%j is rejected', (options, field, fix) => {
    expect(open(options)).toThrow(expect.objectContaining({ code: 'OPTION_INVALID' }))
    expect(open(options)).toThrow(field)
    expect(open(options)).toThrow(fix)
  })

  test.each<[object, string, string]>([
    [{ consistency: 'approximate' }, 'consistency', 'use leased or strict'],
    [{ consistency: 'local' }, 'consistency', 'use leased or strict'],
    [{ shards: 2 }, 'shards', 'use 1'],
    [{ algorithm: 'concurrency', limit: 2 }, 'spread', 'a larger limit'],
    [{ algorithm: 'leaky_bucket', limit: 7, burst: 13 }, 'spread', 'a larger common divisor'],
  ])('a rule with %j is rejected', (fields, field, fix) => {
    const rule = { rule_id: 'a', limit: 10, window: '1m', spread: 'global', ...fields }
    const create = () => createLimiter({ store: example, rules: [rule] })
    expect(create).toThrow(expect.objectContaining({ code: 'RULE_INVALID' }))
    expect(create).toThrow(field)
    expect(create).toThrow(fix)
  })

  test('a limit whose sublimits are too large for exact arithmetic is rejected', () => {
    const { eu: thirds } = world({ shares: { weights: { eu: 1 / 3, us: 1 / 3 } } })
    const rule = { rule_id: 'a', limit: 604_801_814_400, window: '7d', spread: 'global' }
    const create = () => createLimiter({ store: thirds, rules: [rule] })
    expect(create).toThrow('a.spread: use "regional", or a limit that divides the window')
  })
})

test('a region without a share of a limit refuses permanently', async () => {
  const { us } = world({ shares: { weights: { eu: 1, us: 0 }, homeShare: 1 } })
  const refused = { granted: false, grants: [{ short: 'never', remaining: 0, retryAfterUs: Number.POSITIVE_INFINITY }] }
  expect(await us.take({ charges: [chargeOf(limitOf())] })).toMatchObject(refused)
  expect(await us.peek([chargeOf(limitOf())])).toMatchObject(refused)
})
