// Compares the admissions of one bucket with its limit in every interval. A request was decided between its sending and
// its response. An interval counts only requests sent and answered within it, so there are no false positives.

/** A token bucket with capacity `burst` and rate `perMs`. */
export type Allowance = { readonly burst: number; readonly perMs: number }

/** Longest interval checked, which bounds memory; a rate that is too high still shows in it. */
const INTERVAL_MS_MAX = 60_000
const ROUNDING = 1e-6

type Start = { readonly sentMs: number; count: number }

export class IntervalCheck {
  readonly #allowance: Allowance
  readonly #starts: Start[] = []
  /** Highest usage of an interval, as a share of its limit. */
  peakUsage = 0
  violations = 0

  constructor(allowance: Allowance) {
    this.#allowance = allowance
  }

  /** Call in the order of the responses. */
  admitted(sentMs: number, answeredMs: number): void {
    const { burst, perMs } = this.#allowance
    const starts = this.#starts
    while (starts[0] !== undefined && starts[0].sentMs < answeredMs - INTERVAL_MS_MAX) starts.shift()
    starts.push({ sentMs, count: 0 })
    let exceeded = false
    for (const start of starts) {
      if (start.sentMs > sentMs) continue
      start.count += 1
      const allowed = burst + perMs * (answeredMs - start.sentMs)
      this.peakUsage = Math.max(this.peakUsage, start.count / allowed)
      if (start.count > allowed + ROUNDING) exceeded = true
    }
    if (exceeded) this.violations += 1
  }
}

/** Reference: what one exact bucket would have admitted for the same requests. */
export class ExactBucket {
  readonly #allowance: Allowance
  #owed = 0
  #sinceMs = 0

  constructor(allowance: Allowance) {
    this.#allowance = allowance
  }

  take(nowMs: number): boolean {
    const { burst, perMs } = this.#allowance
    this.#owed = Math.max(0, this.#owed - (nowMs - this.#sinceMs) * perMs)
    this.#sinceMs = nowMs
    if (this.#owed + 1 > burst + ROUNDING) return false
    this.#owed += 1
    return true
  }
}
