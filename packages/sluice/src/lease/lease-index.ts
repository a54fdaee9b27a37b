// Which row of the lease table a bucket has. Found by a keyed fingerprint of 64 bits, in the table that the memory
// store keeps its buckets in: a Map of strings would cost a check more than all the rest of it.

import type { Limit } from '../algorithms/limit.ts'
import { BucketTable } from '../store/bucket-table.ts'
import { type HashSeed, KeyHash, randomSeed } from '../store/half-sip-hash.ts'
import type { BucketName } from '../store/store.ts'

/** Beside the row: whether it is the bucket's still. Others are swept out when room is needed. */
const TAKEN = 1

export class LeaseIndex {
  readonly #hash = new KeyHash()
  readonly #seed = randomSeed()
  /** An edited rule has other limits: what was held under the old ones is not found any more. */
  readonly #seeds = new WeakMap<Limit, HashSeed>()
  readonly #table = new BucketTable({ isVacant: (_tag, _row, taken) => taken !== TAKEN, dropped: () => {} })
  #limits = 0
  #lastLimit: Limit | undefined
  #lastSeed = this.#seed

  /** The row of a bucket, or -1: an integer to V8 as well, which is quicker to count with. */
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

  /** Leaves the fingerprint in #hash and the place in #table. */
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
      seed = this.#hash.seedBehind(this.#seed, String(this.#limits))
      this.#seeds.set(limit, seed)
    }
    this.#lastLimit = limit
    this.#lastSeed = seed
    return seed
  }
}
