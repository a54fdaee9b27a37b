// Leases of a node, by row. A lease is units of one bucket taken ahead of need, and the store's last reply about the
// bucket. A bucket whose limit is too small to lease gets one when it refuses, to remember that.
// Errs low: units are charged before they are spent, so a lease that is dropped or lost can only strand units.
// Rows in typed arrays, not an object per lease: docs/decisions/0018.

import { refillsSlowly } from '../algorithms/lease-terms.ts'
import type { Limit } from '../algorithms/limit.ts'
import { type BucketName, type Give, type Grant, REFUSAL_MS } from '../store/store.ts'
import {
  batchUnits,
  emptyBucketBatchUnits,
  emptyBucketPauseMs,
  isHeldByStore,
  storeTracksLeases,
  ttlMsOf,
  windowEndsInMs,
} from './batch-size.ts'
import type { SettleReason } from './settle-reason.ts'
import { storeLimit } from './store-limit.ts'

/** Cap on a batch: share of the units that no other node holds, so the last units are not stranded on one node. */
const FREE_SHARE = 0.25
/** The node's clock counts whole milliseconds, so it may be this far behind. */
const CLOCK_RESOLUTION_MS = 1
/** Forward clock steps that are smaller or more recent than this are not detected. */
const STEP_DETECTION_MS = 50
/** Batches expire up to this share of the TTL early, so that those charged together do not expire together. */
const EXPIRY_JITTER = 0.25
/** Refill when less than this share of the last batch is left. Refilling earlier would hold units others need. */
const LOW_SHARE = 0.25
/** Refill when fewer units than this will be spent before the batch expires, at the current rate. */
const UNITS_BEFORE_EXPIRY = 2
/** Units used since the last query before they count as a rate. */
const RATE_UNITS_MIN = 3
/** A refusal is checked again after this share of its duration, if requests keep coming. */
const RECHECK_SHARE = 0.75

// A row begins with two batches, the units of one charge each, which are spent in this order.
const BATCH_LENGTH = 4
const FIRST = 0
const SECOND = BATCH_LENGTH
// Fields of a batch.
const UNITS = 0
const SPENT = 1
const BOOKED_US = 2
const EXPIRES_MS = 3
// The store's last reply, and when it was requested.
const QUERIED_MS = 8
const REMAINING = 9
const RESET_MS = 10
const REFUSED_UNTIL_MS = 11
const REFUSED_UNITS = 12
const RETRY_MS = 13
/** Units last granted ahead of need; 0 while a query is pending, and after a refusal. */
const LAST_BATCH = 14
/** Units spent since the last query. */
const USED = 15
/** This node's clock minus the store's. Errs high. */
const AHEAD_MS = 16
/** Units came back to the bucket at this time: refusals that were requested earlier are not cached. */
const ENDED_MS = 17
const ROW_LENGTH = 18
const CHUNK_BITS = 12
const CHUNK_ROWS = 2 ** CHUNK_BITS

export class LeaseRows {
  /** Bucket of each row; undefined where a row is free. */
  readonly #buckets: (BucketName | undefined)[] = []
  readonly #pending: (Promise<unknown> | undefined)[] = []
  /** Rows are allocated a chunk at a time, so that they never move. */
  readonly #chunks: Float64Array[] = []
  readonly #freeRows: number[] = []
  /** Units that expired before they were spent, since the start. */
  expiredUnits = 0
  /** Latest time at which units came back to any bucket: new rows begin with it. */
  #endedMs = Number.NEGATIVE_INFINITY
  /** Total of all forward steps of the node's clock. */
  #steppedMs = 0
  // The row in use: every public method selects its own.
  #numbers: Float64Array = new Float64Array(ROW_LENGTH)
  #at = 0

  /** Rows in use and free. */
  get length(): number {
    return this.#buckets.length
  }

  /** Records a forward step of the node's clock, so that it is not mistaken for elapsed time. */
  clockStepped(ms: number): void {
    this.#steppedMs += ms
  }

  add({ limit, owner, detail }: BucketName): number {
    const row = this.#freeRows.pop() ?? this.#buckets.length
    if (row === this.#chunks.length * CHUNK_ROWS) this.#chunks.push(new Float64Array(CHUNK_ROWS * ROW_LENGTH))
    this.#buckets[row] = { limit, owner, detail }
    this.#pending[row] = undefined
    this.#select(row)
    this.#numbers.fill(0, this.#at, this.#at + ROW_LENGTH)
    this.#set(QUERIED_MS, Number.NEGATIVE_INFINITY)
    this.#set(ENDED_MS, this.#endedMs)
    return row
  }

  remove(row: number): void {
    this.#buckets[row] = undefined
    this.#pending[row] = undefined
    this.#freeRows.push(row)
  }

  bucket(row: number): BucketName | undefined {
    return this.#buckets[row]
  }

  /** The pending query for units of the bucket. Other takes wait for it instead of sending their own. */
  pending(row: number): Promise<unknown> | undefined {
    return row < 0 ? undefined : this.#pending[row] // negative indexes deoptimise the access
  }

  setPending(row: number, query: Promise<unknown>): void {
    this.#pending[row] = query
  }

  allPending(): Promise<unknown>[] {
    return this.#pending.filter((query) => query !== undefined)
  }

  /** Ends a query. Returns false if the lease was removed during it; its row may belong to another lease by now. */
  replied(row: number, query: Promise<unknown>): boolean {
    if (this.pending(row) !== query) return false
    this.#pending[row] = undefined
    return true
  }

  /** Records a use without a query: if the bucket is used again soon, a batch is worthwhile. */
  note(row: number, nowMs: number): void {
    this.#select(row)
    this.#set(QUERIED_MS, nowMs)
  }

  /** Units that can be spent now. */
  held(row: number, nowMs: number): number {
    this.#select(row)
    return this.#held(nowMs)
  }

  /**
   * Whether one batch covers `units`. A payment never spans two batches: a refund names one booking time, by which a
   * log finds the units.
   */
  canSpend(row: number, units: number, nowMs: number): boolean {
    this.#select(row)
    return this.#covers(units, nowMs)
  }

  /** Spends units of the first batch that covers them, and returns when they were booked. */
  spend(row: number, units: number, nowMs: number): number {
    this.#select(row)
    this.#add(USED, units)
    const batch = this.#available(FIRST, nowMs) >= units ? FIRST : SECOND
    this.#move(batch, units)
    return this.#get(batch + BOOKED_US)
  }

  /** Lower bound of the store time of a spend at `nowMs`. Errs low: a clock step is detected late. */
  spentUs(row: number, bookedUs: number, nowMs: number): number {
    this.#select(row)
    const storeMs = nowMs - this.#steppedMs - this.#get(AHEAD_MS) - STEP_DETECTION_MS
    return Math.max(bookedUs, Math.floor(storeMs * 1000))
  }

  /** Puts back units that were spent and not needed. False when their batch has expired or ended. */
  unspend(row: number, units: number, bookedUs: number, nowMs: number): boolean {
    this.#select(row)
    for (const batch of [FIRST, SECOND]) {
      if (this.#get(batch + BOOKED_US) !== bookedUs || nowMs >= this.#get(batch + EXPIRES_MS)) continue
      if (this.#get(batch + SPENT) < units) continue
      this.#move(batch, -units)
      return true
    }
    return false
  }

  /**
   * Whether to refill: few units are left, too few for another request of this cost, or they will expire before it
   * comes. False if the last query brought at most one unit, or if the second batch holds units and the first covers
   * `cost`. (A refill gives back a first batch that is too small, which makes room.)
   */
  isLow(row: number, nowMs: number, cost = 1): boolean {
    this.#select(row)
    const first = this.#available(FIRST, nowMs)
    const second = this.#available(SECOND, nowMs)
    if (this.#get(LAST_BATCH) <= 1 || (first >= cost && second > 0)) return false
    const left = second > 0 ? second : first
    return (
      left < Math.max(this.#get(LAST_BATCH) * LOW_SHARE, cost) || this.#expiresSoon(second > 0 ? SECOND : FIRST, nowMs)
    )
  }

  /** Whether to query before a refusal ends. Only for short refusals, which last until a batch has refilled. */
  isRefusalEnding(row: number, nowMs: number): boolean {
    this.#select(row)
    const lastsMs = this.#get(RETRY_MS) - this.#get(QUERIED_MS)
    if (this.#get(REFUSED_UNTIL_MS) <= this.#get(QUERIED_MS) || nowMs - this.#get(QUERIED_MS) < lastsMs * RECHECK_SHARE)
      return false
    return this.#limit(row).lease !== undefined && lastsMs <= emptyBucketPauseMs(this.#limit(row))
  }

  /**
   * Units to request beyond those needed: few or none at first; when the bucket is used again, as many as will be spent
   * before they expire, at the rate since the last query. Call it once per query, with the `cost` of the request that
   * waits for it: it restarts the rate.
   */
  nextBatch(row: number, nowMs: number, cost = 1): number {
    this.#select(row)
    if (!this.#isEmpty(SECOND)) return 0
    const limit = this.#limit(row)
    const used = this.#get(USED) + cost
    const sinceMs = Math.max(1, nowMs - this.#get(QUERIED_MS))
    this.#set(USED, 0)
    this.#set(LAST_BATCH, 0)
    return batchUnits(limit, used, sinceMs, this.#fairShare(limit, nowMs))
  }

  /** Stores a batch of `units`. False when it came too late to be spent. */
  fill(row: number, units: number, grant: Grant, bookedUs: number, sentMs: number, nowMs: number): boolean {
    this.#select(row)
    const limit = this.#limit(row)
    this.#record(grant, sentMs)
    // An empty token bucket will still be empty when these units are spent. In windows, others may give units back.
    const isEmpty = grant.remaining === 0 && isHeldByStore(limit)
    this.#refuse(sentMs, nowMs, isEmpty ? emptyBucketPauseMs(limit) : 0, 1)
    this.#set(LAST_BATCH, units)
    if (units === 0) return true
    const lastsMs = Math.min(ttlMsOf(limit.lease), windowEndsInMs(limit, grant))
    const expiresMs = sentMs + lastsMs * (1 - EXPIRY_JITTER * (bookedUs % 1000) * 0.001) - CLOCK_RESOLUTION_MS
    const batch = this.#isEmpty(FIRST) ? FIRST : SECOND
    if (nowMs >= expiresMs || !this.#isEmpty(batch)) return false
    this.#set(batch + UNITS, units)
    this.#set(batch + BOOKED_US, bookedUs)
    this.#set(batch + EXPIRES_MS, expiresMs)
    this.#set(AHEAD_MS, nowMs - this.#steppedMs - bookedUs / 1000)
    return true
  }

  /**
   * Caches a refusal of `units`: until the result can change, but at most for REFUSAL_MS, at least as many are refused
   * without a query.
   */
  refuse(row: number, units: number, grant: Grant, sentMs: number, nowMs: number): void {
    this.#select(row)
    this.#record(grant, sentMs)
    this.#set(LAST_BATCH, 0)
    const retryMs = Math.max(grant.retryAfterUs / 1000, emptyBucketPauseMs(this.#limit(row)))
    this.#refuse(sentMs, nowMs, retryMs, units)
  }

  /** Ends the refusal of a bucket that got units back, also if a query is in flight. `row`: -1 if it has none. */
  endRefusal(row: number, nowMs: number): void {
    this.#endedMs = nowMs
    if (row < 0) return
    this.#select(row)
    this.#set(REFUSED_UNTIL_MS, 0)
    this.#set(ENDED_MS, nowMs)
  }

  isRefused(row: number, units: number, nowMs: number): boolean {
    this.#select(row)
    if (nowMs >= this.#get(REFUSED_UNTIL_MS) || units < this.#get(REFUSED_UNITS)) return false
    return !this.#covers(units, nowMs)
  }

  /** Units left, as far as this node knows. */
  remaining(row: number, nowMs: number): number {
    this.#select(row)
    return this.#get(REMAINING) + this.#held(nowMs)
  }

  resetAfterUs(row: number, nowMs: number): number {
    this.#select(row)
    return Math.max(0, this.#get(RESET_MS) - nowMs) * 1000
  }

  /** Time until the store has `units` again; 0 if that many are left. */
  retryAfterUs(row: number, units: number, nowMs: number): number {
    return this.remaining(row, nowMs) >= units ? 0 : this.refusedForUs(row, nowMs)
  }

  /** Wait of a refusal by this lease. */
  refusedForUs(row: number, nowMs: number): number {
    this.#select(row)
    return Math.max(1, this.#get(RETRY_MS) - nowMs) * 1000
  }

  /**
   * Ends batches that are spent or expired (at the end of the lease, all), and adds to `gives` what the store needs:
   * unspent units and, for a token bucket, spent ones, because the store reserves room for units on lease. Reporting
   * spent units can wait for the next query: without one, the store expires them by itself. A batch smaller than `cost`
   * goes back when the bucket is queried: together with other units it may cover the request.
   */
  settle(row: number, nowMs: number, reason: SettleReason, gives: Give[], cost = 1): void {
    this.#select(row)
    const bucket = this.#buckets[row] as BucketName // the row is in use
    if (!this.#isEmpty(SECOND)) this.#settleBatch(SECOND, bucket, nowMs, reason, gives, reason === 'query' ? cost : 1)
    if (!this.#isEmpty(FIRST)) this.#settleBatch(FIRST, bucket, nowMs, reason, gives, cost)
    if (!this.#isEmpty(FIRST) || this.#isEmpty(SECOND)) return
    this.#numbers.copyWithin(this.#at + FIRST, this.#at + SECOND, this.#at + SECOND + BATCH_LENGTH)
    this.#empty(SECOND)
  }

  /** Whether forgetting the lease loses nothing. */
  isIdle(row: number, nowMs: number): boolean {
    this.#select(row)
    const recent =
      nowMs < this.#get(REFUSED_UNTIL_MS) || nowMs - this.#get(QUERIED_MS) < 4 * ttlMsOf(this.#limit(row).lease)
    return !recent && this.#held(nowMs) === 0
  }

  #settleBatch(
    batch: number,
    bucket: BucketName,
    nowMs: number,
    reason: SettleReason,
    gives: Give[],
    cost: number,
  ): void {
    const units = this.#get(batch + UNITS)
    const expiresMs = this.#get(batch + EXPIRES_MS)
    if (reason !== 'end' && units >= cost && nowMs < expiresMs) return
    const { limit, owner, detail } = bucket
    const tracked = storeTracksLeases(limit.lease)
    const forgotten = tracked && nowMs >= expiresMs + ttlMsOf(limit.lease)
    if (reason === 'sweep' && tracked && !forgotten && !refillsSlowly(limit, units)) return
    const settled = tracked ? units + this.#get(batch + SPENT) : 0
    const bookedUs = this.#get(batch + BOOKED_US)
    if (nowMs >= expiresMs) this.expiredUnits += units
    this.#empty(batch)
    if (forgotten || units + settled === 0) return
    if (units > 0) this.#set(REFUSED_UNTIL_MS, 0) // they go back to the bucket
    gives.push({ limit: storeLimit(limit), owner, detail, units, bookedUs, settled })
  }

  /** Units worth requesting that leave enough for other nodes. The second batch is empty when this is called. */
  #fairShare(limit: Limit, nowMs: number): number {
    const left = nowMs < this.#get(RESET_MS) ? this.#get(REMAINING) : limit.capacity
    const least = emptyBucketBatchUnits(limit)
    if (left === 0 || this.#get(REFUSED_UNTIL_MS) > 0) return least
    const own = this.#get(FIRST + UNITS) + (storeTracksLeases(limit.lease) ? this.#get(FIRST + SPENT) : 0)
    return Math.max(left + own, least) * FREE_SHARE
  }

  /** Refuses `units` until `lastsMs` after the query. The only place that caches a refusal. */
  #refuse(sentMs: number, nowMs: number, lastsMs: number, units: number): void {
    // A query from the future was sent before the clock was set back.
    const isCached = lastsMs > 0 && sentMs > this.#get(ENDED_MS) && sentMs <= nowMs
    this.#set(REFUSED_UNTIL_MS, isCached ? sentMs + Math.min(lastsMs, REFUSAL_MS) : 0)
    this.#set(RETRY_MS, Math.max(this.#get(RETRY_MS), sentMs + lastsMs))
    this.#set(REFUSED_UNITS, units)
  }

  #record(grant: Grant, sentMs: number): void {
    this.#set(QUERIED_MS, sentMs)
    this.#set(REMAINING, grant.remaining)
    this.#set(RESET_MS, sentMs + grant.resetAfterUs / 1000)
    this.#set(RETRY_MS, sentMs + grant.retryAfterUs / 1000)
  }

  /** Whether few units will be spent, at the current rate, before the last batch expires. */
  #expiresSoon(batch: number, nowMs: number): boolean {
    const used = this.#get(USED)
    const leftMs = this.#get(batch + EXPIRES_MS) - nowMs
    return used >= RATE_UNITS_MIN && leftMs * used < UNITS_BEFORE_EXPIRY * (nowMs - this.#get(QUERIED_MS))
  }

  #limit(row: number): Limit {
    return (this.#buckets[row] as BucketName).limit // the row is in use
  }

  #held(nowMs: number): number {
    return this.#available(FIRST, nowMs) + this.#available(SECOND, nowMs)
  }

  #covers(units: number, nowMs: number): boolean {
    return this.#available(FIRST, nowMs) >= units || this.#available(SECOND, nowMs) >= units
  }

  #available(batch: number, nowMs: number): number {
    return nowMs < this.#get(batch + EXPIRES_MS) ? this.#get(batch + UNITS) : 0
  }

  #isEmpty(batch: number): boolean {
    return this.#get(batch + UNITS) + this.#get(batch + SPENT) === 0
  }

  #empty(batch: number): void {
    this.#numbers.fill(0, this.#at + batch, this.#at + batch + BATCH_LENGTH)
  }

  #move(batch: number, units: number): void {
    this.#add(batch + UNITS, -units)
    this.#add(batch + SPENT, units)
  }

  #select(row: number): void {
    this.#numbers = this.#chunks[row >> CHUNK_BITS] as Float64Array // every row is in a chunk
    this.#at = (row & (CHUNK_ROWS - 1)) * ROW_LENGTH
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
