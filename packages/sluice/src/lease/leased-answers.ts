// What a check is told that no store was asked for: the answers of leases. And what a store is asked for.

import type { BucketName, Charge, Grant, Short } from '../store/store.ts'
import type { Lease } from './lease.ts'

/** What the store is asked for, of which bucket, and the row of the lease that is to be filled (-1: none). */
export type Asked = { readonly bucket: BucketName; readonly ask: Charge; readonly row: number }

export function isRefused(lease: Lease, { kind, min }: Charge, nowMs: number): boolean {
  return kind === 'enforce' && lease.isRefused(min, nowMs)
}

/** Whether units that are held may be spent on it. */
export function isLeasable({ limit, kind }: Charge): boolean {
  return limit.lease !== undefined && kind !== 'force'
}

/** A limit in shadow that is known to be spent needs nothing: it refuses nobody. */
export function canPay(lease: Lease, charge: Charge, nowMs: number): boolean {
  const { kind, min } = charge
  return isLeasable(charge) && (lease.canSpend(min, nowMs) || (kind === 'shadow' && lease.isRefused(min, nowMs)))
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
    spentUs: lease.spentUs(bookedUs, nowMs),
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
