// Store time estimated on a node, from the store's last reply and a monotonic clock. After the first reply it is never
// ahead of the store (if both run equally fast), and behind by less than the latency of a reply.

import { type Clock, type Timers, wallClock } from '../clock.ts'

export class StoreClock implements Clock {
  readonly #timers: Timers
  #atUs: number
  #atMs: number
  #synced = false

  constructor(timers: Timers, initially: Clock = wallClock) {
    this.#timers = timers
    this.#atUs = initially.nowUs()
    this.#atMs = timers.nowMs()
  }

  nowUs(): number {
    return Math.floor(this.#usAt(this.#timers.nowMs()))
  }

  /** The store's time was `us` at some moment since `sentMs`. Ignored if the estimate agrees with that. */
  sync(us: number, sentMs: number): void {
    const nowMs = this.#timers.nowMs()
    if (this.#synced && us <= this.#usAt(nowMs) && us >= Math.floor(this.#usAt(sentMs))) return
    this.#synced = true
    this.#atUs = us
    this.#atMs = nowMs
  }

  #usAt(ms: number): number {
    return this.#atUs + (ms - this.#atMs) * 1000
  }
}
