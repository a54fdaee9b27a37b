// What a node holds of one bucket: units that the store has charged already, and what it last said about the bucket.
// A bucket of which no units may be held has one too, for what was refused.
// Units are charged before they are spent, so whatever a node forgets, loses or takes with it when it dies errs low.
//
// A lease is a row of numbers in a table of many thousands (lease-table.ts). A `Lease` is a view of one row, which is
// moved from row to row: an object per lease would cost a check more than all the rest of it.

import { isMissed } from '../algorithms/lease-terms.ts'
import type { LeaseTerms, Limit } from '../algorithms/limit.ts'
import type { BucketName, Give, Grant } from '../store/store.ts'

export const ROW_LENGTH = 17

// A row begins with two parcels, spent from first to last: units of one charge each.
const PARCEL_LENGTH = 4
const PARCELS = [0, PARCEL_LENGTH] as const
const [FIRST, SECOND] = PARCELS
// Within a parcel. Its units are good until `UNTIL_MS`, counted from when they were asked for.
const UNITS = 0
const SPENT = 1
const BOOKED_US = 2
const UNTIL_MS = 3
// As the store last said, and when that was asked.
const ASKED_MS = 8
const REMAINING = 9
const RESET_MS = 10
/** Units last granted ahead of need; 0 while the store is being asked, and when it has refused. */
const BATCH = 11
/** Units that went since the store was last asked. */
const USED = 12
const REFUSED_UNTIL_MS = 13
const REFUSED_UNITS = 14
const RETRY_MS = 15
/** By how much this node's clock was ahead of the store's when units came: too much rather than too little. */
const AHEAD_MS = 16

/** How long a refusal by a rule without leases is believed, at most: units that others give back are found after it. */
const REFUSED_MS = 1000
/** Of what is not in other hands, a node asks for this much at most: the last units are not stranded on one node. */
const LEFT_SHARE = 0.25
/**
 * A spent bucket is left alone until this much of the whole may have come back, and then asked for all of it. Less of a
 * window, which takes along what a node still holds when it ends.
 */
const LEAST_SHARE = 0.2
const LEAST_WINDOW_SHARE = 0.08
/**
 * A batch is so many times what went since the store was last asked, at most, where a node that keeps too much is
 * missed: two requests in a moment are no rate yet, and many nodes that take them for one would leave nothing.
 */
const GROWTH = 4
/** A batch that is gone after so small a part of the time it was good for is too small: the bucket is hot. */
const HOT_PART = 0.1
/** A spent bucket is not asked again until there is a batch to be had, for this long at most. A window is over soon. */
const SPENT_MS = 200
const SPENT_WINDOW_MS = 100
/** The clock tells whole milliseconds: it may be this much later than it says. */
const CLOCK_STEP_MS = 1
/** A clock that is set forward by less than this, or since less than this, goes unnoticed. */
const NOTICED_MS = 50
/** What was charged together ends over this part of its time, by the microsecond in which it was: not all at once. */
const SPREAD = 0.25
/** Refilled ahead when less than this part of the last batch is left: units in hand are missing elsewhere. */
const LOW = 0.25
/** And when, at the present rate, fewer units than this will go while they are good: requests do not come evenly. */
const UNITS_AHEAD = 2
/** If so many went already: of a bucket that is asked for now and then, nobody knows when that is. */
const UNITS_REGULAR = 3
/** A refusal is asked about again after this part of its time, if anybody comes. */
const ENDING = 0.75

/**
 * asking: a request waits for units of this bucket. ahead: more units are asked for before they are needed.
 * sweeping: all leases are looked over. ending: the lease ends, so units that are good go back, too.
 */
type SettledWhen = 'asking' | 'ahead' | 'sweeping' | 'ending'

const NO_ROWS: Float64Array = new Float64Array(ROW_LENGTH)

export class Lease {
  /** By how much the clock has been set forward in all. */
  steppedMs = 0
  #numbers = NO_ROWS
  #at = 0

  /** Looks at the row that begins at `at`. */
  move(numbers: Float64Array, at: number): this {
    this.#numbers = numbers
    this.#at = at
    return this
  }

  /** Makes the row one that nothing is known of. */
  clear(): void {
    this.#numbers.fill(0, this.#at, this.#at + ROW_LENGTH)
    this.#set(ASKED_MS, Number.NEGATIVE_INFINITY)
  }

  /** Somebody came for units: if they come back soon, it is worth asking for some. */
  note(nowMs: number): void {
    this.#set(ASKED_MS, nowMs)
  }

  /** Units that can be spent now. */
  held(nowMs: number): number {
    return this.#good(FIRST, nowMs) + this.#good(SECOND, nowMs)
  }

  /**
   * Whether one parcel has so many units. Two parcels never share a payment: a refund names one booking time, and a log
   * finds the units by it.
   */
  canSpend(units: number, nowMs: number): boolean {
    return this.#good(FIRST, nowMs) >= units || this.#good(SECOND, nowMs) >= units
  }

  /** Spends units of the first parcel that has as many, and returns when they were charged. */
  spend(units: number, nowMs: number): number {
    this.#add(USED, units)
    const parcel = this.#good(FIRST, nowMs) >= units ? FIRST : SECOND
    this.#move(parcel, units)
    return this.#get(parcel + BOOKED_US)
  }

  /** Store time of a spend at `nowMs`, at the earliest. Errs low: a step of the clock is noticed a moment later. */
  spentUs(bookedUs: number, nowMs: number): number {
    const sinceMs = nowMs - this.steppedMs - this.#get(AHEAD_MS) - NOTICED_MS
    return Math.max(bookedUs, Math.floor(sinceMs * 1000))
  }

  /** Puts units back that were spent and not needed; false when the parcel they came from is no longer good. */
  unspend(units: number, bookedUs: number, nowMs: number): boolean {
    for (const parcel of PARCELS) {
      if (this.#get(parcel + BOOKED_US) !== bookedUs || nowMs >= this.#get(parcel + UNTIL_MS)) continue
      if (this.#get(parcel + SPENT) < units) continue
      this.#move(parcel, -units)
      return true
    }
    return false
  }

  /**
   * Whether to ask for more before none is left: few are, or too few for another request of that cost, or they will not
   * be good any more when it comes. Only for a bucket that was worth a batch before, and while there is room for one
   * more parcel: a first parcel with too few units for that cost makes room.
   */
  isLow(nowMs: number, cost = 1): boolean {
    const batch = this.#get(BATCH)
    const first = this.#good(FIRST, nowMs)
    const second = this.#good(SECOND, nowMs)
    if (batch <= 1 || (first >= cost && second > 0)) return false
    const left = second > 0 ? second : first
    return left < Math.max(batch * LOW, cost) || this.#isEnding(second > 0 ? SECOND : FIRST, nowMs)
  }

  /** Whether to ask before a refusal ends: only where it lasts until there is a batch, so some is there already. */
  isRefusalEnding({ limit }: BucketName, nowMs: number): boolean {
    const askedMs = this.#get(ASKED_MS)
    const lastsMs = this.#get(REFUSED_UNTIL_MS) - askedMs
    return lastsMs > 0 && nowMs - askedMs >= lastsMs * ENDING && limit.lease !== undefined && lastsMs <= batchMs(limit)
  }

  /**
   * How many units to ask for beyond those needed: few or none at first; when the bucket comes back, as many as will be
   * spent while they are good, at the rate at which units went since it was last asked. To be called when it is asked,
   * for `cost` units if somebody waits for them: that rate is counted anew.
   */
  nextBatch({ limit }: BucketName, nowMs: number, cost = 1): number {
    if (this.#isFilled(SECOND)) return 0
    const { lease: terms } = limit
    const used = this.#get(USED) + cost
    const sinceMs = Math.max(1, nowMs - this.#get(ASKED_MS))
    this.#set(USED, 0)
    this.#set(BATCH, 0)
    if (terms === undefined) return 0
    if (sinceMs >= (2 * terms.ttlUs) / 1000) return terms.firstUnits
    const ttlMs = terms.ttlUs / 1000
    const most = sinceMs < ttlMs * HOT_PART ? terms.hotUnitsMax : terms.unitsMax
    const grown = isMissed(limit, most) ? used * GROWTH : most
    return Math.floor(Math.min(Math.ceil((used * ttlMs) / sinceMs), most, this.#share(limit, nowMs), grown))
  }

  /** How much of a bucket is worth asking for, and leaves enough for others. There is no second parcel at this time. */
  #share(limit: Limit, nowMs: number): number {
    const left = nowMs < this.#get(RESET_MS) ? this.#get(REMAINING) : limit.capacity
    const least = leastUnits(limit)
    if (left === 0 || this.#get(REFUSED_UNTIL_MS) > 0) return least
    const own = this.#get(FIRST + UNITS) + (storeHolds(limit.lease) ? this.#get(FIRST + SPENT) : 0)
    return Math.max(left + own, least) * LEFT_SHARE
  }

  /** The store charged so many units more than were needed. False when they came too late to be any good. */
  fill({ limit }: BucketName, units: number, grant: Grant, bookedUs: number, sentMs: number, nowMs: number): boolean {
    this.#heard(grant, sentMs)
    // A bucket that is spent now will be when these units are. Of a window, others may give some back.
    if (grant.remaining === 0 && limit.algorithm === 'token_bucket') this.#refuseUntil(sentMs + batchMs(limit), 1)
    else this.pardon()
    this.#set(BATCH, units)
    if (units === 0) return true
    const lastsMs = Math.min(ttlMsOf(limit.lease), windowEndsIn(limit, grant))
    const untilMs = sentMs + lastsMs * (1 - SPREAD * (bookedUs % 1000) * 0.001) - CLOCK_STEP_MS
    const parcel = this.#isFilled(FIRST) ? SECOND : FIRST
    if (nowMs >= untilMs || this.#isFilled(parcel)) return false
    this.#set(parcel + UNITS, units)
    this.#set(parcel + BOOKED_US, bookedUs)
    this.#set(parcel + UNTIL_MS, untilMs)
    this.#set(AHEAD_MS, nowMs - this.steppedMs - bookedUs / 1000)
    return true
  }

  /** The store refused: until it can be otherwise, it need not be asked again for as much. */
  refuse({ limit }: BucketName, units: number, grant: Grant, sentMs: number): void {
    this.#heard(grant, sentMs)
    this.#set(BATCH, 0)
    const retryMs = sentMs + Math.max(grant.retryAfterUs / 1000, batchMs(limit))
    this.#refuseUntil(Math.min(retryMs, sentMs + ttlMsOf(limit.lease)), units)
    this.#set(RETRY_MS, retryMs)
  }

  /** Units came back: it is worth asking again. */
  pardon(): void {
    this.#set(REFUSED_UNTIL_MS, 0)
  }

  isRefused(units: number, nowMs: number): boolean {
    if (nowMs >= this.#get(REFUSED_UNTIL_MS) || units < this.#get(REFUSED_UNITS)) return false
    return !this.canSpend(units, nowMs)
  }

  /** What is left, as far as this node knows. */
  remaining(nowMs: number): number {
    return this.#get(REMAINING) + this.held(nowMs)
  }

  resetAfterUs(nowMs: number): number {
    return Math.max(0, this.#get(RESET_MS) - nowMs) * 1000
  }

  retryAfterUs(nowMs: number): number {
    return Math.max(1, this.#get(RETRY_MS) - nowMs) * 1000
  }

  /**
   * What is to be said of parcels that are spent or no longer good (or of all): what comes back of them, and to a token
   * bucket also what was spent, because until then the store keeps room for it. The latter can wait until the bucket
   * is asked again: if it never is, the store forgets by itself what was on lease. A parcel with fewer units than
   * `cost` goes back when the bucket is asked: together with others, they may be enough there.
   */
  settle(bucket: BucketName, nowMs: number, when: SettledWhen, gives: Give[], cost = 1): void {
    if (this.#isFilled(SECOND)) this.#settleParcel(SECOND, bucket, nowMs, when, gives, when === 'asking' ? cost : 1)
    if (this.#isFilled(FIRST)) this.#settleParcel(FIRST, bucket, nowMs, when, gives, cost)
    if (this.#isFilled(FIRST) || !this.#isFilled(SECOND)) return
    this.#numbers.copyWithin(this.#at + FIRST, this.#at + SECOND, this.#at + SECOND + PARCEL_LENGTH)
    this.#empty(SECOND)
  }

  /** Whether nothing would be lost if it were forgotten. */
  isIdle({ limit }: BucketName, nowMs: number): boolean {
    const known = nowMs < this.#get(REFUSED_UNTIL_MS) || nowMs - this.#get(ASKED_MS) < 4 * ttlMsOf(limit.lease)
    return !known && this.held(nowMs) === 0
  }

  #settleParcel(
    parcel: number,
    bucket: BucketName,
    nowMs: number,
    when: SettledWhen,
    gives: Give[],
    cost: number,
  ): void {
    const units = this.#get(parcel + UNITS)
    const untilMs = this.#get(parcel + UNTIL_MS)
    if (when !== 'ending' && units >= cost && nowMs < untilMs) return
    const { limit, owner, detail } = bucket
    const holds = storeHolds(limit.lease)
    const forgotten = holds && nowMs >= untilMs + ttlMsOf(limit.lease)
    if (when === 'sweeping' && holds && !forgotten && !isMissed(limit, units)) return
    const settled = holds ? units + this.#get(parcel + SPENT) : 0
    const bookedUs = this.#get(parcel + BOOKED_US)
    this.#empty(parcel)
    if (forgotten || units + settled === 0) return
    gives.push({ limit: chargedLimit(limit), owner, detail, units, bookedUs, settled })
  }

  #refuseUntil(ms: number, units: number): void {
    this.#set(REFUSED_UNTIL_MS, ms)
    this.#set(RETRY_MS, ms)
    this.#set(REFUSED_UNITS, units)
  }

  #heard(grant: Grant, sentMs: number): void {
    this.#set(ASKED_MS, sentMs)
    this.#set(REMAINING, grant.remaining)
    this.#set(RESET_MS, sentMs + grant.resetAfterUs / 1000)
  }

  #good(parcel: number, nowMs: number): number {
    return nowMs < this.#get(parcel + UNTIL_MS) ? this.#get(parcel + UNITS) : 0
  }

  /** Whether few more units will go, at the present rate, while those of a parcel are good. */
  #isEnding(parcel: number, nowMs: number): boolean {
    const used = this.#get(USED)
    const goodMs = this.#get(parcel + UNTIL_MS) - nowMs
    return used >= UNITS_REGULAR && goodMs * used < UNITS_AHEAD * (nowMs - this.#get(ASKED_MS))
  }

  #isFilled(parcel: number): boolean {
    return this.#get(parcel + UNITS) + this.#get(parcel + SPENT) > 0
  }

  #empty(parcel: number): void {
    this.#numbers.fill(0, this.#at + parcel, this.#at + parcel + PARCEL_LENGTH)
  }

  #move(parcel: number, units: number): void {
    this.#add(parcel + UNITS, -units)
    this.#add(parcel + SPENT, units)
  }

  #get(field: number): number {
    return this.#numbers[this.#at + field] as number // a row has all fields
  }

  #set(field: number, value: number): void {
    this.#numbers[this.#at + field] = value
  }

  #add(field: number, value: number): void {
    this.#set(field, this.#get(field) + value)
  }
}

/** A limit as the store knows it. */
export function chargedLimit(limit: Limit): Limit {
  return limit.lease === undefined ? limit : limit.lease.charged
}

/** A bucket as the store knows it. */
export function asCharged<B extends BucketName>(bucket: B): B {
  return isStrict(bucket) ? bucket : { ...bucket, limit: chargedLimit(bucket.limit) }
}

/** Whether nothing may be held of a bucket. */
export function isStrict({ limit }: BucketName): boolean {
  return limit.lease === undefined
}

function ttlMsOf(terms: LeaseTerms | undefined): number {
  return terms === undefined ? REFUSED_MS : terms.ttlUs / 1000
}

/** Whether the store knows what is on lease. */
function storeHolds(terms: LeaseTerms | undefined): boolean {
  return (terms?.charged.holdTicks ?? 0) > 0
}

/** A bucket that is spent is asked again when there is a batch to be had, not for each unit, but soon anyway. */
function batchMs(limit: Limit): number {
  if (limit.lease === undefined) return 0
  const mostMs = limit.algorithm === 'token_bucket' ? SPENT_MS : SPENT_WINDOW_MS
  return Math.min(mostMs, (leastUnits(limit) * limit.windowUs) / limit.units / 1000)
}

function leastUnits({ algorithm, capacity }: Limit): number {
  return capacity * (algorithm === 'token_bucket' ? LEAST_SHARE : LEAST_WINDOW_SHARE)
}

/** A lease of a window ends with it: its units count in the window in which they are spent. */
function windowEndsIn({ algorithm, windowUs }: Limit, { resetAfterUs }: Grant): number {
  if (algorithm !== 'fixed_window' && algorithm !== 'sliding_window') return Number.POSITIVE_INFINITY
  // A sliding window is as good as new after two of them.
  const untilUs = algorithm === 'fixed_window' ? resetAfterUs : resetAfterUs - windowUs
  return Math.max(0, untilUs / 1000)
}
