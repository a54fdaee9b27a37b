// Batch size: how many units a node takes ahead. Also how long leases and pauses last.

import { refillsSlowly } from '../algorithms/lease-terms.ts'
import type { LeaseTerms, Limit } from '../algorithms/limit.ts'
import { ALGORITHMS } from '../algorithms/traits.ts'
import { type Grant, REFUSAL_MS } from '../store/store.ts'

/**
 * Cap on batch growth for buckets that refill slowly: 4 × the units used since the last query. Two requests close
 * together are not a rate, and nodes that treat them as one would drain the bucket.
 */
const GROWTH_MAX = 4
/** For its lease, a bucket is hot when it is queried again within this share of the TTL. */
const HOT_TTL_SHARE = 0.1
/**
 * Batch for an empty bucket, as a share of the capacity. The node queries the bucket again once that much could have
 * refilled, or after the longest pause. Lower for windows, because units still held when the window ends are lost.
 */
const EMPTY_BATCH_SHARE = 0.2
const EMPTY_BATCH_SHARE_WINDOW = 0.08
/** Longest pause before an empty bucket is queried again. */
const EMPTY_PAUSE_MS = REFUSAL_MS
const EMPTY_PAUSE_MS_WINDOW = 100

/** Units to request ahead when `used` were spent in the last `sinceMs`; `shareMax` leaves some for other nodes. */
export function batchUnits(limit: Limit, used: number, sinceMs: number, shareMax: number): number {
  const { lease: terms } = limit
  if (terms === undefined) return 0
  const ttlMs = terms.ttlUs / 1000
  if (sinceMs >= 2 * ttlMs) return terms.firstUnits
  const unitsMax = sinceMs < ttlMs * HOT_TTL_SHARE ? terms.hotUnitsMax : terms.unitsMax
  const grownMax = refillsSlowly(limit, unitsMax) ? used * GROWTH_MAX : unitsMax
  return Math.floor(Math.min(Math.ceil((used * ttlMs) / sinceMs), unitsMax, shareMax, grownMax))
}

/** TTL of a lease. That of a limit too small to lease holds only a refusal. */
export function ttlMsOf(terms: LeaseTerms | undefined): number {
  return terms === undefined ? REFUSAL_MS : terms.ttlUs / 1000
}

export function storeTracksLeases(terms: LeaseTerms | undefined): boolean {
  return (terms?.storeLimit.holdTicks ?? 0) > 0
}

/** Pause before a spent bucket is queried again: until a batch has refilled, rather than per unit. */
export function emptyBucketPauseMs(limit: Limit): number {
  if (limit.lease === undefined) return 0
  const pauseMs = isHeldByStore(limit) ? EMPTY_PAUSE_MS : EMPTY_PAUSE_MS_WINDOW
  return Math.min(pauseMs, (emptyBucketBatchUnits(limit) * limit.windowUs) / limit.units / 1000)
}

export function emptyBucketBatchUnits(limit: Limit): number {
  return limit.capacity * (isHeldByStore(limit) ? EMPTY_BATCH_SHARE : EMPTY_BATCH_SHARE_WINDOW)
}

export function isHeldByStore({ algorithm }: Limit): boolean {
  return ALGORITHMS[algorithm].lease === 'held'
}

/** A lease ends with its window, because units count in the window in which they are spent. */
export function windowEndsInMs({ algorithm, windowUs }: Limit, { resetAfterUs }: Grant): number {
  const { windows } = ALGORITHMS[algorithm]
  if (windows === 0) return Number.POSITIVE_INFINITY
  // A bucket that counts two windows resets at the end of the next one.
  return Math.max(0, (resetAfterUs - (windows - 1) * windowUs) / 1000)
}
