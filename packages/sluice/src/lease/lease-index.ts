// Maps buckets to rows of the lease table, by a keyed 64-bit fingerprint in the hash table of the memory store. A Map
// of strings would cost more than the rest of the check.

import type { Limit } from '../algorithms/limit.ts'
import { BucketTable } from '../store/bucket-table.ts'
import { HalfSipHash, type HashSeed, randomSeed } from '../store/half-sip-hash.ts'
import type { BucketName } from '../store/store.ts'

/** Stored beside the row while the bucket owns it. Other entries are reclaimed when space is needed. */
const TAKEN = 1

export class LeaseIndex {
  readonly #hash = new HalfSipHash()
  readonly #seed = randomSeed()
  /** Per limit object, so that leases of a rule are not found after it was edited. */
  readonly #seeds = new WeakMap<Limit, HashSeed>()
  readonly #table = new BucketTable({ isVacant: (_tag, _row, taken) => taken !== TAKEN, dropped: () => {} })
  #limits = 0
  #lastLimit: Limit | undefined
  #lastSeed = this.#seed

  /** The row of a bucket, or -1. */
  find(bucket: BucketName): number {
    return this.#found(bucket) && this.#table.second === TAKEN ? this.#table.first | 0 : -1
  }

  set(bucket: BucketName, row: number, nowMs: number): void {
    if (this.#found(bucket)) this.#table.write(0, row, TAKEN)
    else this.#table.insert(this.#hash.high, this.#hash.low, 0, row, TAKEN, nowMs * 1000)
  }

  delete(bucket: BucketName): void {
    if (this.#found(bucket)) this.#table.write(0, 0, 0)
  }

  /** Leaves the fingerprint in #hash and the position in #table. */
  #found({ limit, owner, detail }: BucketName): boolean {
    const hash = this.#hash
    hash.hash(limit === this.#lastLimit ? this.#lastSeed : this.#seedOf(limit), owner, detail)
    if (hash.high === 0 && hash.low === 0) hash.low = 1
    return this.#table.find(hash.high, hash.low)
  }

  #seedOf(limit: Limit): HashSeed {
    let seed = this.#seeds.get(limit)
    if (seed === undefined) {
      this.#limits += 1
      seed = this.#hash.seedAfter(this.#seed, String(this.#limits))
      this.#seeds.set(limit, seed)
    }
    this.#lastLimit = limit
    this.#lastSeed = seed
    return seed
  }
}
