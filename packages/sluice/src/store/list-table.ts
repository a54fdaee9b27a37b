// Logs and permits: buckets that hold a list, kept as objects, bounded in number. Vacant ones are reclaimed a few at a
// time by whoever adds one; at the cap new buckets share overflow lists, so a flood never frees a blocked one.

import type { Algorithm } from '../algorithms/algorithm.ts'
import type { Limit } from '../algorithms/limit.ts'

export type ListBucket = { limit: Limit; algorithm: Algorithm<unknown>; state: unknown }

const RECLAIM_STEPS = 4
const OVERFLOW_LISTS = 64
/** Vacant lists stay for a while: a clock that steps back by less finds them as they were. */
const VACANT_US = 60_000_000

export class ListTable {
  /** Buckets that had to share an overflow list. */
  overflowed = 0
  readonly #buckets = new Map<string, ListBucket>()
  readonly #bucketsMax: number
  #cursor: Iterator<[string, ListBucket]> = this.#buckets.entries()

  constructor(bucketsMax: number) {
    this.#bucketsMax = bucketsMax
  }

  get count(): number {
    return this.#buckets.size
  }

  get(key: string): ListBucket | undefined {
    return this.#buckets.get(key)
  }

  set(key: string, bucket: ListBucket, nowUs: number): void {
    if (!this.#buckets.has(key)) this.#reclaim(nowUs)
    this.#buckets.set(key, bucket)
  }

  delete(key: string): void {
    this.#buckets.delete(key)
  }

  /** The name under which a bucket is kept: its own, or, when there is no room for a new one, one that it shares. */
  keyOf(limit: Limit, owner: string, detail: string, nowUs: number): string {
    const prefix = `${limit.id}|${limit.fact}|`
    const key = `${prefix}${owner.length}|${owner}${detail}`
    if (this.#buckets.size < this.#bucketsMax || this.#buckets.has(key)) return key
    this.#reclaim(nowUs)
    if (this.#buckets.size < this.#bucketsMax) return key
    this.overflowed += 1
    return `${prefix}overflow|${sumOfUnits(owner + detail) % OVERFLOW_LISTS}`
  }

  #reclaim(nowUs: number): void {
    for (let step = 0; step < RECLAIM_STEPS; step += 1) {
      const next = this.#cursor.next()
      if (next.done) {
        this.#cursor = this.#buckets.entries()
        return
      }
      const [key, { limit, algorithm, state }] = next.value
      if (algorithm.resetUs(limit, state, nowUs - VACANT_US) === 0) this.#buckets.delete(key)
    }
  }
}

/** Spreads keys over the overflow lists; which one matters little, so it need not resist anybody. */
function sumOfUnits(text: string): number {
  let sum = 0
  for (let index = 0; index < text.length; index += 1) sum = (sum * 31 + text.charCodeAt(index)) >>> 0
  return sum
}
