// The store's time as a node knows it, from what the store last said and a clock that never steps. Once it has been
// told, it is never ahead of the store's (as long as both run equally fast) and behind by less than a reply takes.

import { type Clock, type Timers, wallClock } from '../clock.ts'

export class StoreClock implements Clock {
  readonly #timers: Timers
  #atUs: number
  #atMs: number
  #told = false

  constructor(timers: Timers, initially: Clock = wallClock) {
    this.#timers = timers
    this.#atUs = initially.nowUs()
    this.#atMs = timers.nowMs()
  }

  nowUs(): number {
    return Math.floor(this.#usAt(this.#timers.nowMs()))
  }

  /** It was `us` there at some moment since `sentMs`: news if that is later than was known, or if its clock was set. */
  tell(us: number, sentMs: number): void {
    const nowMs = this.#timers.nowMs()
    if (this.#told && us <= this.#usAt(nowMs) && us >= Math.floor(this.#usAt(sentMs))) return
    this.#told = true
    this.#atUs = us
    this.#atMs = nowMs
  }

  #usAt(ms: number): number {
    return this.#atUs + (ms - this.#atMs) * 1000
  }
}
