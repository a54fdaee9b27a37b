// Counts per step of time. The number of steps is bounded: steps grow, and merge, when a recording is long.

import type { Point } from './result.ts'

/** Each is a multiple of the one before, so that steps can be merged. */
const STEPS_SECONDS: readonly number[] = [1, 5, 15, 60, 300, 900, 3600, 21_600, 86_400, 604_800]
const POINTS_MAX = 300

type Counts = { requests: number; refused: number; nowRefused: number }

export class Timeline {
  #stepUs: number
  #points = new Map<number, Counts>()
  #lastIndex = Number.NaN
  #last: Counts | undefined

  /** `stepSeconds`: the shortest step. */
  constructor(stepSeconds: number = 1) {
    this.#stepUs = stepSeconds * 1e6
  }

  get stepSeconds(): number {
    return this.#stepUs / 1e6
  }

  add(atUs: number, refused: boolean, nowRefused: boolean): void {
    const index = Math.floor(atUs / this.#stepUs)
    const counts = index === this.#lastIndex && this.#last !== undefined ? this.#last : this.#at(index, atUs)
    counts.requests += 1
    if (refused) counts.refused += 1
    if (nowRefused) counts.nowRefused += 1
  }

  /** In order; steps without requests are absent. */
  points(scale: number, hasNow: boolean): Point[] {
    return [...this.#points]
      .sort(([a], [b]) => a - b)
      .map(([index, { requests, refused, nowRefused }]) => ({
        at: new Date((index * this.#stepUs) / 1000).toISOString(),
        requests: Math.round(requests * scale),
        refused: Math.round(refused * scale),
        now_refused: hasNow ? Math.round(nowRefused * scale) : null,
      }))
  }

  #at(index: number, atUs: number): Counts {
    const known = this.#points.get(index)
    if (known === undefined && this.#points.size >= POINTS_MAX && this.#grow()) {
      return this.#at(Math.floor(atUs / this.#stepUs), atUs)
    }
    const counts = known ?? { requests: 0, refused: 0, nowRefused: 0 }
    if (known === undefined) this.#points.set(index, counts)
    this.#lastIndex = index
    this.#last = counts
    return counts
  }

  /** Merges points into the next longer step; false if there is none. */
  #grow(): boolean {
    const seconds = STEPS_SECONDS.find((step) => step > this.stepSeconds && step % this.stepSeconds === 0)
    if (seconds === undefined) return false
    const factor = seconds / this.stepSeconds
    const merged = new Map<number, Counts>()
    for (const [index, { requests, refused, nowRefused }] of this.#points) {
      const into = merged.get(Math.floor(index / factor)) ?? { requests: 0, refused: 0, nowRefused: 0 }
      into.requests += requests
      into.refused += refused
      into.nowRefused += nowRefused
      merged.set(Math.floor(index / factor), into)
    }
    this.#points = merged
    this.#stepUs = seconds * 1e6
    this.#lastIndex = Number.NaN
    return true
  }
}
