// Circuit breaker. It opens after a few failures in a row; requests are then answered without the store until a
// background probe, and no request of a client, has found that the store answers again.

export type BreakerState = 'closed' | 'open'

/** Reported at each change: how long the previous state lasted, and how many requests `on_fail` answered in it. */
export type Transition = { readonly state: BreakerState; readonly afterMs: number; readonly answered: number }

const FAILURES_MAX = 3

export class Breaker {
  state: BreakerState = 'closed'
  /** Requests answered without the store since it opened. */
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

  /** Counts once per batch, however many requests were in it. */
  failed(nowMs: number): void {
    this.#failures += 1
    if (this.state === 'closed' && this.#failures >= FAILURES_MAX) this.#become('open', nowMs)
  }

  /** Opens it for a while to rehearse an outage; 0 ms ends the rehearsal. */
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
