// Results of takes of one charge that a lease decides without a round trip.

import { SoleTaken } from '../store/grant.ts'
import type { Taken } from '../store/store.ts'
import type { LeaseRows } from './lease-rows.ts'

/** A take of one charge, paid with `units` just spent from the lease. */
export function spentTaken(rows: LeaseRows, row: number, units: number, bookedUs: number, nowUs: number): Taken {
  const nowMs = nowUs / 1000
  return new SoleTaken({
    granted: true,
    nowUs,
    units,
    short: false,
    remaining: rows.remaining(row, nowMs),
    resetAfterUs: rows.resetAfterUs(row, nowMs),
    retryAfterUs: rows.retryAfterUs(row, units, nowMs),
    delayUs: 0,
    source: 'lease',
    bookedUs,
    spentUs: rows.spentUs(row, bookedUs, nowMs),
  })
}

/** A take of one charge, refused because the store refused a recent one. */
export function refusedTaken(rows: LeaseRows, row: number, nowUs: number): Taken {
  const nowMs = nowUs / 1000
  return new SoleTaken({
    granted: false,
    nowUs,
    units: 0,
    short: 'now',
    remaining: 0,
    resetAfterUs: rows.resetAfterUs(row, nowMs),
    retryAfterUs: rows.refusedForUs(row, nowMs),
    delayUs: 0,
    source: 'lease',
    bookedUs: 0,
    spentUs: undefined,
  })
}
