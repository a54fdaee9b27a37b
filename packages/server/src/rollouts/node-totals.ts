// Decisions of this process per window, from totals that only grow.

import type { Metrics } from '../metrics/metrics.ts'
import { type NodeFigures, type StepTimes, TIME_BOUNDS_MS } from './windows.ts'

type Totals = { readonly decided: number; readonly failed: number; readonly times: StepTimes }

export class NodeTotals {
  readonly #read: () => Totals
  readonly #windowMs: number
  readonly #times = { current: noTimes(), candidate: noTimes(), currentPaired: noTimes(), candidatePaired: noTimes() }
  #startMs = Number.NaN
  #base: Totals
  #last: Totals

  constructor(metrics: Pick<Metrics, 'checkTotals'>, windowMs: number) {
    this.#read = () => {
      const { decided, byPolicy } = metrics.checkTotals()
      return { decided, failed: byPolicy, times: mapTimes((name) => [...this.#times[name]]) }
    }
    this.#windowMs = windowMs
    this.#base = this.#last = this.#read()
  }

  /** Counts a decision that took this long. */
  time(name: keyof StepTimes, ms: number): void {
    const found = TIME_BOUNDS_MS.findIndex((bound) => ms <= bound)
    const bucket = found < 0 ? TIME_BOUNDS_MS.length : found
    this.#times[name][bucket] = (this.#times[name][bucket] ?? 0) + 1
  }

  /** Figures of the window at this database time. */
  figures(nowMs: number): { readonly startMs: number; readonly figures: NodeFigures } {
    const startMs = Math.floor(nowMs / this.#windowMs) * this.#windowMs
    if (startMs !== this.#startMs) {
      this.#startMs = startMs
      this.#base = this.#last
    }
    const { decided, failed, times } = this.#base
    this.#last = this.#read()
    const since = (name: keyof StepTimes) =>
      this.#last.times[name].map((count, index) => count - (times[name][index] ?? 0))
    return {
      startMs,
      figures: {
        decided: this.#last.decided - decided,
        failed: this.#last.failed - failed,
        latency: [], // evaluators of earlier versions read it
        times: mapTimes(since),
      },
    }
  }
}

function noTimes(): number[] {
  return Array(TIME_BOUNDS_MS.length + 1).fill(0)
}

function mapTimes(read: (name: keyof StepTimes) => readonly number[]): StepTimes {
  return {
    current: read('current'),
    candidate: read('candidate'),
    currentPaired: read('currentPaired'),
    candidatePaired: read('candidatePaired'),
  }
}
