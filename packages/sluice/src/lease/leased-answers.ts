// What a check is told that no store was asked for: the answers of leases.

import { SoleTaken } from '../algorithms/grant.ts'
import type { Charge, Grant, Short, Source } from '../store/store.ts'
import type { Lease } from './lease.ts'

export function isRefused(lease: Lease, { kind, min }: Charge, nowMs: number): boolean {
  return kind === 'enforce' && lease.isRefused(min, nowMs)
}

/** A limit in shadow that is known to be spent needs nothing: it refuses nobody. */
export function canPay(lease: Lease, { limit, kind, min }: Charge, nowMs: number): boolean {
  if (limit.lease === undefined || kind === 'force') return false
  return lease.held(nowMs) >= min || (kind === 'shadow' && lease.isRefused(min, nowMs))
}

/** What most takes are answered with: one charge, paid by its lease or known to be refused. */
export class LeasedTaken extends SoleTaken {
  readonly bookedUs: number

  constructor(
    granted: boolean,
    nowUs: number,
    units: number,
    short: Short,
    remaining: number,
    resetAfterUs: number,
    retryAfterUs: number,
    bookedUs: number,
  ) {
    super(granted, nowUs, units, short, remaining, resetAfterUs, retryAfterUs, 0)
    this.bookedUs = bookedUs
  }

  override get source(): Source {
    return 'lease'
  }
}

/** The answer to `units` that were spent, or refused (`short`), as far as this node knows. */
export function grantOf(lease: Lease, units: number, short: Short, bookedUs: number, nowMs: number): Grant {
  return {
    units,
    short,
    remaining: short === false ? lease.remaining(nowMs) : 0,
    resetAfterUs: lease.resetAfterUs(nowMs),
    retryAfterUs: short === false ? 0 : lease.retryAfterUs(nowMs),
    delayUs: 0,
    bookedUs,
  }
}

/** Units beyond those needed are held for later, and left all the same. */
export function withoutHeld(grant: Grant, needed: number): Grant {
  const { short, resetAfterUs, retryAfterUs, delayUs, at } = grant
  const remaining = grant.remaining + grant.units - needed
  return { units: needed, short, remaining, resetAfterUs, retryAfterUs, delayUs, at }
}

/** Refused in shadow, which holds nobody up. */
export function spentInShadow(lease: Lease, nowMs: number): Grant {
  return grantOf(lease, 0, 'now', 0, nowMs)
}
