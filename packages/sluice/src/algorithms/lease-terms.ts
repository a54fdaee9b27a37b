// How much a node may hold ahead of need, and for how long, so that no interval ever sees more than the limit.
//   token bucket     the store knows what is on lease, and it does not flow back meanwhile: held.ts
//   windows          a lease ends with its aligned window, so units count in the window in which they are spent
//   log              what is admitted in W was charged in W + H, H being the longest time from charging to spending:
//                    the store looks back W + H
// Leaky buckets delay and permits are held: neither can be handed out ahead.

import { HELD_MAX } from './held.ts'
import type { LeaseTerms, LeaseWishes, Limit } from './limit.ts'

const TTL_US = 5_000_000
/** Units that flow back within this time by themselves are missed by nobody: a node may keep them for long. */
const MISSED_US = 200_000
/** Values in Redis outlive what they hold by more than this: lua/include/whole.lua. */
const TTL_US_MAX = 30_000_000
/** Of the capacity, on one node. */
const SHARE = 0.1
/** Of a bucket that is hot, and of any where nobody misses as much. */
const HOT_SHARE = 0.2
/** Of a bucket that is met for the first time: if it comes back, it need not be asked again. */
const FIRST_UNITS = 4
/** A log pays for H with its rate, all the time: this is the drift. */
const LOG_DRIFT = 0.04
const WINDOW_PART = 0.25
/** Of what may be counted as on lease, for one node: so that many can hold units of one bucket. */
const NODE_SHARE = 1 / 16

/** Undefined where a lease could not hold even two units: then asking each time costs the same and strands nothing. */
export function leaseTerms(limit: Limit, wishes: LeaseWishes): LeaseTerms | undefined {
  const most = Math.min(wishes.maxUnits ?? Number.POSITIVE_INFINITY, Math.floor(HELD_MAX * NODE_SHARE))
  const unitsOf = (share: number) => Math.min(most, Math.floor(limit.capacity * Math.min(1, wishes.maxShare ?? share)))
  const usual = unitsOf(SHARE)
  const hotUnitsMax = unitsOf(HOT_SHARE)
  const unitsMax = isMissed(limit, hotUnitsMax) ? usual : hotUnitsMax
  const ttlUs = Math.floor(Math.min(wishes.ttlUs ?? (isMissed(limit, usual) ? TTL_US : TTL_US_MAX), longestUs(limit)))
  if (ttlUs < limit.tickUs || (usual < 2 && !wishes.always)) return undefined
  const firstUnits = isMissed(limit, usual) ? 0 : Math.min(FIRST_UNITS, usual)
  return { charged: chargedLimit(limit, ttlUs), firstUnits, unitsMax, hotUnitsMax, ttlUs }
}

/** Whether units that nobody spends would take long to flow back by themselves, as those of windows do. */
export function isMissed({ algorithm, units, windowUs }: Limit, count: number): boolean {
  return algorithm !== 'token_bucket' || count * windowUs > MISSED_US * units
}

function longestUs({ algorithm, units, windowUs }: Limit): number {
  if (units === 0) return 0
  if (algorithm === 'token_bucket') return TTL_US_MAX
  if (algorithm === 'sliding_window_log') return Math.min(TTL_US_MAX, LOG_DRIFT * windowUs)
  return algorithm === 'fixed_window' || algorithm === 'sliding_window' ? WINDOW_PART * windowUs : 0
}

function chargedLimit(limit: Limit, ttlUs: number): Limit {
  if (limit.algorithm === 'sliding_window_log') return { ...limit, windowUs: limit.windowUs + ttlUs }
  if (limit.algorithm !== 'token_bucket') return limit
  return { ...limit, holdTicks: Math.ceil(ttlUs / limit.tickUs) }
}
