// All leases of a node: rows of numbers in typed arrays, found by limit, owner and detail. Bounded: beyond that some
// go, and what they hold goes back.

import type { BucketName, Give, Take } from '../store/store.ts'
import { asCharged, Lease, ROW_LENGTH } from './lease.ts'
import { LeaseIndex } from './lease-index.ts'

/** Rows are made a chunk at a time, so that none of them ever moves. Found by bits: a remainder takes V8 longer. */
const CHUNK_BITS = 12
const CHUNK_ROWS = 2 ** CHUNK_BITS
/** Rows looked at per sweep: a sweep must not hold up a check. */
const SWEPT_MAX = 2000
/** Leases among which the one to go is chosen. */
const DROP_CHOICES = 8

export class LeaseTable {
  count = 0
  /** Dropped because there were too many. */
  dropped = 0
  readonly #leasesMax: number
  readonly #chunks: Float64Array[] = []
  /** By row; undefined where a row is free. */
  readonly #buckets: (BucketName | undefined)[] = []
  readonly #freeRows: number[] = []
  readonly #index = new LeaseIndex()
  /**
   * By row: what the store is being asked for it. Such rows stay where they are. A Map would be simpler, but leaves a
   * table behind each time it grows, which keeps alive what it held: that was most of what V8 had to collect at length.
   */
  readonly #asking: (Promise<unknown> | undefined)[] = []
  readonly #lease = new Lease()
  #sweptTo = 0
  #droppedTo = 0

  constructor(leasesMax: number) {
    this.#leasesMax = leasesMax
  }

  /** The clock was set forward by so much: what was spent since is not that much later than what was charged. */
  stepped(ms: number): void {
    this.#lease.steppedMs += ms
  }

  /** The row of a bucket, or -1. */
  rowOf(bucket: BucketName): number {
    return this.#index.find(bucket)
  }

  /** The same, added if there is none. What had to go for it is added to `gives`. */
  rowFor(bucket: BucketName, nowMs: number, gives: Give[]): number {
    const known = this.rowOf(bucket)
    if (known >= 0) return known
    if (this.count >= this.#leasesMax) this.#drop(nowMs, gives)
    const { limit, owner, detail } = bucket
    const row = this.#freeRows.pop() ?? this.#buckets.length
    if (row === this.#chunks.length * CHUNK_ROWS) this.#chunks.push(new Float64Array(CHUNK_ROWS * ROW_LENGTH))
    this.#buckets[row] = { limit, owner, detail }
    this.#asking[row] = undefined
    this.at(row).clear()
    this.#index.set(bucket, row, nowMs)
    this.count += 1
    return row
  }

  /** The lease of a row. Good until the next call: there is one view, which is moved. */
  at(row: number): Lease {
    const chunk = this.#chunks[row >> CHUNK_BITS] as Float64Array // every row is in one
    return this.#lease.move(chunk, (row & (CHUNK_ROWS - 1)) * ROW_LENGTH)
  }

  find(bucket: BucketName): Lease | undefined {
    const row = this.rowOf(bucket)
    return row < 0 ? undefined : this.at(row)
  }

  /** While the store is asked for more: whoever needs some waits for it instead of asking as well. */
  askingOf(row: number): Promise<unknown> | undefined {
    return row < 0 ? undefined : this.#asking[row] // V8 reads slowly what is before an array
  }

  ask(row: number, answer: Promise<unknown>): void {
    this.#asking[row] = answer
  }

  /** The answer has come. False when the lease was forgotten meanwhile, and perhaps made anew. */
  answered(row: number, answer: Promise<unknown>): boolean {
    if (this.askingOf(row) !== answer) return false
    this.#asking[row] = undefined
    return true
  }

  /** What is being asked for right now. */
  asking(): Promise<unknown>[] {
    return this.#asking.filter((answer) => answer !== undefined)
  }

  delete(bucket: BucketName): void {
    const row = this.rowOf(bucket)
    if (row >= 0) this.#remove(row, bucket)
  }

  /** Forgets what a take resets, and returns the take for the store: to reset and to charge is one step there. */
  forgetting({ charges, resets = [], ...take }: Take): Take {
    for (const bucket of resets) this.delete(bucket)
    return { ...take, charges: charges.map(asCharged), resets: resets.map(asCharged) }
  }

  /** What is to be said of leases that are spent or no longer good: of a part of them, and of others next time. */
  sweep(nowMs: number): Give[] {
    const gives: Give[] = []
    for (let looked = Math.min(SWEPT_MAX, this.#buckets.length); looked > 0; looked -= 1) {
      this.#sweptTo = (this.#sweptTo + 1) % this.#buckets.length
      const bucket = this.#buckets[this.#sweptTo]
      if (bucket === undefined) continue
      const lease = this.at(this.#sweptTo)
      lease.settle(bucket, nowMs, 'sweeping', gives)
      if (lease.isIdle(bucket, nowMs) && this.#asking[this.#sweptTo] === undefined) this.#remove(this.#sweptTo, bucket)
    }
    return gives
  }

  /** Forgets all leases, and returns what they hold. */
  clear(nowMs: number): Give[] {
    const gives: Give[] = []
    this.#buckets.forEach((bucket, row) => {
      if (bucket === undefined) return
      this.at(row).settle(bucket, nowMs, 'ending', gives)
      this.#remove(row, bucket)
    })
    return gives
  }

  /** Makes room: of some leases, the one that holds least goes. */
  #drop(nowMs: number, gives: Give[]): void {
    let cheapest = -1
    let least = Number.POSITIVE_INFINITY
    for (let looked = 0; looked < DROP_CHOICES; looked += 1) {
      this.#droppedTo = (this.#droppedTo + 1) % this.#buckets.length
      if (this.#buckets[this.#droppedTo] === undefined || this.#asking[this.#droppedTo] !== undefined) continue
      const held = this.at(this.#droppedTo).held(nowMs)
      if (held >= least) continue
      least = held
      cheapest = this.#droppedTo
    }
    const bucket = this.#buckets[cheapest]
    if (bucket === undefined) return
    this.at(cheapest).settle(bucket, nowMs, 'ending', gives)
    this.#remove(cheapest, bucket)
    this.dropped += 1
  }

  #remove(row: number, bucket: BucketName): void {
    this.#index.delete(bucket)
    this.#buckets[row] = undefined
    this.#asking[row] = undefined
    this.#freeRows.push(row)
    this.count -= 1
  }
}
