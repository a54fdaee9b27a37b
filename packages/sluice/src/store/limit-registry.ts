// Limits known to the memory store. A bucket stores the index of the limit that wrote it, so that an edited rule can
// carry its buckets over. Indexes without buckets are reused.

import type { Algorithm, PackedState } from '../algorithms/algorithm.ts'
import type { PackedLimit } from '../algorithms/registry.ts'
import { PACKED } from '../algorithms/registry.ts'
import { ALGORITHMS } from '../algorithms/traits.ts'
import { HalfSipHash, type HashSeed, randomSeed } from './half-sip-hash.ts'
import { onWindowTime, WindowTime } from './window-time.ts'

export type RegisteredLimit = {
  readonly limit: PackedLimit
  algorithm: Algorithm<PackedState>
  readonly index: number
  /** Hash of the limit's id and fact; owner and detail are hashed after it. */
  readonly seed: HashSeed
  readonly twoCounts: boolean
  buckets: number
}

/** From this size on, indexes without buckets are reused before the list grows. */
const REUSE_FROM = 1024

export class LimitRegistry {
  readonly #limits: RegisteredLimit[] = []
  readonly #byLimit = new WeakMap<PackedLimit, RegisteredLimit>()
  readonly #byFingerprint = new Map<string, RegisteredLimit>()
  /** Drawn on first use, because Workers reject random values while modules load. */
  #seed: HashSeed | undefined
  /** Window times by window length. */
  readonly #times = new Map<number, WindowTime>()
  #aheadUs = 0
  #isBehind = false
  #last: RegisteredLimit | undefined

  register(limit: PackedLimit): RegisteredLimit {
    const last = this.#last
    if (last !== undefined && last.limit === limit) return last
    let registered = this.#byLimit.get(limit)
    if (registered === undefined || this.#limits[registered.index] !== registered) {
      registered = this.#add(limit)
      this.#byLimit.set(limit, registered)
    }
    this.#last = registered
    return registered
  }

  at(index: number): RegisteredLimit {
    return this.#limits[index] as RegisteredLimit // buckets store only indexes in use, which are never reused
  }

  /** Makes windows follow wall-clock time, which is `aheadUs` ahead of store time. No-op until that changes. */
  follow(aheadUs: number, nowUs: number): void {
    if (aheadUs === this.#aheadUs && !this.#isBehind) return
    this.#aheadUs = aheadUs
    this.#isBehind = false
    for (const time of this.#times.values()) if (!time.follow(aheadUs, nowUs)) this.#isBehind = true
    for (const registered of this.#limits) registered.algorithm = this.#algorithmOf(registered.limit)
  }

  #algorithmOf({ algorithm, windowUs }: PackedLimit): Algorithm<PackedState> {
    if (ALGORITHMS[algorithm].windows === 0) return PACKED[algorithm]
    const time = this.#times.get(windowUs) ?? new WindowTime(windowUs, this.#aheadUs)
    this.#times.set(windowUs, time)
    return time.isShifted ? onWindowTime(PACKED[algorithm], time) : PACKED[algorithm]
  }

  /** Limit objects with equal numbers share an index: reloading rules creates new objects. */
  #add(limit: PackedLimit): RegisteredLimit {
    const fingerprint = JSON.stringify(limit)
    const known = this.#byFingerprint.get(fingerprint)
    if (known !== undefined) return known
    this.#seed ??= randomSeed()
    const index = this.#freeIndex()
    const registered = {
      limit,
      algorithm: this.#algorithmOf(limit),
      index,
      seed: new HalfSipHash().seedAfter(this.#seed, `${limit.id}\n${limit.fact}`),
      twoCounts: ALGORITHMS[limit.algorithm].windows === 2,
      buckets: 0,
    }
    this.#limits[index] = registered
    this.#byFingerprint.set(fingerprint, registered)
    return registered
  }

  #freeIndex(): number {
    if (this.#limits.length < REUSE_FROM) return this.#limits.length
    const unused = this.#limits.find((registered) => registered.buckets === 0 && registered !== this.#last)
    if (unused === undefined) return this.#limits.length
    this.#byFingerprint.delete(JSON.stringify(unused.limit))
    return unused.index
  }
}
