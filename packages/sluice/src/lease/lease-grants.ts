// Builds the grants for checks served from a lease.

import type { BucketName, Charge, Grant, Short, Taken } from '../store/store.ts'
import type { LeaseRows } from './lease-rows.ts'

/** One charge of a query to the store, and the row of the lease that its reply fills (-1: none). */
export type Query = { readonly bucket: BucketName; readonly storeCharge: Charge; readonly row: number }

export function isRefused(rows: LeaseRows, row: number, { kind, min }: Charge, nowMs: number): boolean {
  return kind === 'enforce' && rows.isRefused(row, min, nowMs)
}

/** Whether held units may pay for the charge. */
export function isLeasable({ limit, kind }: Charge): boolean {
  return limit.lease !== undefined && kind !== 'force'
}

/** Whether the lease decides the charge: it covers it, or it knows that a shadow charge is refused. */
export function canPay(rows: LeaseRows, row: number, charge: Charge, nowMs: number): boolean {
  const { kind, min } = charge
  if (!isLeasable(charge)) return false
  return rows.canSpend(row, min, nowMs) || (kind === 'shadow' && rows.isRefused(row, min, nowMs))
}

/** Pays a charge that `canPay`. */
export function pay(rows: LeaseRows, row: number, { min }: Charge, nowMs: number): Grant {
  if (!rows.canSpend(row, min, nowMs)) return shadowRefusal(rows, row, nowMs)
  return leaseGrant(rows, row, min, false, rows.spend(row, min, nowMs), nowMs)
}

/** Units of all charges, apart from counterfactual ones. */
export function unitsNeeded(charges: readonly Charge[]): number {
  let units = 0
  for (const { min, kind } of charges) if (kind !== 'counterfactual') units += min
  return units
}

/** The grant for `units` that were spent or, with `short`, refused. */
export function leaseGrant(
  rows: LeaseRows,
  row: number,
  units: number,
  short: Short,
  bookedUs: number,
  nowMs: number,
): Grant {
  return {
    units,
    short,
    remaining: short === false ? rows.remaining(row, nowMs) : 0,
    resetAfterUs: rows.resetAfterUs(row, nowMs),
    retryAfterUs: short === false ? rows.retryAfterUs(row, units, nowMs) : rows.refusedForUs(row, nowMs),
    delayUs: 0,
    bookedUs,
    spentUs: rows.spentUs(row, bookedUs, nowMs),
  }
}

/** The grant of a shadow charge that the lease knows to be refused. */
export function shadowRefusal(rows: LeaseRows, row: number, nowMs: number): Grant {
  return leaseGrant(rows, row, 0, 'now', 0, nowMs)
}

/** One grant per charge: those that leases paid, and the store's for the rest. A refused take pays nothing. */
export function combinedGrants(
  charges: readonly Charge[],
  paid: readonly (Grant | undefined)[],
  { granted, grants }: Taken,
): Grant[] {
  let next = 0
  return charges.map((charge, index): Grant => {
    const own = paid[index]
    if (own !== undefined) return granted ? own : { ...own, units: 0 }
    const grant = grants[next] as Grant // one per unpaid charge
    next += 1
    return grant.units > charge.max ? withoutHeld(grant, charge.min) : grant
  })
}

/** The store's grant without the units that the lease keeps, which still count as remaining. */
function withoutHeld(grant: Grant, needed: number): Grant {
  const { short, resetAfterUs, delayUs, at } = grant
  const remaining = grant.remaining + grant.units - needed
  const retryAfterUs = remaining < needed ? grant.retryAfterUs : 0
  return { units: needed, short, remaining, resetAfterUs, retryAfterUs, delayUs, at }
}
