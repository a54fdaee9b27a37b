// One deadline for everything that waits, and one timer: nearly all wait equally long, so the first to come is the
// first to be due. When it fires, replies that have arrived but were not read yet get their turn before anybody is
// judged: a process that was busy for 30 ms must not take its own delay for that of the store.

import type { Timers } from '../clock.ts'

export type Waiting = { dueMs: number; expire(): void; settled: boolean }

/** Entries at the front that are done with are cut off once there are so many. */
const DONE_MAX = 1024
const DONE: Waiting = { dueMs: 0, settled: true, expire: () => {} }

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
    const queue = this.#queue
    let at = queue.push(waiting) - 1
    // Who has waited elsewhere before is due earlier than those who just came.
    for (; at > this.#first && (queue[at - 1] as Waiting).dueMs > waiting.dueMs; at -= 1) {
      queue[at] = queue[at - 1] as Waiting // there is one: `at` is above 0
    }
    queue[at] = waiting
    this.waiting += 1
    if (at === this.#first) this.#disarm()
    this.#arm()
  }

  /** It waits no longer. */
  done(waiting: Waiting): void {
    waiting.settled = true
    this.waiting -= 1
    this.#skipDone()
  }

  /** Nobody waits longer than this any more. */
  hasten(dueMs: number): void {
    for (const waiting of this.#queue) waiting.dueMs = Math.min(waiting.dueMs, dueMs)
    this.#disarm()
    this.#arm()
  }

  /** For the end: whoever waits is answered now. */
  expireAll(): void {
    this.#disarm()
    for (const waiting of this.#queue.slice(this.#first)) {
      if (waiting.settled) continue
      this.done(waiting)
      waiting.expire()
    }
  }

  #disarm(): void {
    this.#stop?.()
    this.#stop = undefined
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
      this.done(first)
      first.expire()
      first = this.#queue[this.#first]
    }
    if (expired) this.#onExpired()
    this.#arm()
  }

  #skipDone(): void {
    while (this.#queue[this.#first]?.settled) {
      this.#queue[this.#first] = DONE // whatever it refers to is garbage from now on
      this.#first += 1
    }
    if (this.#first < DONE_MAX && this.#first < this.#queue.length) return
    this.#queue = this.#queue.slice(this.#first)
    this.#first = 0
  }
}
