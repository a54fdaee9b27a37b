// Holds the admissions of one bucket against its limit, in every interval between two of them. A request was decided at
// some moment between being sent and being answered; an interval counts those that were both sent and answered within
// it, so nothing is ever called too much that was not.

/** A token bucket: `burst` at once, and `perMs` from then on. */
export type Allowance = { readonly burst: number; readonly perMs: number }

/** The longest interval that is looked at: memory is bounded, and a rate that is too high shows in it all the same. */
const INTERVAL_MS_MAX = 60_000
const ROUNDING = 1e-6

type Start = { readonly sentMs: number; count: number }

export class IntervalCheck {
  readonly #allowance: Allowance
  readonly #starts: Start[] = []
  /** The most that an interval saw, of what it may see. */
  fullest = 0
  violations = 0

  constructor(allowance: Allowance) {
    this.#allowance = allowance
  }

  /** In the order of the answers. */
  admitted(sentMs: number, answeredMs: number): void {
    const { burst, perMs } = this.#allowance
    const starts = this.#starts
    while (starts[0] !== undefined && starts[0].sentMs < answeredMs - INTERVAL_MS_MAX) starts.shift()
    starts.push({ sentMs, count: 0 })
    let isTooMuch = false
    for (const start of starts) {
      if (start.sentMs > sentMs) continue
      start.count += 1
      const allowed = burst + perMs * (answeredMs - start.sentMs)
      this.fullest = Math.max(this.fullest, start.count / allowed)
      if (start.count > allowed + ROUNDING) isTooMuch = true
    }
    if (isTooMuch) this.violations += 1
  }
}

/** What one exact bucket would have admitted that was asked the very same at the same moments. */
export class ExactBucket {
  readonly #allowance: Allowance
  #owed = 0
  #sinceMs = 0

  constructor(allowance: Allowance) {
    this.#allowance = allowance
  }

  asked(nowMs: number): boolean {
    const { burst, perMs } = this.#allowance
    this.#owed = Math.max(0, this.#owed - (nowMs - this.#sinceMs) * perMs)
    this.#sinceMs = nowMs
    if (this.#owed + 1 > burst + ROUNDING) return false
    this.#owed += 1
    return true
  }
}
