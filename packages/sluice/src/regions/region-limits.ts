// Sublimits of one region: its home, counted in the region's own store, and the pool, which all regions share and lease
// from. Over all regions they never add up to more than the limit:
//
//   home_i = floor(h · w_i · limit)      pool = limit − Σ home_i
//
// Shares are changed in two steps: first all nodes get old and new shares, then only the new ones. With both, each
// sublimit is the smaller of its old and its new size, so the sublimits stay within the limit during either step.
// Between the steps, everything charged under the old shares expires (docs/guides/regions.md).
//
// Token and leaky buckets are split into whole multiples of the smallest bucket of the same shape, so that rate and
// burst of every sublimit have one ratio under any shares. With different ratios, nodes with different shares that
// alternate on one bucket would forgive some of its debt each time (algorithms/edit.ts).

import {
  compileLimit,
  DEFAULT_STORE,
  greatestCommonDivisor,
  type Limit,
  type LimitNumbers,
} from '../algorithms/limit.ts'
import { ALGORITHMS } from '../algorithms/traits.ts'
import type { BucketName, Charge } from '../store/store.ts'
import { type ExactShares, homesOf, WHOLE_SHARE } from './shares.ts'

export type RegionLimits = {
  /** Undefined if the region's share is less than a unit. */
  readonly home: Limit | undefined
  /** Undefined for leaky buckets and permits, which cannot be leased: the whole limit is split by weight. */
  readonly pool: Limit | undefined
}

/** Units of the sublimits of all regions. */
export type Split = {
  readonly homes: ReadonlyMap<string, number>
  readonly pool: number
}

/** The smallest of several shares for each sublimit, in units. The burst of a bucket is split in proportion. */
export function splitUnits(limit: Limit, shares: readonly ExactShares[]): Split {
  const steps = stepsOf(limit)
  const unitsPerStep = limit.units / steps
  const unleasable = isUnleasable(limit)
  const splits = shares.map((each) => {
    const homes = homesOf(each, steps, unleasable ? WHOLE_SHARE : undefined)
    const pool = [...homes.values()].reduce((left, home) => left - home, steps)
    return { homes, pool: unleasable ? 0 : pool }
  })
  const names = new Set(splits.flatMap(({ homes }) => [...homes.keys()]))
  const smallest = (name: string) => Math.min(...splits.map(({ homes }) => homes.get(name) ?? 0)) * unitsPerStep
  return {
    homes: new Map([...names].map((name) => [name, smallest(name)])),
    pool: Math.min(...splits.map(({ pool }) => pool)) * unitsPerStep,
  }
}

/** Throws RULE_INVALID if the sublimits are too large for exact arithmetic. */
export function regionLimits(limit: Limit, shares: readonly ExactShares[], name: string): RegionLimits {
  const numbers = limit.spread
  if (numbers === undefined) return { home: limit, pool: undefined }
  const { homes, pool } = splitUnits(limit, shares)
  const home = homes.get(name) ?? 0
  const { lease: leaseOptions, ...others } = numbers
  const sublimit = (units: number, own: Partial<LimitNumbers>) => {
    const burst = (units * limit.capacity) / limit.units
    // Same lease TTL under any shares: with a shorter one, the store would forget units that are still on lease.
    const lease = limit.lease && { lease: { ...leaseOptions, ttlUs: limit.lease.ttlUs, always: true } }
    return compileLimit({ ...others, ...own, units, burst, spread: false, ...lease })
  }
  return {
    home: home > 0 ? sublimit(home, {}) : undefined,
    // An id of its own, because `regional` and `global` may be one Redis. Without the pool, a region has its home.
    pool: pool > 0 ? sublimit(pool, { id: poolId(numbers.id), onFail: 'closed', store: DEFAULT_STORE }) : undefined,
  }
}

/** A prefix that no rule or plan name can have. */
function poolId(id: string): string {
  return `pool%${id}`
}

export function isPool({ id }: Limit): boolean {
  return id.startsWith(poolId(''))
}

/** Reason why regions cannot share a limit; undefined if they can. */
export function refusalOf(limit: Limit, shares: readonly ExactShares[]): string | undefined {
  if (limit.units === 0 || !isUnleasable(limit)) return undefined
  for (const each of shares) {
    for (const [name, weight] of each.weights) {
      if (weight === 0 || splitUnits(limit, [each]).homes.get(name) !== 0) continue
      const advice = ALGORITHMS[limit.algorithm].burst
        ? 'a limit and a burst with a larger common divisor'
        : 'a larger limit'
      return `use "regional", or ${advice}: ${limit.algorithm} is split by weight, and nothing is left for ${name}`
    }
  }
  return undefined
}

function isUnleasable({ algorithm }: Limit): boolean {
  return ALGORITHMS[algorithm].lease === 'none'
}

function stepsOf({ algorithm, units, capacity }: Limit): number {
  return ALGORITHMS[algorithm].burst ? greatestCommonDivisor(units, capacity) : units
}

/** The same charge against a sublimit. */
export function withLimit({ owner, detail, min, max, kind }: Charge, limit: Limit): Charge {
  return { limit, owner, detail, min, max, kind }
}

export function isSpread({ limit }: BucketName): boolean {
  return limit.spread !== undefined
}
