// Deadline of all requests that wait for a store, with one timer. Counts the store's time only: from the write of a
// request until its reply can be read. A request expires only after every reply that had arrived by then was read, so
// a stalled process (a long event-loop turn, no CPU) answers late and does not mistake its own delay for an outage.

import type { Timers } from '../clock.ts'

export type Waiting = {
  /** Last write to the store, or the time of `add` if it has not been written yet. */
  sentMs: number
  /** Store time before that: of earlier writes, and of earlier requests of the same check. */
  spentMs: number
  expire(): void
}

/** Period of the timer: a twentieth of the deadline. */
const TICKS = 20
const TICK_MS_MIN = 2
const TICK_MS_MAX = 5
/** While the connection is being opened, a longer time between two ticks is a stall, which does not count. */
export const STALL_MS = 50
/** Shortest timer: with a remainder of nanoseconds, a clock of microseconds would not advance. */
const TIMER_MS_MIN = 0.1

export class Deadline {
  readonly #waiting = new Set<Waiting>()
  /** Requests that have been added or written since the last `soon`. */
  #fresh: Waiting[] = []
  /** Every reply that had arrived by this time has been read. */
  #readMs = Number.NEGATIVE_INFINITY
  #limitMs: number
  /** Undefined once the connection is open. */
  #startMs: number | undefined
  /** Last tick, or the time of `add` if nothing was waiting. */
  #tickedMs = 0
  /** Next time of the timer. */
  #armedMs = 0
  /** Last request, or one that was written again. */
  usedMs: number = Number.NEGATIVE_INFINITY
  readonly #timers: Timers
  readonly #onExpired: () => void
  #stop: (() => void) | undefined

  /**
   * Calls `onExpired` once for all requests that expire together. `startMs`: limit until `started`, without stalls.
   * Opening a connection takes several turns, and a cold process has long ones.
   */
  constructor(limitMs: number, timers: Timers, onExpired: () => void, startMs?: number) {
    this.#limitMs = limitMs
    this.#startMs = startMs
    this.#timers = timers
    this.#onExpired = onExpired
  }

  get limitMs(): number {
    return this.#startMs ?? this.#limitMs
  }

  /** The connection is open, or could not be opened. The time of requests that are waiting starts again. */
  started(): void {
    this.#startMs = undefined
    for (const waiting of this.#waiting) {
      waiting.spentMs = 0
      this.#written(waiting)
    }
    if (this.#stop !== undefined) this.#arm(0)
  }

  /** Number of waiting requests. */
  get waiting(): number {
    return this.#waiting.size
  }

  /** Adds a request that is being sent. */
  add(waiting: Waiting): void {
    this.#waiting.add(waiting)
    this.#written(waiting)
    const leftMs = this.limitMs - waiting.spentMs
    if (this.#stop === undefined) this.#tickedMs = waiting.sentMs
    if (this.#stop === undefined || waiting.sentMs + leftMs < this.#armedMs) this.#arm(leftMs)
  }

  /** The request is written again, or first now: until now it waited for another reply of the store. */
  sent(waiting: Waiting): void {
    if (!this.#waiting.has(waiting)) return
    waiting.spentMs = this.spentMs(waiting)
    this.#written(waiting)
  }

  /** Removes a request that was answered or failed; false if it was removed before. */
  done(waiting: Waiting): boolean {
    return this.#waiting.delete(waiting)
  }

  /** Time that the store has taken so far. Errs low, by at most one period of the timer for each write. */
  spentMs({ sentMs, spentMs }: Waiting): number {
    return spentMs + Math.max(0, this.#readMs - sentMs)
  }

  /** Expires every request now: the store is being closed. */
  expireAll(): void {
    this.#stop?.()
    this.#stop = undefined
    for (const waiting of this.#waiting) {
      this.#waiting.delete(waiting)
      waiting.expire()
    }
  }

  /** Clients write at the end of this turn or of the next one: the time counts from there. */
  #written(waiting: Waiting): void {
    this.usedMs = this.#timers.nowMs()
    waiting.sentMs = this.usedMs
    if (this.#fresh.push(waiting) > 1) return
    this.#timers.soon(() => {
      const fresh = this.#fresh
      this.#fresh = []
      this.#timers.soon(() => {
        const nowMs = this.#timers.nowMs()
        for (const one of fresh) one.sentMs = nowMs
      })
    })
  }

  #arm(leftMs: number): void {
    this.#stop?.()
    const ms = Math.max(TIMER_MS_MIN, Math.min(this.#tickMs, leftMs))
    this.#armedMs = this.#timers.nowMs() + ms
    this.#stop = this.#timers.after(ms, () => this.#tick())
  }

  get #tickMs(): number {
    return Math.min(TICK_MS_MAX, Math.max(TICK_MS_MIN, this.limitMs / TICKS))
  }

  /** Replies that have arrived are read between the two turns; those of HTTP/2 streams end one turn later. */
  #tick(): void {
    const nowMs = this.#timers.nowMs()
    this.#timers.soon(() => this.#timers.soon(() => this.#expireDue(nowMs)))
  }

  /** `nowMs`: time of the tick. */
  #expireDue(nowMs: number): void {
    if (this.#stop === undefined) return // closed
    this.#readMs = nowMs
    if (this.#startMs !== undefined) this.#skipStall(nowMs)
    this.#tickedMs = nowMs
    let expired = false
    let nextMs = Number.POSITIVE_INFINITY
    for (const waiting of this.#waiting) {
      const leftMs = this.limitMs - this.spentMs(waiting)
      if (leftMs > 0) nextMs = Math.min(nextMs, leftMs)
      else {
        expired = true
        this.#waiting.delete(waiting)
        waiting.expire()
      }
    }
    if (expired) this.#onExpired()
    if (this.#waiting.size > 0) this.#arm(nextMs)
    else this.#stop = undefined
  }

  /** Counts at most STALL_MS of the time since the last tick. */
  #skipStall(nowMs: number): void {
    const stalledMs = nowMs - this.#tickedMs - STALL_MS
    if (stalledMs <= 0) return
    for (const waiting of this.#waiting) waiting.sentMs = Math.min(nowMs, waiting.sentMs + stalledMs)
  }
}
