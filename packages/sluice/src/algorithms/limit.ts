// Compiled limit: the numbers of one (rule, limit), ready for exact integer arithmetic. All products of the algorithms
// stay below 2^53, because compileLimit rejects numbers for which they would not.

import { LimiterError } from '../errors.ts'
import { approximateTerms } from './approximate-terms.ts'
import { leaseTerms } from './lease-terms.ts'
import { ALGORITHMS, type AlgorithmName } from './traits.ts'

export type Limit = {
  /** Unique among all limits: rule id, limit name and variant. With owner and detail it names a bucket. */
  readonly id: string
  /**
   * Fact of the owner of a bucket (`user`, `ip`, …, or `` for a single bucket). The same text under two facts is
   * two owners.
   */
  readonly fact: string
  readonly algorithm: AlgorithmName
  /**
   * Grows with each edit of the rule. A store does not let an older generation overwrite a newer one.
   */
  readonly generation: number
  /** Units per window. */
  readonly units: number
  readonly windowUs: number
  /** Most units that a bucket can hold: `burst` where the algorithm has one, `units` otherwise. */
  readonly capacity: number
  /** Time resolution: 1 µs, or coarser where products would reach 2^53, which errs low. */
  readonly tickUs: number
  readonly windowTicks: number
  /** Token and leaky bucket: subunits that a unit costs, and that a tick refills. */
  readonly subunitsPerUnit: number
  readonly subunitsPerTick: number
  /** Token bucket: longest lease (held.ts); 0 for none. */
  readonly holdTicks: number
  /** Whether `detail` has few values (a matched pattern), so that buckets of one owner may share a value in Redis. */
  readonly detailBounded: boolean
  /** Failure policy, applied while the store is unavailable. */
  readonly onFail: OnFail
  /** Lease terms; undefined if every admission goes to the store. */
  readonly lease: LeaseTerms | undefined
  /** Whether a node may refuse without asking the store, for REFUSAL_MS: not if the rule is strict. */
  readonly cachesRefusals: boolean
  /** Terms of `consistency: approximate`; undefined for other limits. */
  readonly approximate: ApproximateTerms | undefined
  /** Counted in each process against its node share, without the store. */
  readonly local: boolean
  /** Name of the store that keeps its buckets. */
  readonly store: string
  /** Shards of a split bucket, largest first; shard-store.ts charges one of them instead. */
  readonly shards: readonly Limit[] | undefined
  /** Set if this limit is a shard. */
  readonly shard: Shard | undefined
  /** Source numbers, if regions share it: each region compiles its own sublimits (regions/region-limits.ts). */
  readonly spread: LimitNumbers | undefined
  /**
   * Set for a counterfactual bucket: the same numbers under the id of the live bucket, whose state it starts from. Its
   * own id is that id after a prefix of eleven characters: `old^` or `new^`, the tag of the rollout, and `^`.
   */
  readonly seed: Limit | undefined
}

/** `index` counts from 1; `whole` is the limit before it was split. */
export type Shard = { readonly index: number; readonly whole: Limit }

/** Failure policies: failure/policy.ts. */
export const ON_FAIL = ['open', 'closed', 'local'] as const

export type OnFail = (typeof ON_FAIL)[number]

/** See algorithms/lease-terms.ts. */
export type LeaseTerms = {
  /** The limit that the store applies, with the margin that leases need. */
  readonly storeLimit: Limit
  /** Units leased with the first request for a bucket. */
  readonly firstUnits: number
  /** Most units in one lease request, and the same for a hot bucket. */
  readonly unitsMax: number
  readonly hotUnitsMax: number
  /** Longest time from charging to spending. */
  readonly ttlUs: number
}

/** See algorithms/approximate-terms.ts. */
export type ApproximateTerms = {
  /** Longest time between syncs. */
  readonly syncMs: number
  /** Most units of one bucket that a node has admitted and the store has not acknowledged. */
  readonly unsyncedMax: number
  /** Time after which no unit affects the bucket any more. */
  readonly retentionMs: number
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
  readonly lease?: LeaseConfig
  readonly approximate?: ApproximateConfig
  readonly local?: boolean
  readonly shards?: number
  readonly store?: string
  /** Whether regions share it. */
  readonly spread?: boolean
}

/** Lease settings of a rule; lease-terms.ts adds defaults and bounds. */
export type LeaseConfig = {
  readonly maxUnits?: number | undefined
  readonly maxShare?: number | undefined
  readonly ttlUs?: number | undefined
  /** Applies lease margins even if the limit is too small for leases: a sublimit of a leased limit. */
  readonly always?: boolean
}

/** Settings of a rule with `consistency: approximate`. */
export type ApproximateConfig = {
  readonly syncMs?: number | undefined
  readonly maxUnsynced?: number | undefined
}

/**
 * The log keeps an entry per admitted request, so its limit is capped. Use the sliding window above it.
 */
export const LOG_UNITS_MAX = 1000
/** Permits are stored one by one. */
export const CONCURRENCY_UNITS_MAX = 1000
/** Two counts of a sliding window share one 52-bit number in the memory store. */
export const SLIDING_UNITS_MAX: number = 2 ** 26 - 1
/** Cap on counts and debts: sums stay exact, and stores keep a number in 52 bits. */
export const STATE_MAX: number = 2 ** 52 - 1
/** Leaves room for debt as large as the capacity. */
const SUBUNITS_MAX = 2 ** 51
/** Store of a limit that names none. */
export const DEFAULT_STORE = 'default'
const TICKS_US = [1, 1_000, 1_000_000] as const
export const WINDOW_US_MAX: number = 366 * 86_400 * 1_000_000

export function compileLimit(numbers: LimitNumbers): Limit {
  const whole = compileOne(numbers, undefined)
  const { shards: count = 1, units } = numbers
  if (count === 1 || units === 0) return whole
  const shards = Array.from({ length: count }, (_, place): Limit => {
    const share = (total: number) => Math.floor(total / count) + (place < total % count ? 1 : 0)
    const index = place + 1
    // A prefix, so that no rule or plan name can equal it.
    const own = { id: `${index}%${numbers.id}`, units: share(units), burst: share(whole.capacity) }
    return compileOne({ ...numbers, ...own }, { index, whole })
  })
  return { ...whole, shards }
}

/**
 * A limit whose bucket starts from the live bucket with the id in `numbers`. `role` tells two such buckets apart, and
 * `tag`, of TAG_LENGTH characters, those of two rollouts: the state of an earlier one says nothing about the next.
 */
export function compileCounterfactual(
  numbers: LimitNumbers,
  role: keyof typeof ROLE_PREFIXES,
  tag: string = NO_TAG,
): Limit {
  const seed = compileLimit(numbers)
  // A limit of 0 admits nothing, whatever its state.
  return { ...seed, id: `${ROLE_PREFIXES[role]}${tag}^${seed.id}`, seed: seed.units === 0 ? undefined : seed }
}

/** Length of the tag of a rollout. The script in Redis relies on it. */
export const TAG_LENGTH = 6
const NO_TAG = '0'.repeat(TAG_LENGTH)

/** Prefixes of the ids of counterfactual buckets, by the version of the rule that they count. */
export const ROLE_PREFIXES = { current: 'old^', candidate: 'new^' } as const

export function isCounterfactualId(id: string): boolean {
  return Object.values(ROLE_PREFIXES).some((prefix) => id.startsWith(prefix))
}

function compileOne(numbers: LimitNumbers, shard: Shard | undefined): Limit {
  const { algorithm, units, windowUs } = numbers
  const { burst, windows } = ALGORITHMS[algorithm]
  const capacity = burst && units > 0 ? (numbers.burst ?? units) : units
  for (const tickUs of TICKS_US) {
    if (windowUs % tickUs !== 0) break
    const windowTicks = windowUs / tickUs
    const shared = units === 0 ? 1 : greatestCommonDivisor(windowTicks, units)
    const subunitsPerUnit = windowTicks / shared
    // The sliding window multiplies counts by ticks, buckets with burst multiply units by subunits.
    const product = windows === 2 ? units * windowTicks : burst ? capacity * subunitsPerUnit : 0
    if (product >= SUBUNITS_MAX) continue
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
      subunitsPerUnit,
      subunitsPerTick: units / shared,
      holdTicks: 0,
      detailBounded: numbers.detailBounded ?? true,
      onFail: numbers.onFail ?? 'open',
      lease: undefined,
      cachesRefusals: numbers.lease !== undefined,
      approximate: undefined,
      local: numbers.local ?? false,
      store: numbers.store ?? DEFAULT_STORE,
      shards: undefined,
      shard,
      spread: numbers.spread && units > 0 ? numbers : undefined,
      seed: undefined,
    }
    const { lease, approximate } = numbers
    if (approximate !== undefined) return { ...limit, approximate: approximateTerms(limit, approximate) }
    return lease === undefined ? limit : { ...limit, lease: leaseTerms(limit, lease) }
  }
  throw new LimiterError('RULE_INVALID', `${numbers.id}: ${TOO_LARGE}`)
}

/** Fix of the only mistake that compilation finds. */
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
