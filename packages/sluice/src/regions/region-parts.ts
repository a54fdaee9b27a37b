// One region's parts of a limit: its home, counted in the region's own store, and the pool, which is one for all and is
// leased. Over all regions they never add up to more than the limit:
//
//   home_i = floor(h · w_i · limit)      pool = limit − Σ home_i
//
// While shares are being changed, each part is the smaller of what it was and what it will be. So a fleet in which some
// nodes have the old shares and others both has at most Σ old, one in which some have both and others the new ones at
// most Σ new; and in between everything that was charged under the old shares is forgotten (docs/guides/regions.md).
//
// Buckets are split into whole multiples of the smallest bucket of the same shape: rate and burst of all parts, under
// any shares, have one ratio. Otherwise nodes with different shares, which take turns in one bucket, would forgive what
// is owed there each time they do (algorithms/edit.ts).

import {
  compileLimit,
  DEFAULT_STORE,
  greatestCommonDivisor,
  type Limit,
  type LimitNumbers,
} from '../algorithms/limit.ts'
import { isBucket } from '../algorithms/registry.ts'
import type { BucketName, Charge } from '../store/store.ts'
import { ALL, type ExactShares, homesOf } from './shares.ts'

export type RegionParts = {
  /** Undefined where this region has no unit of its own. */
  readonly home: Limit | undefined
  /** Undefined where nothing can be leased: leaky buckets and permits are split by weight, all of them. */
  readonly pool: Limit | undefined
}

/** Units of each part, whatever the region. */
export type Split = {
  readonly homes: ReadonlyMap<string, number>
  readonly pool: number
}

/** The smaller of several shares, part by part. In units, and of a bucket's burst in proportion. */
export function splitUnits(limit: Limit, shares: readonly ExactShares[]): Split {
  const steps = stepsOf(limit)
  const unitsPerStep = limit.units / steps
  const fixed = isFixed(limit)
  const splits = shares.map((each) => {
    const homes = homesOf(each, steps, fixed ? ALL : undefined)
    const pool = [...homes.values()].reduce((left, home) => left - home, steps)
    return { homes, pool: fixed ? 0 : pool }
  })
  const names = new Set(splits.flatMap(({ homes }) => [...homes.keys()]))
  const smallest = (name: string) => Math.min(...splits.map(({ homes }) => homes.get(name) ?? 0)) * unitsPerStep
  return {
    homes: new Map([...names].map((name) => [name, smallest(name)])),
    pool: Math.min(...splits.map(({ pool }) => pool)) * unitsPerStep,
  }
}

/** Throws RULE_INVALID when the parts are too odd for exact arithmetic. */
export function regionParts(limit: Limit, shares: readonly ExactShares[], name: string): RegionParts {
  const numbers = limit.spread
  if (numbers === undefined) return { home: limit, pool: undefined }
  const { homes, pool } = splitUnits(limit, shares)
  const home = homes.get(name) ?? 0
  const { lease: wishes, ...others } = numbers
  const part = (units: number, own: Partial<LimitNumbers>) => {
    const burst = (units * limit.capacity) / limit.units
    // Leases last equally long under any shares: if they got shorter, the store would forget what is still held.
    const lease = limit.lease && { lease: { ...wishes, ttlUs: limit.lease.ttlUs, always: true } }
    return compileLimit({ ...others, ...own, units, burst, spread: false, ...lease })
  }
  return {
    home: home > 0 ? part(home, {}) : undefined,
    // Another store, and another name too: somebody may have both in one. Without the pool, a region has its home.
    pool: pool > 0 ? part(pool, { id: poolId(numbers.id), onFail: 'closed', store: DEFAULT_STORE }) : undefined,
  }
}

/** In front, where no name of a rule or a plan can look like it. */
function poolId(id: string): string {
  return `pool%${id}`
}

export function isPool({ id }: Limit): boolean {
  return id.startsWith(poolId(''))
}

/** Why regions cannot share a limit; undefined when they can. */
export function refusalOf(limit: Limit, shares: readonly ExactShares[]): string | undefined {
  if (limit.units === 0 || !isFixed(limit)) return undefined
  for (const each of shares) {
    for (const [name, weight] of each.weights) {
      if (weight === 0 || splitUnits(limit, [each]).homes.get(name) !== 0) continue
      const advice = isBucket(limit.algorithm) ? 'a limit and a burst with a larger common divisor' : 'a larger limit'
      return `use "regional", or ${advice}: ${limit.algorithm} is split by weight, and nothing is left for ${name}`
    }
  }
  return undefined
}

function isFixed({ algorithm }: Limit): boolean {
  return algorithm === 'leaky_bucket' || algorithm === 'concurrency'
}

function stepsOf({ algorithm, units, capacity }: Limit): number {
  return isBucket(algorithm) ? greatestCommonDivisor(units, capacity) : units
}

/** A charge against a part of its limit. Field by field, as all charges are made: V8 takes its time with others. */
export function ofPart({ owner, detail, min, max, kind }: Charge, limit: Limit): Charge {
  return { limit, owner, detail, min, max, kind }
}

export function isSpread({ limit }: BucketName): boolean {
  return limit.spread !== undefined
}
