// Lease terms: how many units a node may lease and for how long, so that no interval admits more than the limit.
//   held      token bucket: the store counts units on lease, and they do not refill (held.ts)
//   window    a lease ends with its aligned window, so units count in the window in which they are spent
//   lookback  log: units admitted within W were charged within W + H, where H is the lease TTL, so the store looks
//             back W + H
// A leaky bucket delays requests and permits have a holder: neither can be leased.

import { HELD_MAX } from './held.ts'
import type { LeaseConfig, LeaseTerms, Limit } from './limit.ts'
import { ALGORITHMS } from './traits.ts'

const TTL_US = 5_000_000
/** A bucket that refills the leased units within this time may be leased for longer. */
const SLOW_REFILL_US = 200_000
/** Must stay below the extra TTL of values in Redis (lua/include/ttl.lua). */
const TTL_US_MAX = 30_000_000
/** Share of the capacity that one node may lease. */
const SHARE = 0.1
/** The same for hot and fast-refilling buckets. */
const HOT_SHARE = 0.2
/** Units leased with the first request for a bucket, so that a second request needs no round trip. */
const FIRST_UNITS = 4
/** Lease TTL of a log as a share of its window. The longer lookback lowers the rate by as much. */
const LOG_DRIFT = 0.04
/** Longest lease of a window, as a share of the window. */
const WINDOW_SHARE = 0.25
/** Share of HELD_MAX that one node may lease, so that many nodes can lease one bucket. */
const NODE_SHARE = 1 / 16

/** Returns undefined if a lease would hold fewer than two units: it would save no round trips. */
export function leaseTerms(limit: Limit, config: LeaseConfig): LeaseTerms | undefined {
  const most = Math.min(config.maxUnits ?? Number.POSITIVE_INFINITY, Math.floor(HELD_MAX * NODE_SHARE))
  const unitsOf = (share: number) => Math.min(most, Math.floor(limit.capacity * Math.min(1, config.maxShare ?? share)))
  const usual = unitsOf(SHARE)
  const hotUnitsMax = unitsOf(HOT_SHARE)
  const unitsMax = refillsSlowly(limit, hotUnitsMax) ? usual : hotUnitsMax
  const ttlUs = Math.floor(
    Math.min(config.ttlUs ?? (refillsSlowly(limit, usual) ? TTL_US : TTL_US_MAX), longestUs(limit)),
  )
  if (ttlUs < limit.tickUs || (usual < 2 && !config.always)) return undefined
  const firstUnits = refillsSlowly(limit, usual) ? 0 : Math.min(FIRST_UNITS, usual)
  return { storeLimit: withLeaseMargin(limit, ttlUs), firstUnits, unitsMax, hotUnitsMax, ttlUs }
}

/** Whether `count` unspent units would take long to refill, as units of windows do. */
export function refillsSlowly({ algorithm, units, windowUs }: Limit, count: number): boolean {
  return ALGORITHMS[algorithm].lease !== 'held' || count * windowUs > SLOW_REFILL_US * units
}

function longestUs({ algorithm, units, windowUs }: Limit): number {
  if (units === 0) return 0
  switch (ALGORITHMS[algorithm].lease) {
    case 'held':
      return TTL_US_MAX
    case 'window':
      return WINDOW_SHARE * windowUs
    case 'lookback':
      return Math.min(TTL_US_MAX, LOG_DRIFT * windowUs)
    case 'none':
      return 0
  }
}

function withLeaseMargin(limit: Limit, ttlUs: number): Limit {
  const { lease } = ALGORITHMS[limit.algorithm]
  if (lease === 'lookback') return { ...limit, windowUs: limit.windowUs + ttlUs }
  return lease === 'held' ? { ...limit, holdTicks: Math.ceil(ttlUs / limit.tickUs) } : limit
}
