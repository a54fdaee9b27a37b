// Pairs of one process, per rule and window. Everything is bounded: counts per key are kept for a number of keys, and
// only the keys with the most pairs leave the process, as keyed hashes.

import { createHash } from 'node:crypto'
import type { Pair } from 'sluice'
import { type Sketch, SketchBuilder } from './distinct-keys.ts'

/** A key with its pairs, and how many of them only the new version refused. */
export type KeyCount = readonly [hash: number, pairs: number, newlyDenied: number]

/** A key whose versions differed: requests that only the new version refused, only the old one, and both. */
export type KeyDifference = readonly [hash: number, newlyDenied: number, newlyAllowed: number, bothDenied: number]

/** Figures of one rule, window and process. */
export type PairFigures = {
  /** Requests to a global bucket, paired or not; absent for other rules. */
  readonly checks?: number
  readonly pairs: number
  readonly newlyDenied: number
  readonly newlyAllowed: number
  readonly bothDenied: number
  /** Keys with the most pairs: only these can exceed the share that one key may count for. */
  readonly top: readonly KeyCount[]
  /**
   * Differing keys with the smallest hashes. All processes sample the same keys, so the sums of newly denied and newly
   * allowed requests are exact for each key. `bothDenied` errs low: a process where the key does not differ omits it.
   */
  readonly sample: readonly KeyDifference[]
  /** Distinct newly denied keys. */
  readonly keys: Sketch
}

/** Differing keys that are sampled: all of them, in most windows. */
const SAMPLE_SIZE = 128
/** A key with more than 5 % of all pairs has more than 5 % in one process: 64 keys contain it with a wide margin. */
const TOP_KEYS = 64
const KEYS_MAX = 20_000
/** Windows kept until they are written. */
const WINDOWS_MAX = 20

type Count = { readonly hash: number; pairs: number; newlyDenied: number; newlyAllowed: number; bothDenied: number }

class WindowPairs {
  readonly startMs: number
  changed = true
  #checks = 0
  #pairs = 0
  #newlyDenied = 0
  #newlyAllowed = 0
  #bothDenied = 0
  /** By owner: a key is hashed once per window, not once per pair. */
  readonly #keys = new Map<string, Count>()
  readonly #denied = new SketchBuilder()

  constructor(startMs: number) {
    this.startMs = startMs
  }

  count(): void {
    this.#checks += 1
    this.changed = true
  }

  /** Returns false if the key was not counted separately, because there are too many keys. */
  add({ ruleId, owner, currentDenied, candidateDenied }: Pair, salt: string): boolean {
    const newlyDenied = candidateDenied && !currentDenied
    const newlyAllowed = currentDenied && !candidateDenied
    this.changed = true
    this.#pairs += 1
    if (newlyDenied) this.#newlyDenied += 1
    else if (newlyAllowed) this.#newlyAllowed += 1
    else if (currentDenied) this.#bothDenied += 1
    const known = this.#keys.get(owner)
    const hash = known?.hash ?? keyHash(salt, ruleId, owner)
    if (newlyDenied) this.#denied.add(hash)
    if (known === undefined && this.#keys.size >= KEYS_MAX) return false
    const count = known ?? { hash, pairs: 0, newlyDenied: 0, newlyAllowed: 0, bothDenied: 0 }
    if (known === undefined) this.#keys.set(owner, count)
    count.pairs += 1
    if (newlyDenied) count.newlyDenied += 1
    else if (newlyAllowed) count.newlyAllowed += 1
    else if (currentDenied) count.bothDenied += 1
    return true
  }

  figures(): PairFigures {
    const counts = [...this.#keys.values()]
    const busiest = counts.toSorted((one, other) => other.pairs - one.pairs).slice(0, TOP_KEYS)
    const differing = counts.filter(({ newlyDenied, newlyAllowed }) => newlyDenied + newlyAllowed > 0)
    return {
      ...(this.#checks > 0 && { checks: this.#checks }),
      pairs: this.#pairs,
      newlyDenied: this.#newlyDenied,
      newlyAllowed: this.#newlyAllowed,
      bothDenied: this.#bothDenied,
      top: busiest.map(({ hash, pairs, newlyDenied }): KeyCount => [hash, pairs, newlyDenied]),
      sample: bottom(
        differing.map(({ hash, newlyDenied, newlyAllowed, bothDenied }): KeyDifference => {
          return [hash, newlyDenied, newlyAllowed, bothDenied]
        }),
      ),
      keys: this.#denied.sketch,
    }
  }
}

/** The differing keys with the smallest hashes: a sample that merges without loss. */
export function bottom<K extends readonly [hash: number, ...rest: number[]]>(differing: readonly K[]): K[] {
  return [...differing].sort(([one], [other]) => one - other).slice(0, SAMPLE_SIZE)
}

export type FlushedWindow = { readonly ruleId: string; readonly startMs: number; readonly figures: PairFigures }

/** Pairs of the rules of one proposal. */
export class PairStatistics {
  readonly #salt: string
  readonly #windowMs: number
  readonly #rules = new Map<string, WindowPairs[]>()
  /** Pairs whose key was not counted separately, and windows that could not be written. */
  dropped = 0

  constructor(salt: string, windowMs: number) {
    this.#salt = salt
    this.#windowMs = windowMs
  }

  /** `nowMs` is database time. */
  add(pair: Pair, nowMs: number): void {
    if (!this.#windowAt(pair.ruleId, nowMs).add(pair, this.#salt)) this.dropped += 1
  }

  /** Counts a request, paired or not. */
  count(ruleId: string, nowMs: number): void {
    this.#windowAt(ruleId, nowMs).count()
  }

  #windowAt(ruleId: string, nowMs: number): WindowPairs {
    const startMs = Math.floor(nowMs / this.#windowMs) * this.#windowMs
    const windows = this.#rules.get(ruleId) ?? []
    let window = windows.find((known) => known.startMs === startMs)
    if (window === undefined) {
      window = new WindowPairs(startMs)
      windows.push(window)
      this.#rules.set(ruleId, windows)
      if (windows.length > WINDOWS_MAX) {
        windows.shift()
        this.dropped += 1
      }
    }
    return window
  }

  /** Windows that changed since they were last taken. Call `written` when they are stored. */
  changed(): readonly FlushedWindow[] {
    return [...this.#rules].flatMap(([ruleId, windows]) =>
      windows
        .filter(({ changed }) => changed)
        .map((window) => {
          window.changed = false
          return { ruleId, startMs: window.startMs, figures: window.figures() }
        }),
    )
  }

  /** Marks windows as changed again: they were not stored. */
  failed(flushed: readonly FlushedWindow[]): void {
    for (const { ruleId, startMs } of flushed) {
      const window = this.#rules.get(ruleId)?.find((known) => known.startMs === startMs)
      if (window !== undefined) window.changed = true
    }
  }

  /** Forgets windows that were stored and have ended before `beforeMs`. */
  forget(beforeMs: number): void {
    for (const [ruleId, windows] of this.#rules) {
      const kept = windows.filter(({ changed, startMs }) => changed || startMs + this.#windowMs >= beforeMs)
      this.#rules.set(ruleId, kept)
    }
  }
}

/** The same on all nodes, independent of the hash that selects canary keys, and useless without the salt. */
export function keyHash(salt: string, ruleId: string, owner: string): number {
  const text = JSON.stringify([salt, ruleId, owner])
  return createHash('sha256').update(text).digest().readUIntBE(0, 6)
}
