// All leases of a node, found by limit, owner and detail. Bounded: the oldest go first, and what they hold goes back.

import type { Limit } from '../algorithms/limit.ts'
import type { BucketName, Give } from '../store/store.ts'
import { Lease } from './lease.ts'

/** Leases looked at per sweep and limit: a sweep must not hold up a check. */
const SWEPT_MAX = 2000

export class LeaseTable {
  count = 0
  /** Dropped because there were too many. */
  dropped = 0
  readonly #leasesMax: number
  /** Those of one limit in the order in which they were last swept or made. */
  readonly #byLimit = new Map<Limit, Map<string, Lease>>()
  #lastLimit: Limit | undefined
  #lastLeases = new Map<string, Lease>()

  constructor(leasesMax: number) {
    this.#leasesMax = leasesMax
  }

  find({ limit, owner, detail }: BucketName): Lease | undefined {
    const leases = limit === this.#lastLimit ? this.#lastLeases : this.#leasesOf(limit)
    return leases?.get(detail === '' ? owner : keyOf(owner, detail))
  }

  /** The lease of a bucket, made if there is none. What had to go for it is added to `gives`. */
  findOrAdd(bucket: BucketName, nowMs: number, gives: Give[]): Lease {
    const known = this.find(bucket)
    if (known !== undefined) return known
    if (this.count >= this.#leasesMax) this.#drop(nowMs, gives)
    const { limit, owner, detail } = bucket
    const lease = new Lease(limit, owner, detail)
    let leases = this.#byLimit.get(limit)
    if (leases === undefined) {
      leases = new Map()
      this.#byLimit.set(limit, leases)
    }
    leases.set(detail === '' ? owner : keyOf(owner, detail), lease)
    this.count += 1
    return lease
  }

  delete(bucket: BucketName): void {
    const key = bucket.detail === '' ? bucket.owner : keyOf(bucket.owner, bucket.detail)
    if (this.#byLimit.get(bucket.limit)?.delete(key)) this.count -= 1
  }

  /** Takes back what is no longer good (or, at the end, everything) and forgets leases that nobody uses. */
  sweep(nowMs: number, all: boolean): Give[] {
    const gives: Give[] = []
    for (const [limit, leases] of this.#byLimit) {
      let looked = 0
      for (const [key, lease] of leases) {
        looked += 1
        if (looked > SWEPT_MAX && !all) break
        gives.push(...lease.takeBack(nowMs, all))
        leases.delete(key)
        if (all || lease.isIdle(nowMs)) this.count -= 1
        else leases.set(key, lease) // to the end: the others come first next time
        if (looked === leases.size) break
      }
      if (leases.size === 0) this.#forget(limit)
    }
    return gives
  }

  #leasesOf(limit: Limit): Map<string, Lease> | undefined {
    const leases = this.#byLimit.get(limit)
    if (leases === undefined) return undefined
    this.#lastLimit = limit
    this.#lastLeases = leases
    return leases
  }

  #drop(nowMs: number, gives: Give[]): void {
    for (const [limit, leases] of this.#byLimit) {
      for (const [key, lease] of leases) {
        if (lease.refilling !== undefined) continue
        gives.push(...lease.takeBack(nowMs, true))
        leases.delete(key)
        if (leases.size === 0) this.#forget(limit)
        this.count -= 1
        this.dropped += 1
        return
      }
    }
  }

  #forget(limit: Limit): void {
    this.#byLimit.delete(limit)
    if (this.#lastLimit === limit) this.#lastLimit = undefined
  }
}

function keyOf(owner: string, detail: string): string {
  return `${owner.length}:${owner}${detail}`
}
