// What a node holds of one bucket: units that the store has charged already, and what it last said about the bucket.
// A bucket of which no units may be held has one too, for what was refused.
// Units are charged before they are spent, so whatever a node forgets, loses or takes with it when it dies errs low.

import type { LeaseTerms, Limit } from '../algorithms/limit.ts'
import type { BucketName, Give, Grant } from '../store/store.ts'

/** Units of one charge. They are good until `untilMs`, counted from when they were asked for. */
export type Parcel = { units: number; readonly bookedUs: number; readonly untilMs: number }

/** How long a refusal by a rule without leases is believed, at most: units that others give back are found after it. */
const REFUSED_MS = 1000
/** Of what the store says is left, a node asks for this much at most: the last units are not stranded on one node. */
const REMAINING_SHARE = 0.25
/** Refilled ahead when less than this part of the last batch is left. */
const LOW = 0.5

export class Lease {
  readonly limit: Limit
  readonly terms: LeaseTerms | undefined
  readonly owner: string
  readonly detail: string
  /** Spent from first to last. */
  readonly parcels: Parcel[] = []
  /** While the store is asked for more: whoever needs some waits for it instead of asking as well. */
  refilling: Promise<unknown> | undefined
  /** As the store last said, and when that was asked. */
  askedMs: number = Number.NEGATIVE_INFINITY
  #remaining = 0
  #resetMs = 0
  #batch = 0
  #refusedUntilMs = 0
  #refusedUnits = 0
  #retryMs = 0

  constructor(limit: Limit, owner: string, detail: string) {
    this.limit = limit
    this.terms = limit.lease
    this.owner = owner
    this.detail = detail
  }

  /** The bucket in the store. */
  get bucket(): BucketName {
    return { limit: this.terms?.charged ?? this.limit, owner: this.owner, detail: this.detail }
  }

  /** Units that can be spent now. */
  held(nowMs: number): number {
    let units = 0
    for (const parcel of this.parcels) if (nowMs < parcel.untilMs) units += parcel.units
    return units
  }

  /** Spends units that are held, and tells when the oldest of them was charged. */
  spend(units: number, nowMs: number): number {
    let left = units
    let bookedUs = 0
    for (const parcel of this.parcels) {
      if (nowMs >= parcel.untilMs || parcel.units === 0) continue
      const spent = Math.min(left, parcel.units)
      parcel.units -= spent
      left -= spent
      if (bookedUs === 0) bookedUs = parcel.bookedUs
      if (left === 0) break
    }
    return bookedUs
  }

  /** Puts units back that were spent and not needed; false when the parcel they came from is no longer good. */
  unspend(units: number, bookedUs: number, nowMs: number): boolean {
    const parcel = this.parcels.find((one) => one.bookedUs === bookedUs && nowMs < one.untilMs)
    if (parcel !== undefined) parcel.units += units
    return parcel !== undefined
  }

  /** Whether to ask for more before the last unit is gone: only for a bucket that was worth a batch before. */
  isLow(nowMs: number): boolean {
    return this.refilling === undefined && this.#batch > 1 && this.held(nowMs) < this.#batch * LOW
  }

  /** How many units to ask for beyond those needed: none at first, then twice as many each time it comes back soon. */
  nextBatch(nowMs: number): number {
    const soon = nowMs - this.askedMs < 2 * this.ttlMs
    if (this.askedMs === Number.NEGATIVE_INFINITY) return 0
    this.#batch = soon ? Math.max(1, 2 * this.#batch) : Math.floor(this.#batch / 2)
    const mostOfRemaining = Math.floor(this.#remaining * REMAINING_SHARE)
    this.#batch = Math.min(this.#batch, this.terms?.unitsMax ?? 0, mostOfRemaining)
    return Math.max(0, this.#batch)
  }

  get ttlMs(): number {
    return this.terms === undefined ? REFUSED_MS : this.terms.ttlUs / 1000
  }

  /** The store charged so many units more than were needed. False when they came too late to be any good. */
  fill(units: number, grant: Grant, bookedUs: number, sentMs: number, nowMs: number): boolean {
    this.heard(grant, sentMs)
    this.#refusedUntilMs = 0
    const untilMs = sentMs + Math.min(this.ttlMs, this.#windowEndsIn(grant))
    if (units === 0) return true
    if (nowMs >= untilMs) return false
    while (this.parcels[0]?.units === 0) this.parcels.shift()
    this.parcels.push({ units, bookedUs, untilMs })
    return true
  }

  heard(grant: Grant, sentMs: number): void {
    this.askedMs = sentMs
    this.#remaining = grant.remaining
    this.#resetMs = sentMs + grant.resetAfterUs / 1000
  }

  /** The store refused: until it can be otherwise, it need not be asked again for as much. */
  refuse(units: number, grant: Grant, sentMs: number): void {
    this.heard(grant, sentMs)
    this.#batch = 0
    this.#refusedUnits = units
    this.#retryMs = sentMs + grant.retryAfterUs / 1000
    this.#refusedUntilMs = Math.min(this.#retryMs, sentMs + this.ttlMs)
  }

  /** Units came back: it is worth asking again. */
  pardon(): void {
    this.#refusedUntilMs = 0
  }

  isRefused(units: number, nowMs: number): boolean {
    return nowMs < this.#refusedUntilMs && units >= this.#refusedUnits
  }

  /** The answer to `units` that were spent, or refused (`short`), as far as this node knows. */
  grant(units: number, short: Grant['short'], bookedUs: number, nowMs: number): Grant {
    return {
      units,
      short,
      remaining: short === false ? this.#remaining + this.held(nowMs) : 0,
      resetAfterUs: Math.max(0, this.#resetMs - nowMs) * 1000,
      retryAfterUs: short === false ? 0 : Math.max(1, this.#retryMs - nowMs) * 1000,
      delayUs: 0,
      bookedUs,
    }
  }

  /** What has to go back of what is held: all of it, or only what is no longer good. */
  takeBack(nowMs: number, all: boolean): Give[] {
    const gives: Give[] = []
    for (let index = this.parcels.length - 1; index >= 0; index -= 1) {
      const { units, bookedUs, untilMs } = this.parcels[index] as Parcel // one of those that there are
      if (units > 0 && !all && nowMs < untilMs) continue
      this.parcels.splice(index, 1)
      if (units > 0 && (all || units > this.#flowsBack())) gives.push({ ...this.bucket, units, bookedUs })
    }
    return gives
  }

  /** Whether nothing would be lost if it were forgotten. */
  isIdle(nowMs: number): boolean {
    const known = nowMs < this.#refusedUntilMs || nowMs - this.askedMs < 4 * this.ttlMs
    return !known && this.refilling === undefined && this.held(nowMs) === 0
  }

  /** Units of a parcel that have flowed back into a token bucket by the time it is no longer good. */
  #flowsBack(): number {
    const { algorithm, units, windowUs } = this.limit
    return algorithm === 'token_bucket' ? (units * this.ttlMs * 1000) / windowUs : 0
  }

  /** A lease of a window ends with it: its units count in the window in which they are spent. */
  #windowEndsIn(grant: Grant): number {
    const { algorithm, windowUs } = this.limit
    if (algorithm !== 'fixed_window' && algorithm !== 'sliding_window') return Number.POSITIVE_INFINITY
    // A sliding window is as good as new after two of them.
    const untilUs = algorithm === 'fixed_window' ? grant.resetAfterUs : grant.resetAfterUs - windowUs
    return Math.max(0, untilUs / 1000)
  }
}
