// One charge against one bucket: may it be had, and what is the caller told.

import type { Charge, Give, Grant, Short, Source, Taken } from '../store/store.ts'
import type { Algorithm } from './algorithm.ts'
import type { Limit } from './limit.ts'

/** Nothing is said about a bucket to somebody whose rules are behind; they catch up within a second. */
const STALE: Grant = {
  units: 0,
  short: 'stale_rules',
  remaining: 0,
  resetAfterUs: 1_000_000,
  retryAfterUs: 1_000_000,
  delayUs: 0,
}

/** Why `min` units cannot be had of a bucket with `used` in use; false when they can. */
export function shortOf(limit: Limit, used: number, min: number): Short {
  if (min > limit.capacity) return 'never'
  return used + min > limit.capacity ? 'now' : false
}

/** Units to charge if the take as a whole is granted. `room` is how many more can be on lease. */
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

/** Of the units charged, those that the request did not need: the caller holds them. */
export function heldOf({ limit, min, kind }: Charge, units: number): number {
  if (limit.holdTicks === 0 || kind === 'force') return 0
  return kind === 'hold' ? units : Math.max(0, units - min)
}

/** What of a take goes back; each charge keeps as many units as `kept` says. */
export function givesBack(charges: readonly Charge[], taken: Taken, kept: (charge: Charge) => number): Give[] {
  return charges.flatMap((charge, index): Give[] => {
    const charged = taken.grants[index]?.units ?? 0
    const units = charged - kept(charge)
    const { limit, owner, detail } = charge
    return units > 0 ? [{ limit, owner, detail, units, bookedUs: taken.nowUs, settled: heldOf(charge, charged) }] : []
  })
}

/** The answer, from the state as the take leaves it, with `used` units in use. */
export function grantOf<S>(
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
    retryAfterUs: retryAfterUs(algorithm, charge, state, nowUs, short, opId),
    delayUs,
  }
}

export function retryAfterUs<S>(
  algorithm: Pick<Algorithm<S>, 'waitUs'>,
  { limit, min }: Charge,
  state: S,
  nowUs: number,
  short: Short,
  opId: string | undefined,
): number {
  if (short === false) return 0
  return short === 'never' ? Number.POSITIVE_INFINITY : algorithm.waitUs(limit, state, nowUs, min, opId)
}

/** The answer to a take of one charge is its own grant: most takes are such, and this halves what they allocate. */
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
  readonly bookedUs: number | undefined
  readonly spentUs: number | undefined

  constructor(
    granted: boolean,
    nowUs: number,
    units: number,
    short: Short,
    remaining: number,
    resetAfterUs: number,
    retryAfterUs: number,
    delayUs: number,
    source: Source = 'store',
    bookedUs?: number,
    spentUs?: number,
  ) {
    this.granted = granted
    this.nowUs = nowUs
    this.units = units
    this.short = short
    this.remaining = remaining
    this.resetAfterUs = resetAfterUs
    this.retryAfterUs = retryAfterUs
    this.delayUs = delayUs
    this.source = source
    this.bookedUs = bookedUs
    this.spentUs = spentUs
  }

  get grants(): readonly [Grant] {
    return [this]
  }

  get replayed(): boolean {
    return false
  }
}

/** All parts of one bucket as one: what the first to grant would say, and what is left in all of them. */
export function sumOf(parts: readonly Grant[]): Grant {
  return parts.reduce((sum, part) => ({
    ...(part.retryAfterUs < sum.retryAfterUs ? part : sum),
    remaining: sum.remaining + part.remaining,
    resetAfterUs: Math.max(sum.resetAfterUs, part.resetAfterUs),
  }))
}
