// A take of which some charges are paid by a pool and others by the region: who pays what, and the answer to the whole.

import { SoleTaken } from '../algorithms/grant.ts'
import type { Limit } from '../algorithms/limit.ts'
import { type Charge, type Grant, isBinding, NOT_ASKED, type Taken } from '../store/store.ts'
import type { RegionParts } from './region-parts.ts'

/** One charge of a take. */
export type Line = {
  readonly charge: Charge
  /** Undefined where regions do not share the limit. */
  readonly parts: RegionParts | undefined
  /** By the pool. */
  paid: PoolTaken | undefined
  /** What the pool said when it refused. */
  pool: Grant | undefined
  /** Nothing more is to be heard of the pool: it has said what it has to, there is none, or it does not answer. */
  asked: boolean
}

/** Nobody has paid for it yet, and only the pool can. */
export function isOpen(line: Line): boolean {
  return isHomeless(line) && line.paid === undefined
}

/** What the pool has not paid, as the region counts it. */
export function homeCharges(lines: readonly Line[]): Charge[] {
  return lines.flatMap(({ charge, parts, paid }) => {
    if (paid !== undefined) return []
    if (parts === undefined) return charge
    return parts.home === undefined ? [] : { ...charge, limit: parts.home }
  })
}

/** Lines for which the pool is worth asking after the region has refused; none where another limit refuses as well. */
export function borrowable(lines: readonly Line[], { grants }: Taken): Line[] {
  const home = grants.values()
  const short: Line[] = []
  for (const line of lines) {
    const grant = line.paid !== undefined || isHomeless(line) ? undefined : home.next().value
    if (!isBinding(line.charge.kind) || grant === undefined || grant.short === false) continue
    if (line.asked || grant.short === 'stale_rules') return []
    short.push(line)
  }
  return short
}

export function isHomeless({ parts }: Line): boolean {
  return parts !== undefined && parts.home === undefined
}

/** What one part says of a take of one charge: the answer, and its own grant. */
export class PartTaken extends SoleTaken {
  readonly part: Limit

  constructor(
    { limit: { capacity } }: Charge,
    part: Limit,
    taken: Taken,
    grant: Grant,
    bookedUs: number | undefined = grant.bookedUs,
  ) {
    const { units, short, resetAfterUs, retryAfterUs, delayUs } = grant
    super(
      taken.granted,
      taken.nowUs,
      units,
      short,
      wholeRemaining(grant.remaining, part.capacity, capacity),
      resetAfterUs,
      retryAfterUs,
      delayUs,
      taken.source,
      bookedUs,
      grant.spentUs,
    )
    this.part = part
  }
}

/** Units of the pool were on lease even if they were spent at once: they go back as such. */
export class PoolTaken extends PartTaken {
  declare readonly bookedUs: number

  constructor(charge: Charge, pool: Limit, taken: Taken, grant: Grant) {
    super(charge, pool, taken, grant, grant.bookedUs ?? taken.nowUs)
  }
}

/** What the region says when there is nothing left to ask it for. */
export const NO_CHARGES: Taken = { granted: true, nowUs: 0, grants: [], source: 'lease', replayed: false }

/** `taken` is what the region said of all that was not paid; undefined when it was not asked. */
export function answerOf(lines: readonly Line[], taken: Taken | undefined): Taken {
  const home = taken?.grants.values()
  const granted = taken?.granted ?? false
  const grants = lines.map((line): Grant => {
    const { charge, parts, paid, pool } = line
    if (paid !== undefined) return granted ? paid : without(paid)
    if (isOpen(line)) return parts?.pool === undefined ? NOTHING : (pool ?? (isBinding(charge.kind) ? AWAY : NOT_ASKED))
    const grant = home?.next().value ?? NOT_ASKED
    return parts?.home === undefined ? grant : ofHome(charge.limit, parts.home, grant, pool)
  })
  const [first] = lines
  const asked = taken !== undefined && taken !== NO_CHARGES
  const nowUs = asked ? taken.nowUs : (first?.paid?.nowUs ?? 0)
  const source = asked ? taken.source : (lines.find(({ paid }) => paid?.source === 'store')?.paid?.source ?? 'lease')
  return { granted, nowUs, grants, source, replayed: taken?.replayed ?? false }
}

/** Nobody knows when the pool is back; a second is a polite time to ask again. */
const AWAY: Grant = { ...NOT_ASKED, short: 'now', resetAfterUs: 1_000_000, retryAfterUs: 1_000_000 }

/** Of a limit of which this region has neither a home nor a pool. */
export const NOTHING: Grant = { ...NOT_ASKED, short: 'never', retryAfterUs: Number.POSITIVE_INFINITY }

function ofHome(whole: Limit, home: Limit, grant: Grant, pool: Grant | undefined): Grant {
  const { short, retryAfterUs } = sooner(grant, pool)
  const { units, resetAfterUs, delayUs, bookedUs, spentUs, at } = grant
  const remaining = wholeRemaining(grant.remaining, home.capacity, whole.capacity)
  return { units, short, remaining, resetAfterUs, retryAfterUs, delayUs, bookedUs, spentUs, part: home, at }
}

/** Of a home and a pool that have both refused, the one with the shorter wait. */
export function sooner(home: Grant, pool: Grant | undefined): Grant {
  return home.short !== false && pool !== undefined && pool.retryAfterUs < home.retryAfterUs ? pool : home
}

/** What is left of the whole, estimated from a part. */
function wholeRemaining(remaining: number, part: number, whole: number): number {
  return Math.floor((remaining * whole) / part)
}

function without({ short, remaining, resetAfterUs, retryAfterUs, delayUs }: PoolTaken): Grant {
  return { units: 0, short, remaining, resetAfterUs, retryAfterUs, delayUs }
}
