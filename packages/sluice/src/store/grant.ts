// Evaluates one charge against one bucket and builds its grant.

import type { Algorithm } from '../algorithms/algorithm.ts'
import type { CurrentState } from '../algorithms/edit.ts'
import type { Limit } from '../algorithms/limit.ts'
import type { Charge, Give, Grant, PolicyReason, Short, Source, Taken } from './store.ts'

/** Grant for a node with older rules, which catches up within a second. Reveals nothing about the bucket. */
const STALE: Grant = {
  units: 0,
  short: 'stale_rules',
  remaining: 0,
  resetAfterUs: 1_000_000,
  retryAfterUs: 1_000_000,
  delayUs: 0,
}

/** Reason that `min` units are not available in a bucket with `used` in use; false if they are. */
export function shortOf(limit: Limit, used: number, min: number): Short {
  if (min > limit.capacity) return 'never'
  return used + min > limit.capacity ? 'now' : false
}

/** Units to charge if the whole take is granted. `room`: units that can still be leased. */
export function unitsOf(
  { limit, min, max, kind }: Charge,
  used: number,
  short: Short,
  room: number = Number.POSITIVE_INFINITY,
): number {
  if (kind === 'force') return short === 'stale_rules' ? 0 : max
  if (short !== false) return 0
  if (min === max && kind !== 'hold') return max
  return Math.min(max, limit.capacity - used, kind === 'hold' ? room : min + room)
}

/** Charged units beyond those that the request needs: they are on lease. */
export function heldOf({ limit, min, kind }: Charge, units: number): number {
  if (limit.holdTicks === 0 || kind === 'force') return 0
  return kind === 'hold' ? units : Math.max(0, units - min)
}

/** Builds give operations that undo a take, except for the `kept` units of each charge. */
export function givesBack(charges: readonly Charge[], taken: Taken, kept: (charge: Charge) => number): Give[] {
  return charges.flatMap((charge, index): Give[] => {
    const charged = taken.grants[index]?.units ?? 0
    const units = charged - kept(charge)
    const { limit, owner, detail } = charge
    return units > 0 ? [{ limit, owner, detail, units, bookedUs: taken.nowUs, settled: heldOf(charge, charged) }] : []
  })
}

/** Older rules do not change buckets that newer ones wrote, and a full bucket accepts no units. */
export function isGivable<S>(
  { stale }: CurrentState<S>,
  { limit, units, settled = 0 }: Give,
  resetUs: number,
): boolean {
  if (stale || units < 0) return !stale
  return resetUs > 0 && (units > 0 || (settled > 0 && limit.holdTicks > 0))
}

/** Builds the grant from the state after the take, with `used` units in use. */
export function buildGrant<S>(
  algorithm: Pick<Algorithm<S>, 'waitUs' | 'resetUs'>,
  charge: Charge,
  state: S,
  nowUs: number,
  used: number,
  short: Short,
  units: number,
  delayUs: number,
  opId: string | undefined,
): Grant {
  if (short === 'stale_rules') return STALE
  const { limit } = charge
  return {
    units,
    short,
    remaining: Math.max(0, limit.capacity - used),
    resetAfterUs: algorithm.resetUs(limit, state, nowUs),
    retryAfterUs: retryAfterUs(algorithm, charge, state, nowUs, used, short, opId),
    delayUs,
  }
}

export function retryAfterUs<S>(
  algorithm: Pick<Algorithm<S>, 'waitUs'>,
  { limit, min }: Charge,
  state: S,
  nowUs: number,
  used: number,
  short: Short,
  opId: string | undefined,
): number {
  if (short === false && used + min <= limit.capacity) return 0
  return short === 'never' ? Number.POSITIVE_INFINITY : algorithm.waitUs(limit, state, nowUs, min, opId)
}

type SoleTakenFields = Omit<Taken, 'grants' | 'replayed' | 'undo' | 'stale'> & Omit<Grant, 'sublimit' | 'at'>

/**
 * Result of a take of one charge, and its grant in one object: most takes have one charge. The literal passed in costs
 * nothing measurable: 641 ns and 651 ns per check (memory, leased) against 669 ns and 659 ns with ten arguments.
 */
export class SoleTaken implements Taken, Grant {
  readonly granted: boolean
  readonly nowUs: number
  readonly units: number
  readonly short: Short
  readonly remaining: number
  readonly resetAfterUs: number
  readonly retryAfterUs: number
  readonly delayUs: number
  readonly source: Source
  readonly policyReason: PolicyReason | undefined
  readonly bookedUs: number | undefined
  readonly spentUs: number | undefined

  constructor(fields: SoleTakenFields) {
    this.granted = fields.granted
    this.nowUs = fields.nowUs
    this.units = fields.units
    this.short = fields.short
    this.remaining = fields.remaining
    this.resetAfterUs = fields.resetAfterUs
    this.retryAfterUs = fields.retryAfterUs
    this.delayUs = fields.delayUs
    this.source = fields.source
    this.policyReason = fields.policyReason
    this.bookedUs = fields.bookedUs
    this.spentUs = fields.spentUs
  }

  get grants(): readonly [Grant] {
    return [this]
  }

  get replayed(): boolean {
    return false
  }
}

/** Merges the grants of all sublimits of a bucket: the shortest wait, the sum of what remains, the longest reset. */
export function mergeGrants(grants: readonly Grant[]): Grant {
  return grants.reduce((sum, grant) => ({
    ...(grant.retryAfterUs < sum.retryAfterUs ? grant : sum),
    remaining: sum.remaining + grant.remaining,
    resetAfterUs: Math.max(sum.resetAfterUs, grant.resetAfterUs),
  }))
}
