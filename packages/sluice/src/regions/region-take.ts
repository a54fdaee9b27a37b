// Takes of which the pool pays some charges and the region the others: tracks who pays, and combines both replies.

import type { Limit } from '../algorithms/limit.ts'
import { SoleTaken } from '../store/grant.ts'
import { type Charge, type Grant, isBinding, NOT_CHARGED, type Taken } from '../store/store.ts'
import type { RegionLimits } from './region-limits.ts'

/** A charge of a take, and what the pool has replied so far. */
export type PendingCharge = {
  readonly charge: Charge
  /** Undefined unless regions share the limit. */
  readonly limits: RegionLimits | undefined
  /** Set once the pool has paid. */
  paid: PoolTaken | undefined
  poolRefusal: Grant | undefined
  /** No request to the pool is left to make: it has replied, is unreachable, or there is none. */
  poolSettled: boolean
}

/** Whether the charge is unpaid, and only the pool can pay it. */
export function needsPool(one: PendingCharge): boolean {
  return hasNoHome(one) && one.paid === undefined
}

/** The charges that the pool has not paid, against the homes of the region. */
export function homeCharges(pending: readonly PendingCharge[]): Charge[] {
  return pending.flatMap(({ charge, limits, paid }) => {
    if (paid !== undefined) return []
    if (limits === undefined) return charge
    return limits.home === undefined ? [] : { ...charge, limit: limits.home }
  })
}

/** Charges that the pool might pay after the region has refused; none if another limit has refused as well. */
export function borrowable(pending: readonly PendingCharge[], { grants }: Taken): PendingCharge[] {
  const home = grants.values()
  const short: PendingCharge[] = []
  for (const one of pending) {
    const grant = one.paid !== undefined || hasNoHome(one) ? undefined : home.next().value
    if (!isBinding(one.charge.kind) || grant === undefined || grant.short === false) continue
    if (one.poolSettled || grant.short === 'stale_rules') return []
    short.push(one)
  }
  return short
}

export function hasNoHome({ limits }: PendingCharge): boolean {
  return limits !== undefined && limits.home === undefined
}

/** Result of a take of one charge, paid or refused by one sublimit; it is its own grant. */
export class SublimitTaken extends SoleTaken {
  readonly sublimit: Limit

  constructor(
    { limit: { capacity } }: Charge,
    sublimit: Limit,
    taken: Taken,
    grant: Grant,
    bookedUs: number | undefined = grant.bookedUs,
  ) {
    const { units, short, resetAfterUs, retryAfterUs, delayUs } = grant
    super({
      granted: taken.granted,
      nowUs: taken.nowUs,
      units,
      short,
      remaining: wholeRemaining(grant.remaining, sublimit.capacity, capacity),
      resetAfterUs,
      retryAfterUs,
      delayUs,
      source: taken.source,
      policyReason: taken.policyReason,
      bookedUs,
      spentUs: grant.spentUs,
    })
    this.sublimit = sublimit
  }
}

/** Units of the pool are on lease even if they are spent immediately, so they are given back as leased units. */
export class PoolTaken extends SublimitTaken {
  declare readonly bookedUs: number

  constructor(charge: Charge, pool: Limit, taken: Taken, grant: Grant) {
    super(charge, pool, taken, grant, grant.bookedUs ?? taken.nowUs)
  }
}

/** The region's reply when no charge is left for it. */
export const NO_CHARGES: Taken = { granted: true, nowUs: 0, grants: [], source: 'lease', replayed: false }

/** `taken`: the region's reply about all unpaid charges; undefined if it was not queried. */
export function combined(pending: readonly PendingCharge[], taken: Taken | undefined): Taken {
  const home = taken?.grants.values()
  const granted = taken?.granted ?? false
  const grants = pending.map((one): Grant => {
    const { charge, limits, paid, poolRefusal } = one
    if (paid !== undefined) return granted ? paid : withoutUnits(paid)
    if (needsPool(one))
      return limits?.pool === undefined
        ? NO_SHARE
        : (poolRefusal ?? (isBinding(charge.kind) ? POOL_UNREACHABLE : NOT_CHARGED))
    const grant = home?.next().value ?? NOT_CHARGED
    return limits?.home === undefined ? grant : homeGrant(charge.limit, limits.home, grant, poolRefusal)
  })
  const [first] = pending
  const queried = taken !== undefined && taken !== NO_CHARGES
  const nowUs = queried ? taken.nowUs : (first?.paid?.nowUs ?? 0)
  const source = queried
    ? taken.source
    : (pending.find(({ paid }) => paid?.source === 'store')?.paid?.source ?? 'lease')
  return { granted, nowUs, grants, source, policyReason: taken?.policyReason, replayed: taken?.replayed ?? false }
}

/** The pool is unreachable for an unknown time: retry after a second. */
const POOL_UNREACHABLE: Grant = { ...NOT_CHARGED, short: 'now', resetAfterUs: 1_000_000, retryAfterUs: 1_000_000 }

/** The region has neither a home nor a pool of the limit. */
export const NO_SHARE: Grant = { ...NOT_CHARGED, short: 'never', retryAfterUs: Number.POSITIVE_INFINITY }

function homeGrant(whole: Limit, home: Limit, grant: Grant, pool: Grant | undefined): Grant {
  const { short, retryAfterUs } = sooner(grant, pool)
  const { units, resetAfterUs, delayUs, bookedUs, spentUs, at } = grant
  const remaining = wholeRemaining(grant.remaining, home.capacity, whole.capacity)
  return { units, short, remaining, resetAfterUs, retryAfterUs, delayUs, bookedUs, spentUs, sublimit: home, at }
}

/** The refusal with the shorter wait, if home and pool have both refused. */
export function sooner(home: Grant, pool: Grant | undefined): Grant {
  return home.short !== false && pool !== undefined && pool.retryAfterUs < home.retryAfterUs ? pool : home
}

/** Estimates the remaining units of the whole limit from a sublimit. */
function wholeRemaining(remaining: number, sublimitCapacity: number, capacity: number): number {
  return Math.floor((remaining * capacity) / sublimitCapacity)
}

function withoutUnits({ short, remaining, resetAfterUs, retryAfterUs, delayUs }: PoolTaken): Grant {
  return { units: 0, short, remaining, resetAfterUs, retryAfterUs, delayUs }
}
