// Whether the store is worth asking. After a few failures in a row it is left alone, then one request at a time tries
// it again: later and later, and at other moments than the other nodes do.

export type BreakerState = 'closed' | 'open' | 'half_open'

/** Told at each change: since when it had been otherwise, and how many requests were answered without the store. */
export type Transition = { readonly state: BreakerState; readonly afterMs: number; readonly answered: number }

const FAILURES_MAX = 3
const PAUSE_MS = 250
const PAUSE_MS_MAX = 5000

export class Breaker {
  state: BreakerState = 'closed'
  /** Requests answered without the store since it opened. */
  answered = 0
  readonly #onTransition: (transition: Transition) => void
  readonly #random: () => number
  #failures = 0
  #pauseMs = PAUSE_MS
  #changedMs = 0
  #tryAtMs = 0
  #drillUntilMs = 0

  constructor(onTransition: (transition: Transition) => void, random: () => number) {
    this.#onTransition = onTransition
    this.#random = random
  }

  /** Whether nobody may ask the store now. */
  leavesAlone(nowMs: number): boolean {
    if (this.state === 'closed') return false
    return this.state === 'half_open' || nowMs < Math.max(this.#tryAtMs, this.#drillUntilMs)
  }

  /** Whether a request may ask the store. Half open, only the first one may; it decides about the others. */
  admits(nowMs: number): boolean {
    if (this.leavesAlone(nowMs)) return false
    if (this.state === 'open') this.#become('half_open', nowMs)
    return true
  }

  succeeded(nowMs: number): void {
    this.#failures = 0
    if (this.state === 'closed' || nowMs < this.#drillUntilMs) return
    this.#pauseMs = PAUSE_MS
    this.#become('closed', nowMs)
  }

  /** Once per batch, however many requests were in it. */
  failed(nowMs: number): void {
    this.#failures += 1
    if (this.state === 'open' || (this.state === 'closed' && this.#failures < FAILURES_MAX)) return
    if (this.state === 'half_open') this.#pauseMs = Math.min(PAUSE_MS_MAX, 2 * this.#pauseMs)
    this.#open(nowMs, this.#pauseMs * (0.5 + this.#random()))
  }

  /** Opens it on purpose, to see what an outage would be like; 0 ms end that. */
  drill(nowMs: number, forMs: number): void {
    this.#drillUntilMs = nowMs + forMs
    this.#open(nowMs, forMs)
  }

  #open(nowMs: number, pauseMs: number): void {
    this.#tryAtMs = nowMs + pauseMs
    if (this.state !== 'open') this.#become('open', nowMs)
  }

  #become(state: BreakerState, nowMs: number): void {
    const { answered } = this
    const wasOpen = this.state !== 'closed'
    this.state = state
    // The try in between is part of the outage: what is told is how long the store was away, and from how many.
    if (state === 'half_open' || (state === 'open' && wasOpen)) return
    const afterMs = nowMs - this.#changedMs
    this.#changedMs = nowMs
    this.answered = 0
    try {
      this.#onTransition({ state, afterMs, answered })
    } catch {
      // A check must not fail because of whoever listens.
    }
  }
}
