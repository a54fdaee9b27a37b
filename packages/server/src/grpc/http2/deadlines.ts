// Deadlines of calls in progress, on one timer for the whole server. Calls of the same 8 ms share a bucket, so a
// deadline fires up to 8 ms late and never early.

const TICK_MS = 8
/** Longest delay of a timer of Node.js; later deadlines wait in their bucket. */
const DELAY_MS_MAX = 2 ** 31 - 1

export type Expiring = {
  /** Bucket of the call; 0 while it has none. */
  deadlineTick: number
  expire(): void
}

export class Deadlines {
  readonly #buckets = new Map<number, Set<Expiring>>()
  #timer: NodeJS.Timeout | undefined
  #timerTick = Number.POSITIVE_INFINITY

  add(call: Expiring, timeoutMs: number): void {
    const tick = Math.ceil((performance.now() + timeoutMs) / TICK_MS)
    const bucket = this.#buckets.get(tick)
    if (bucket === undefined) this.#buckets.set(tick, new Set([call]))
    else bucket.add(call)
    call.deadlineTick = tick
    if (tick < this.#timerTick) this.#schedule(tick)
  }

  remove(call: Expiring): void {
    const bucket = this.#buckets.get(call.deadlineTick)
    bucket?.delete(call)
    if (bucket?.size === 0) this.#buckets.delete(call.deadlineTick)
    call.deadlineTick = 0
  }

  clear(): void {
    clearTimeout(this.#timer)
    this.#buckets.clear()
  }

  #schedule(tick: number): void {
    clearTimeout(this.#timer)
    this.#timerTick = tick
    const delayMs = Math.max(0, tick * TICK_MS - performance.now())
    // After a stall of this process, an answer that became known in time wins: its callbacks run first.
    const later = () => setImmediate(() => setImmediate(() => this.#fire()))
    this.#timer = setTimeout(later, Math.min(delayMs, DELAY_MS_MAX)).unref()
  }

  #fire(): void {
    const tick = performance.now() / TICK_MS
    let next = Number.POSITIVE_INFINITY
    for (const [due, calls] of this.#buckets) {
      if (due > tick) {
        next = Math.min(next, due)
        continue
      }
      this.#buckets.delete(due)
      for (const call of calls) call.expire()
    }
    this.#timerTick = Number.POSITIVE_INFINITY
    if (next < Number.POSITIVE_INFINITY) this.#schedule(next)
  }
}
