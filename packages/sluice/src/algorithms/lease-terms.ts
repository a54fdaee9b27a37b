// How much a node may hold ahead of need, and for how long, so that no interval ever sees more than the limit.
// H is the longest time from charging to spending. What is admitted in an interval of length T was charged in one of
// T + H, so the store is charged under a limit that is tighter by what H is worth:
//   token bucket     at most B' + r·(T + H) is charged; with B' = B − r·H that is B + r·T
//   windows          a lease ends with its aligned window, so units count in the window in which they are spent
//   log              the store looks back W + H
// Leaky buckets delay and permits are held: neither can be handed out ahead.

import type { LeaseTerms, LeaseWishes, Limit } from './limit.ts'

const TTL_US = 2_000_000
const SHARE = 0.1
/** H in parts of what it would be worth: the drift that leases may cost. */
const DRIFT = 0.05
/** A log pays for H with its rate, all the time, and so gets less of it. */
const LOG_DRIFT = 0.04
const WINDOW_PART = 0.25

/** Undefined where a lease could not hold even two units: then asking each time costs the same and strands nothing. */
export function leaseTerms(limit: Limit, wishes: LeaseWishes): LeaseTerms | undefined {
  const ttlUs = Math.floor(Math.min(wishes.ttlUs ?? TTL_US, longestUs(limit)))
  const charged = ttlUs > 0 ? chargedLimit(limit, ttlUs) : undefined
  if (charged === undefined) return undefined
  const share = Math.floor(charged.capacity * Math.min(1, wishes.maxShare ?? SHARE))
  const unitsMax = Math.min(wishes.maxUnits ?? Number.POSITIVE_INFINITY, share)
  return unitsMax < 2 ? undefined : { charged, unitsMax, ttlUs }
}

function longestUs({ algorithm, units, capacity, windowUs }: Limit): number {
  if (units === 0) return 0
  if (algorithm === 'token_bucket') return (DRIFT * capacity * windowUs) / units
  if (algorithm === 'sliding_window_log') return LOG_DRIFT * windowUs
  return algorithm === 'fixed_window' || algorithm === 'sliding_window' ? WINDOW_PART * windowUs : 0
}

function chargedLimit(limit: Limit, ttlUs: number): Limit | undefined {
  if (limit.algorithm === 'sliding_window_log') return { ...limit, windowUs: limit.windowUs + ttlUs }
  if (limit.algorithm !== 'token_bucket') return limit
  const capacity = limit.capacity - Math.ceil((limit.units * ttlUs) / limit.windowUs)
  return capacity < 1 ? undefined : { ...limit, capacity }
}
