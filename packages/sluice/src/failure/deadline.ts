// One deadline for everything that waits, and one timer: all wait equally long, so the first to come is the first to
// be due. When it fires, replies that have arrived but were not read yet get their turn before anybody is judged: a
// process that was busy for 30 ms must not take its own delay for that of the store.

import type { Timers } from '../clock.ts'

export type Waiting = { dueMs: number; expire(): void; settled: boolean }

/** Entries at the front that are done with are cut off once there are so many. */
const DONE_MAX = 1024

export class Deadline {
  /** How many wait. */
  waiting = 0
  /** Those that wait, oldest first, among others that no longer do. */
  #queue: Waiting[] = []
  /** All before this one are done with. */
  #first = 0
  readonly #timers: Timers
  readonly #onExpired: () => void
  #stop: (() => void) | undefined

  /** `onExpired` is told once for all that expire together. */
  constructor(timers: Timers, onExpired: () => void) {
    this.#timers = timers
    this.#onExpired = onExpired
  }

  add(waiting: Waiting): void {
    this.#queue.push(waiting)
    this.waiting += 1
    this.#arm()
  }

  /** It waits no longer. */
  settle(waiting: Waiting): void {
    waiting.settled = true
    this.waiting -= 1
    this.#skipDone()
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
    this.#queue = []
    this.#first = 0
    this.waiting = 0
  }

  #arm(): void {
    const first = this.#queue[this.#first]
    if (this.#stop !== undefined || first === undefined) return
    const ms = Math.max(0, first.dueMs - this.#timers.nowMs())
    this.#stop = this.#timers.after(ms, () => this.#timers.soon(() => this.#judge()))
  }

  #judge(): void {
    this.#stop = undefined
    const nowMs = this.#timers.nowMs()
    let expired = false
    for (let first = this.#queue[this.#first]; first !== undefined && first.dueMs <= nowMs; ) {
      expired = true
      this.settle(first)
      first.expire()
      first = this.#queue[this.#first]
    }
    if (expired) this.#onExpired()
    this.#arm()
  }

  #skipDone(): void {
    while (this.#queue[this.#first]?.settled) this.#first += 1
    if (this.#first < DONE_MAX && this.#first < this.#queue.length) return
    this.#queue = this.#queue.slice(this.#first)
    this.#first = 0
  }
}
