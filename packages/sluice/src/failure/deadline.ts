// One deadline for everything that waits, and one timer: all wait equally long, so the first to come is the first to
// be due. When it fires, replies that have arrived but were not read yet get their turn before anybody is judged: a
// process that was busy for 30 ms must not take its own delay for that of the store.

import type { Timers } from '../clock.ts'

export type Waiting = { dueMs: number; expire(): void; settled: boolean }

export class Deadline {
  /** Those that wait, oldest first. */
  readonly #queue: Waiting[] = []
  readonly #timers: Timers
  readonly #onExpired: () => void
  #stop: (() => void) | undefined

  /** `onExpired` is told once for all that expire together. */
  constructor(timers: Timers, onExpired: () => void) {
    this.#timers = timers
    this.#onExpired = onExpired
  }

  get waiting(): number {
    return this.#queue.length
  }

  add(waiting: Waiting): void {
    this.#queue.push(waiting)
    this.#arm()
  }

  /** Nobody waits longer than this any more. */
  hasten(dueMs: number): void {
    for (const waiting of this.#queue) waiting.dueMs = Math.min(waiting.dueMs, dueMs)
    this.#stop?.()
    this.#stop = undefined
    this.#arm()
  }

  clear(): void {
    this.#stop?.()
    this.#stop = undefined
    this.#queue.length = 0
  }

  #arm(): void {
    const [first] = this.#queue
    if (this.#stop !== undefined || first === undefined) return
    const ms = Math.max(0, first.dueMs - this.#timers.nowMs())
    this.#stop = this.#timers.after(ms, () => this.#timers.soon(() => this.#judge()))
  }

  #judge(): void {
    this.#stop = undefined
    const nowMs = this.#timers.nowMs()
    let gone = 0
    let expired = false
    for (const waiting of this.#queue) {
      if (!waiting.settled && waiting.dueMs > nowMs) break
      gone += 1
      if (waiting.settled) continue
      expired = true
      waiting.expire()
    }
    this.#queue.splice(0, gone)
    if (expired) this.#onExpired()
    this.#arm()
  }
}
