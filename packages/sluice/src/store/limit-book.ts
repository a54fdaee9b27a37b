// The memory store's list of limits: a bucket remembers which limit wrote it by a number into this list, so an edited
// rule still finds the numbers its buckets were written under. Entries that no bucket refers to are used again.

import type { Algorithm, PackedState } from '../algorithms/algorithm.ts'
import type { PackedLimit } from '../algorithms/registry.ts'
import { isBucket, PACKED } from '../algorithms/registry.ts'
import { type HashSeed, KeyHash, randomSeed } from './half-sip-hash.ts'
import { onWindowTime, WindowTime } from './window-time.ts'

export type LimitPage = {
  readonly limit: PackedLimit
  algorithm: Algorithm<PackedState>
  readonly index: number
  /** Hash of everything that names a bucket of this limit but its owner and detail. */
  readonly seed: HashSeed
  readonly twoCounts: boolean
  buckets: number
}

/** Above this, pages without buckets are looked for before the list grows. */
const PAGES_TIDY = 1024

export class LimitBook {
  readonly #pages: LimitPage[] = []
  readonly #byLimit = new WeakMap<PackedLimit, LimitPage>()
  readonly #byPrint = new Map<string, LimitPage>()
  readonly #seed = randomSeed()
  /** By length of the window. */
  readonly #times = new Map<number, WindowTime>()
  #aheadUs = 0
  #isBehind = false
  #last: LimitPage | undefined

  pageOf(limit: PackedLimit): LimitPage {
    const last = this.#last
    if (last !== undefined && last.limit === limit) return last
    let page = this.#byLimit.get(limit)
    if (page === undefined || this.#pages[page.index] !== page) {
      page = this.#open(limit)
      this.#byLimit.set(limit, page)
    }
    this.#last = page
    return page
  }

  pageAt(index: number): LimitPage {
    return this.#pages[index] as LimitPage // only indexes of pages with buckets are stored, and those are kept
  }

  /** Windows are to follow the time of day, which is so far ahead of the store's. Does nothing until that changes. */
  follow(aheadUs: number, nowUs: number): void {
    if (aheadUs === this.#aheadUs && !this.#isBehind) return
    this.#aheadUs = aheadUs
    this.#isBehind = false
    for (const time of this.#times.values()) if (!time.follow(aheadUs, nowUs)) this.#isBehind = true
    for (const page of this.#pages) page.algorithm = this.#algorithmOf(page.limit)
  }

  #algorithmOf({ algorithm, windowUs }: PackedLimit): Algorithm<PackedState> {
    if (isBucket(algorithm)) return PACKED[algorithm]
    const time = this.#times.get(windowUs) ?? new WindowTime(windowUs, this.#aheadUs)
    this.#times.set(windowUs, time)
    return time.isShifted ? onWindowTime(PACKED[algorithm], time) : PACKED[algorithm]
  }

  /** Rules that are read again make new Limit objects of the same numbers: these share a page. */
  #open(limit: PackedLimit): LimitPage {
    const print = JSON.stringify(limit)
    const known = this.#byPrint.get(print)
    if (known !== undefined) return known
    const index = this.#freeIndex()
    const page = {
      limit,
      algorithm: this.#algorithmOf(limit),
      index,
      seed: new KeyHash().seedBehind(this.#seed, `${limit.id}\n${limit.fact}`),
      twoCounts: limit.algorithm === 'sliding_window',
      buckets: 0,
    }
    this.#pages[index] = page
    this.#byPrint.set(print, page)
    return page
  }

  #freeIndex(): number {
    if (this.#pages.length < PAGES_TIDY) return this.#pages.length
    const unused = this.#pages.find((page) => page.buckets === 0 && page !== this.#last)
    if (unused === undefined) return this.#pages.length
    this.#byPrint.delete(JSON.stringify(unused.limit))
    return unused.index
  }
}
