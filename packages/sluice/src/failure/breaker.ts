// Circuit breaker. Opens after FAILURE_THRESHOLD consecutive failures. While it is open, requests are decided without
// the store; only a background probe closes it again.

export type BreakerState = 'closed' | 'open'

/** A change of state: how long the previous one lasted, and how many requests `on_fail` decided in it. */
export type Transition = { readonly state: BreakerState; readonly afterMs: number; readonly answered: number }

/** Consecutive failures after which the breaker opens. */
const FAILURE_THRESHOLD = 3

export class Breaker {
  state: BreakerState = 'closed'
  /** Requests decided by `on_fail` since it opened. */
  answered = 0
  readonly #onTransition: (transition: Transition) => void
  #failures = 0
  #changedMs = 0
  #drillUntilMs = 0

  constructor(onTransition: (transition: Transition) => void) {
    this.#onTransition = onTransition
  }

  isDrilled(nowMs: number): boolean {
    return nowMs < this.#drillUntilMs
  }

  succeeded(nowMs: number): void {
    this.#failures = 0
    if (this.state === 'open' && !this.isDrilled(nowMs)) this.#become('closed', nowMs)
  }

  /** Called once per batch, not per request. */
  failed(nowMs: number): void {
    this.#failures += 1
    if (this.state === 'closed' && this.#failures >= FAILURE_THRESHOLD) this.#become('open', nowMs)
  }

  /** Opens it for a while to rehearse an outage; 0 ms ends the drill. */
  drill(nowMs: number, forMs: number): void {
    this.#drillUntilMs = nowMs + forMs
    if (forMs > 0 && this.state === 'closed') this.#become('open', nowMs)
  }

  #become(state: BreakerState, nowMs: number): void {
    const { answered } = this
    const afterMs = nowMs - this.#changedMs
    this.state = state
    this.#changedMs = nowMs
    this.answered = 0
    try {
      this.#onTransition({ state, afterMs, answered })
    } catch {
      // A listener that throws must not fail a check.
    }
  }
}
