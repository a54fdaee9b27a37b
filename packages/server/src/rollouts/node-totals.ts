// Decisions of this process per window, from totals that only grow.

import type { Metrics } from '../metrics/metrics.ts'
import type { NodeFigures } from './windows.ts'

type Totals = { readonly decided: number; readonly failed: number; readonly latency: readonly number[] }

export class NodeTotals {
  readonly #read: () => Totals
  readonly #windowMs: number
  #startMs = Number.NaN
  #base: Totals
  #last: Totals

  constructor(metrics: Pick<Metrics, 'checkTotals' | 'decisionTimes'>, windowMs: number) {
    this.#read = () => {
      const { decided, byPolicy } = metrics.checkTotals()
      return { decided, failed: byPolicy, latency: metrics.decisionTimes() }
    }
    this.#windowMs = windowMs
    this.#base = this.#last = this.#read()
  }

  /** Figures of the window at this database time. */
  figures(nowMs: number): { readonly startMs: number; readonly figures: NodeFigures } {
    const startMs = Math.floor(nowMs / this.#windowMs) * this.#windowMs
    if (startMs !== this.#startMs) {
      this.#startMs = startMs
      this.#base = this.#last
    }
    const { decided, failed, latency } = this.#base
    this.#last = this.#read()
    return {
      startMs,
      figures: {
        decided: this.#last.decided - decided,
        failed: this.#last.failed - failed,
        latency: this.#last.latency.map((count, index) => count - (latency[index] ?? 0)),
      },
    }
  }
}
