// All leases of a node, found by limit, owner and detail. Bounded: beyond that some go, and what they hold goes back.

import type { Limit } from '../algorithms/limit.ts'
import type { BucketName, Give } from '../store/store.ts'
import { Lease } from './lease.ts'

/** Leases looked at per sweep: a sweep must not hold up a check. */
const SWEPT_MAX = 2000

export class LeaseTable {
  count = 0
  /** Dropped because there were too many. */
  dropped = 0
  readonly #leasesMax: number
  /** Those of one limit in the order in which they were made. */
  readonly #byLimit = new Map<Limit, Map<string, Lease>>()
  #cursor = this.#all()
  #lastLimit: Limit | undefined
  #lastLeases = new Map<string, Lease>()

  constructor(leasesMax: number) {
    this.#leasesMax = leasesMax
  }

  find({ limit, owner, detail }: BucketName): Lease | undefined {
    const leases = limit === this.#lastLimit ? this.#lastLeases : this.#leasesOf(limit)
    return leases?.get(keyOf(owner, detail))
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
    leases.set(keyOf(owner, detail), lease)
    this.count += 1
    return lease
  }

  delete({ limit, owner, detail }: BucketName): void {
    const leases = this.#byLimit.get(limit)
    const key = keyOf(owner, detail)
    if (leases?.has(key)) this.#remove(limit, leases, key)
  }

  /** What is to be said of leases that are spent or no longer good: of a part of them, and of others next time. */
  sweep(nowMs: number): Give[] {
    const gives: Give[] = []
    for (let looked = 0; looked < SWEPT_MAX; looked += 1) {
      const { value, done } = this.#cursor.next()
      if (done) {
        this.#cursor = this.#all()
        break
      }
      const [leases, key, lease] = value
      gives.push(...lease.settle(nowMs, 'sweeping'))
      if (lease.isIdle(nowMs)) this.#remove(lease.limit, leases, key)
    }
    return gives
  }

  /** Forgets all leases, and returns what they hold. */
  clear(nowMs: number): Give[] {
    const gives: Give[] = []
    for (const [, , lease] of this.#all()) gives.push(...lease.settle(nowMs, 'ending'))
    this.#byLimit.clear()
    this.#lastLimit = undefined
    this.#cursor = this.#all()
    this.count = 0
    return gives
  }

  /** What is being asked for right now. */
  refills(): Promise<unknown>[] {
    return [...this.#all()].flatMap(([, , { refilling }]) => refilling ?? [])
  }

  *#all(): Generator<[Map<string, Lease>, string, Lease]> {
    for (const leases of this.#byLimit.values()) {
      for (const [key, lease] of leases) yield [leases, key, lease]
    }
  }

  #leasesOf(limit: Limit): Map<string, Lease> | undefined {
    const leases = this.#byLimit.get(limit)
    if (leases === undefined) return undefined
    this.#lastLimit = limit
    this.#lastLeases = leases
    return leases
  }

  #drop(nowMs: number, gives: Give[]): void {
    for (const [leases, key, lease] of this.#all()) {
      if (lease.refilling !== undefined) continue
      gives.push(...lease.settle(nowMs, 'ending'))
      this.#remove(lease.limit, leases, key)
      this.dropped += 1
      return
    }
  }

  #remove(limit: Limit, leases: Map<string, Lease>, key: string): void {
    leases.delete(key)
    this.count -= 1
    if (leases.size === 0) this.#forget(limit)
  }

  #forget(limit: Limit): void {
    this.#byLimit.delete(limit)
    if (this.#lastLimit === limit) this.#lastLimit = undefined
  }
}

function keyOf(owner: string, detail: string): string {
  return detail === '' ? owner : `${owner.length}:${owner}${detail}`
}
