// Buckets with lists (logs and permits), kept as objects and capped in number. Each insert reclaims a few vacant ones.
// At the cap, new buckets share overflow lists, so a flood never evicts a refused client.

import type { Algorithm } from '../algorithms/algorithm.ts'
import type { Limit } from '../algorithms/limit.ts'
import { COUNTERFACTUAL_RETENTION_US } from './counterfactual.ts'

export type ListBucket = { limit: Limit; algorithm: Algorithm<unknown>; state: unknown; changedUs: number }

const RECLAIM_STEPS = 4
const OVERFLOW_LISTS = 64
/** Vacant lists are kept this long, so that a clock that steps back by less finds them unchanged. */
const VACANT_US = 60_000_000

export class ListTable {
  /** Requests for buckets that shared an overflow list. */
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

  /** Key of a bucket: its own, or that of an overflow list if the table is full. */
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
      const [key, { limit, algorithm, state, changedUs }] = next.value
      if (limit.seed !== undefined && nowUs < changedUs + COUNTERFACTUAL_RETENTION_US) continue
      if (algorithm.resetUs(limit, state, nowUs - VACANT_US) === 0) this.#buckets.delete(key)
    }
  }
}

/** Spreads keys over the overflow lists; need not resist chosen keys. */
function sumOfUnits(text: string): number {
  let sum = 0
  for (let index = 0; index < text.length; index += 1) sum = (sum * 31 + text.charCodeAt(index)) >>> 0
  return sum
}
