// A compiled limit: the numbers of one (rule, limit), ready for exact integer arithmetic.
// Every product the algorithms form stays below 2^53, because compileLimit refuses numbers whose products would not.

import { LimiterError } from '../errors.ts'
import { approximateTerms } from './approximate-terms.ts'
import { leaseTerms } from './lease-terms.ts'

export const ALGORITHMS = [
  'token_bucket',
  'leaky_bucket',
  'fixed_window',
  'sliding_window',
  'sliding_window_log',
  'concurrency',
] as const

export type AlgorithmName = (typeof ALGORITHMS)[number]

export type Limit = {
  /** Unique among all limits: rule id, limit name and variant. With owner and detail it names a bucket. */
  readonly id: string
  /**
   * Which fact the owner of a bucket is (`user`, `ip`, …, or `` for one bucket in all): the same text under two facts
   * is two owners.
   */
  readonly fact: string
  readonly algorithm: AlgorithmName
  /**
   * Grows with each edit of the rule; a store keeps what a newer generation wrote from being undone by an older one.
   */
  readonly generation: number
  /** Units per window. */
  readonly units: number
  readonly windowUs: number
  /** The most units a bucket can hold: `burst` for the two buckets, `units` for the others. */
  readonly capacity: number
  /** Time is counted in ticks. One microsecond unless the products would reach 2^53; then coarser, which errs low. */
  readonly tickUs: number
  /** The window in ticks. */
  readonly windowTicks: number
  /** Token and leaky bucket: a unit costs `unitParts` parts and a tick brings back `tickParts` of them. */
  readonly unitParts: number
  readonly tickParts: number
  /** Token bucket: how long units may be on lease (held.ts); 0: they may not. */
  readonly holdTicks: number
  /** Whether facts behind `detail` are few (a matched pattern): then buckets of one owner may be stored together. */
  readonly detailBounded: boolean
  /** What decides when the store does not. */
  readonly onFail: OnFail
  /** How units may be held ahead of need by a node; undefined where every check asks the store. */
  readonly lease: LeaseTerms | undefined
  /** How far a node may go without the store; undefined where it may not. */
  readonly approximate: ApproximateTerms | undefined
  /** Counted in each process, against its part: the store is never asked. */
  readonly local: boolean
  /** The name of the store that its buckets live in, where there are several. */
  readonly store: string
  /** The parts of a bucket that is split, by their size: a store that keeps them apart charges one of them instead. */
  readonly shards: readonly Limit[] | undefined
  /** Set on such a part. */
  readonly shard: Shard | undefined
  /** What it was compiled of, where regions share it: each compiles its own part (regions/region-parts.ts). */
  readonly spread: LimitNumbers | undefined
}

/** `index` counts from 1; `whole` is the limit before it was split. */
export type Shard = { readonly index: number; readonly whole: Limit }

export type OnFail = 'open' | 'closed' | 'local'

/** See algorithms/lease-terms.ts. */
export type LeaseTerms = {
  /** The limit as it is charged in the store, which has to know of leases. */
  readonly charged: Limit
  /** Asked for when a bucket is met for the first time: for others than the one request that needs some. */
  readonly firstUnits: number
  /** Most units that one node asks for at once of one bucket, and of one that is hot. */
  readonly unitsMax: number
  readonly hotUnitsMax: number
  /** Longest time from charging to spending. */
  readonly ttlUs: number
}

/** See algorithms/approximate-terms.ts. */
export type ApproximateTerms = {
  /** What a node has admitted is told to the store after this time at the latest. */
  readonly syncMs: number
  /** Most units of one bucket that a node has admitted and the store has not acknowledged. */
  readonly unsyncedMax: number
  /** As long as a bucket remembers anything. */
  readonly remembersMs: number
}

export type LimitNumbers = {
  readonly id: string
  readonly fact?: string
  readonly algorithm: AlgorithmName
  readonly generation?: number
  readonly units: number
  readonly windowUs: number
  readonly burst?: number
  readonly detailBounded?: boolean
  readonly onFail?: OnFail
  readonly lease?: LeaseWishes
  readonly approximate?: ApproximateWishes
  readonly local?: boolean
  readonly shards?: number
  readonly store?: string
  /** Whether regions share it. */
  readonly spread?: boolean
}

/** What a rule asks for; the rest, and the bounds, are up to lease-terms.ts. */
export type LeaseWishes = {
  readonly maxUnits?: number | undefined
  readonly maxShare?: number | undefined
  readonly ttlUs?: number | undefined
  /** Charged as if it were leased even where it is too small for that: a part of a limit whose other parts are not. */
  readonly always?: boolean
}

/** The same, of a limit that nodes count on their own. */
export type ApproximateWishes = {
  readonly syncMs?: number | undefined
  readonly maxUnsynced?: number | undefined
}

/**
 * The log keeps an entry per admitted request, so its limit is capped: above it, the sliding window is the right tool.
 */
export const LOG_UNITS_MAX = 1000
/** Permits are kept one by one as well. */
export const CONCURRENCY_UNITS_MAX = 1000
/** Two counts of a sliding window share one 52-bit number in the memory store. */
export const SLIDING_UNITS_MAX: number = 2 ** 26 - 1
/** Counts and debts stop here: sums are still exact, and the stores keep a number in 52 bits. */
export const STATE_MAX: number = 2 ** 52 - 1
/** Leaves room for debt: a bucket may owe as much again as it can hold. */
const PARTS_MAX = 2 ** 51
/** The store of a limit that names none. */
export const DEFAULT_STORE = 'default'
const TICKS_US = [1, 1_000, 1_000_000] as const
export const WINDOW_US_MAX: number = 366 * 86_400 * 1_000_000

export function compileLimit(numbers: LimitNumbers): Limit {
  const whole = compileOne(numbers, undefined)
  const { shards: count = 1, units } = numbers
  if (count === 1 || units === 0) return whole
  const shards = Array.from({ length: count }, (_, place): Limit => {
    const part = (total: number) => Math.floor(total / count) + (place < total % count ? 1 : 0)
    const index = place + 1
    // In front, where no name of a rule or a plan can look like it.
    const own = { id: `${index}%${numbers.id}`, units: part(units), burst: part(whole.capacity) }
    return compileOne({ ...numbers, ...own }, { index, whole })
  })
  return { ...whole, shards }
}

function compileOne(numbers: LimitNumbers, shard: Shard | undefined): Limit {
  const { algorithm, units, windowUs } = numbers
  const bucket = algorithm === 'token_bucket' || algorithm === 'leaky_bucket'
  const capacity = bucket && units > 0 ? (numbers.burst ?? units) : units
  for (const tickUs of TICKS_US) {
    if (windowUs % tickUs !== 0) break
    const windowTicks = windowUs / tickUs
    const shared = units === 0 ? 1 : greatestCommonDivisor(windowTicks, units)
    const unitParts = windowTicks / shared
    // The sliding window multiplies counts by ticks, the buckets multiply units by parts; the others multiply nothing.
    const product = algorithm === 'sliding_window' ? units * windowTicks : bucket ? capacity * unitParts : 0
    if (product >= PARTS_MAX) continue
    const limit: Limit = {
      id: numbers.id,
      fact: numbers.fact ?? '',
      algorithm,
      generation: numbers.generation ?? 0,
      units,
      windowUs,
      capacity,
      tickUs,
      windowTicks,
      unitParts,
      tickParts: units / shared,
      holdTicks: 0,
      detailBounded: numbers.detailBounded ?? true,
      onFail: numbers.onFail ?? 'open',
      lease: undefined,
      approximate: undefined,
      local: numbers.local ?? false,
      store: numbers.store ?? DEFAULT_STORE,
      shards: undefined,
      shard,
      spread: numbers.spread && units > 0 ? numbers : undefined,
    }
    const { lease, approximate } = numbers
    if (approximate !== undefined) return { ...limit, approximate: approximateTerms(limit, approximate) }
    return lease === undefined ? limit : { ...limit, lease: leaseTerms(limit, lease) }
  }
  throw new LimiterError('RULE_INVALID', `${numbers.id}: ${TOO_LARGE}`)
}

/** The fix of the one mistake that only compilation can see. */
export const TOO_LARGE: string =
  'limit × window is too large for exact arithmetic: ' +
  'lower the limit, shorten the window, or choose a limit that divides the window'

/** Windows are aligned to the epoch. */
export function windowIndex(limit: Limit, nowUs: number): number {
  return Math.floor(nowUs / limit.windowUs)
}

export function greatestCommonDivisor(a: number, b: number): number {
  return b === 0 ? a : greatestCommonDivisor(b, a % b)
}
