// All leases of a node, found by limit, owner and detail. Bounded: when it is full, a new lease replaces the one that
// holds the fewest units among a few candidates, whose units go back to the store.

import type { BucketName, Give, Take } from '../store/store.ts'
import { LeaseIndex } from './lease-index.ts'
import { LeaseRows } from './lease-rows.ts'
import { withStoreLimit } from './store-limit.ts'

/** Rows visited per sweep, so that a sweep never blocks checks for long. */
const SWEPT_MAX = 2000
const DROP_CANDIDATES = 8

export class LeaseTable {
  /** A row is valid until the next await: after it, find the bucket's row again. */
  readonly rows: LeaseRows = new LeaseRows()
  count = 0
  /** Leases dropped because the table was full. */
  dropped = 0
  readonly #leasesMax: number
  readonly #index = new LeaseIndex()
  #sweptTo = 0
  #droppedTo = 0

  constructor(leasesMax: number) {
    this.#leasesMax = leasesMax
  }

  /** The row of the bucket, or -1. */
  find(bucket: BucketName): number {
    return this.#index.find(bucket)
  }

  /** Adds the units of a lease that had to make room to `gives`. */
  findOrAdd(bucket: BucketName, nowMs: number, gives: Give[]): number {
    const known = this.find(bucket)
    if (known >= 0) return known
    if (this.count >= this.#leasesMax) this.#drop(nowMs, gives)
    const row = this.rows.add(bucket)
    this.#index.set(bucket, row, nowMs)
    this.count += 1
    return row
  }

  delete(bucket: BucketName): void {
    const row = this.find(bucket)
    if (row >= 0) this.#remove(row, bucket)
  }

  /** Drops the leases that a take resets, and returns the take for the store, which resets and charges in one step. */
  dropResets(take: Take): Take {
    const { charges, resets = [] } = take
    for (const bucket of resets) this.delete(bucket)
    return { ...take, charges: charges.map(withStoreLimit), resets: resets.map(withStoreLimit) }
  }

  /** Settles spent and expired batches, and removes idle leases. Each call covers some rows and the next continues. */
  sweep(nowMs: number): Give[] {
    const gives: Give[] = []
    const { rows } = this
    for (let visits = Math.min(SWEPT_MAX, rows.length); visits > 0; visits -= 1) {
      this.#sweptTo = (this.#sweptTo + 1) % rows.length
      const row = this.#sweptTo
      const bucket = rows.bucket(row)
      if (bucket === undefined) continue
      rows.settle(row, nowMs, 'sweep', gives)
      if (rows.isIdle(row, nowMs) && rows.pending(row) === undefined) this.#remove(row, bucket)
    }
    return gives
  }

  /** Removes all leases, and returns what they hold. */
  clear(nowMs: number): Give[] {
    const gives: Give[] = []
    for (let row = 0; row < this.rows.length; row += 1) this.#end(row, nowMs, gives)
    return gives
  }

  #drop(nowMs: number, gives: Give[]): void {
    const { rows } = this
    let cheapest = -1
    let least = Number.POSITIVE_INFINITY
    for (let visits = 0; visits < DROP_CANDIDATES; visits += 1) {
      this.#droppedTo = (this.#droppedTo + 1) % rows.length
      if (rows.bucket(this.#droppedTo) === undefined || rows.pending(this.#droppedTo) !== undefined) continue
      const held = rows.held(this.#droppedTo, nowMs)
      if (held >= least) continue
      least = held
      cheapest = this.#droppedTo
    }
    if (cheapest < 0) return
    this.#end(cheapest, nowMs, gives)
    this.dropped += 1
  }

  #end(row: number, nowMs: number, gives: Give[]): void {
    const bucket = this.rows.bucket(row)
    if (bucket === undefined) return
    this.rows.settle(row, nowMs, 'end', gives)
    this.#remove(row, bucket)
  }

  #remove(row: number, bucket: BucketName): void {
    this.#index.delete(bucket)
    this.rows.remove(row)
    this.count -= 1
  }
}
