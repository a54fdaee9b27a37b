// What a node holds of one bucket: units that the store has charged already, and what it last said about the bucket.
// A bucket of which no units may be held has one too, for what was refused.
// Units are charged before they are spent, so whatever a node forgets, loses or takes with it when it dies errs low.

import type { LeaseTerms, Limit } from '../algorithms/limit.ts'
import type { BucketName, Give, Grant } from '../store/store.ts'

/** Units of one charge. They are good until `untilMs`, counted from when they were asked for. */
export type Parcel = { units: number; spent: number; readonly bookedUs: number; readonly untilMs: number }

/** How long a refusal by a rule without leases is believed, at most: units that others give back are found after it. */
const REFUSED_MS = 1000
/** Of what the store says is left, a node asks for this much at most: the last units are not stranded on one node. */
const REMAINING_SHARE = 0.25
/** But this much of the whole is worth asking for, even if it seems that nothing is left. */
const LEAST_SHARE = 0.04
/** A node does not ask again for this long, at most, for want of a batch. */
const SPENT_MS = 100
/** Units that flow back within this time by themselves are not worth a message. */
const MISSED_US = 200_000
/** The clock tells whole milliseconds: it may be this much later than it says. */
const CLOCK_STEP_MS = 1
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
  /** Since the store was last asked. */
  #spent = 0
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
    this.#spent += units
    let left = units
    let bookedUs = 0
    for (const parcel of this.parcels) {
      if (nowMs >= parcel.untilMs || parcel.units === 0) continue
      const spent = Math.min(left, parcel.units)
      parcel.units -= spent
      parcel.spent += spent
      left -= spent
      if (bookedUs === 0) bookedUs = parcel.bookedUs
      if (left === 0) break
    }
    return bookedUs
  }

  /** Puts units back that were spent and not needed; false when the parcel they came from is no longer good. */
  unspend(units: number, bookedUs: number, nowMs: number): boolean {
    const parcel = this.parcels.find((one) => one.bookedUs === bookedUs && nowMs < one.untilMs)
    if (parcel === undefined || parcel.spent < units) return false
    parcel.units += units
    parcel.spent -= units
    return true
  }

  /** Whether to ask for more before the last unit is gone: only for a bucket that was worth a batch before. */
  isLow(nowMs: number): boolean {
    return this.refilling === undefined && this.#batch > 1 && this.held(nowMs) < this.#batch * LOW
  }

  /**
   * How many units to ask for beyond those needed: none at first; when the bucket comes back, as many as will be spent
   * while they are good, at the rate at which units went since it was last asked.
   */
  nextBatch(nowMs: number): number {
    const sinceMs = nowMs - this.askedMs
    const wanted = sinceMs < 2 * this.ttlMs ? ((this.#spent + 1) * this.ttlMs) / Math.max(1, sinceMs) : 0
    const share = Math.max(this.#remaining * REMAINING_SHARE, this.limit.capacity * LEAST_SHARE)
    this.#batch = Math.floor(Math.min(Math.ceil(wanted), this.terms?.unitsMax ?? 0, share))
    this.#spent = 0
    return this.#batch
  }

  get ttlMs(): number {
    return this.terms === undefined ? REFUSED_MS : this.terms.ttlUs / 1000
  }

  /** The store charged so many units more than were needed. False when they came too late to be any good. */
  fill(units: number, grant: Grant, bookedUs: number, sentMs: number, nowMs: number): boolean {
    this.heard(grant, sentMs)
    this.#refusedUntilMs = 0
    const untilMs = sentMs + Math.min(this.ttlMs, this.#windowEndsIn(grant)) - CLOCK_STEP_MS
    if (units === 0) return true
    if (nowMs >= untilMs) return false
    this.parcels.push({ units, spent: 0, bookedUs, untilMs })
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
    this.#retryMs = sentMs + Math.max(grant.retryAfterUs / 1000, this.#refillMs())
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

  /**
   * What is to be said of parcels that are spent or no longer good (or of all): what comes back of them, and to a token
   * bucket also what was spent, because until then the store keeps room for it. The latter can wait until the bucket
   * is asked again: if it never is, the store forgets by itself what was on lease.
   */
  settle(nowMs: number, when: 'asking' | 'sweeping' | 'ending'): Give[] {
    const holds = this.#holds()
    const gives: Give[] = []
    for (let index = this.parcels.length - 1; index >= 0; index -= 1) {
      const { units, spent, bookedUs, untilMs } = this.parcels[index] as Parcel // one of those that there are
      const forgotten = nowMs >= untilMs + this.ttlMs
      if (when !== 'ending' && units > 0 && nowMs < untilMs) continue
      if (when === 'sweeping' && holds && !forgotten && !this.#isMissed(units)) continue
      this.parcels.splice(index, 1)
      if (units > 0 || (holds && spent > 0)) {
        if (!(holds && forgotten)) gives.push({ ...this.bucket, units, bookedUs, settled: holds ? units + spent : 0 })
      }
    }
    return gives
  }

  /** Whether nothing would be lost if it were forgotten. */
  isIdle(nowMs: number): boolean {
    const known = nowMs < this.#refusedUntilMs || nowMs - this.askedMs < 4 * this.ttlMs
    return !known && this.refilling === undefined && this.held(nowMs) === 0
  }

  /** Whether units that nobody spent would take long to flow back by themselves. */
  #isMissed(units: number): boolean {
    return units * this.limit.windowUs > MISSED_US * this.limit.units
  }

  /** A bucket that is spent is asked again when there is a batch to be had, not for each unit, but soon anyway. */
  #refillMs(): number {
    if (this.terms === undefined) return 0
    const { capacity, units, windowUs } = this.limit
    return Math.min(SPENT_MS, (LEAST_SHARE * capacity * windowUs) / units / 1000)
  }

  /** Whether the store knows what is on lease. */
  #holds(): boolean {
    return (this.terms?.charged.holdTicks ?? 0) > 0
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
