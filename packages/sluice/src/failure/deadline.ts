// Deadline of all requests that wait for a store, with one timer. Stalls of this process (a long event-loop turn, no
// CPU) are deducted, because no reply can be read during one; the total wait is still capped. Replies that have arrived
// are read before a request expires.

import type { Timers } from '../clock.ts'

export type Waiting = {
  readonly startMs: number
  expire(): void
  settled: boolean
  /** Stops the timer of a caller that gives up before the deadline. */
  stop?: () => void
}

/** Cap on deducted stalls: no request waits longer than the deadline plus this. */
export const STALL_MS_MAX = 250

/** Period of the timer: an eighth of the deadline. A tick more than half a period late counts as a stall. */
const TICKS = 8
const TICK_MS_MIN = 4
const TICK_MS_MAX = 10
const LATE = 1.5

/** Number of recent stalls that are remembered. */
const STALLS_MAX = 64

/** Settled entries at the front of the queue are removed once there are this many. */
const DONE_MAX = 1024
const DONE: Waiting = { startMs: 0, settled: true, expire: () => {} }

type Stall = { readonly endedMs: number; readonly lostMs: number }

export class Deadline {
  /** Number of waiting requests. */
  waiting = 0
  /** Requests ordered by start of waiting, oldest first; may contain settled ones. */
  #queue: Waiting[] = []
  /** Index of the first entry that may not be settled. */
  #first = 0
  #limitMs: number
  #tickMs: number
  #stalls: Stall[] = []
  #tickedMs = 0
  /** Next time of the timer. */
  #armedMs = 0
  readonly #timers: Timers
  readonly #onExpired: () => void
  #stop: (() => void) | undefined

  /** Calls `onExpired` once for all requests that expire together. */
  constructor(limitMs: number, timers: Timers, onExpired: () => void) {
    this.#limitMs = limitMs
    this.#tickMs = tickOf(limitMs)
    this.#timers = timers
    this.#onExpired = onExpired
  }

  get limitMs(): number {
    return this.#limitMs
  }

  /** Also applies to requests that are already waiting. */
  set limitMs(limitMs: number) {
    this.#limitMs = limitMs
    this.#tickMs = tickOf(limitMs)
    if (this.#stop !== undefined) this.#rearm()
  }

  /** Whether a request that has waited since `startMs` has no time left. */
  isOver(startMs: number, nowMs: number): boolean {
    const waitedMs = nowMs - startMs
    if (waitedMs < this.#limitMs) return false
    return waitedMs >= this.#limitMs + STALL_MS_MAX || waitedMs - this.#stalledMs(startMs, nowMs) >= this.#limitMs
  }

  /** `expiresMs`: when the caller gives up, if that is before the deadline. */
  add(waiting: Waiting, expiresMs: number = Number.POSITIVE_INFINITY): void {
    if (expiresMs < waiting.startMs + this.#limitMs) this.#giveUpAt(waiting, expiresMs)
    const queue = this.#queue
    let at = queue.push(waiting) - 1
    // Keeps the order: a request may have started to wait earlier, in another store.
    for (; at > this.#first && (queue[at - 1] as Waiting).startMs > waiting.startMs; at -= 1) {
      queue[at] = queue[at - 1] as Waiting // exists: `at` is above 0
    }
    queue[at] = waiting
    this.waiting += 1
    if (this.#stop === undefined) {
      this.#tickedMs = this.#timers.nowMs()
      this.#arm(this.#tickedMs)
    } else if (waiting.startMs + this.#limitMs < this.#armedMs) this.#rearm()
  }

  done(waiting: Waiting): void {
    waiting.settled = true
    waiting.stop?.()
    this.waiting -= 1
    this.#skipDone()
  }

  /** Expires every request now: the store is being closed. */
  expireAll(): void {
    this.#disarm()
    for (const waiting of this.#queue.slice(this.#first)) {
      if (waiting.settled) continue
      this.done(waiting)
      waiting.expire()
    }
  }

  /**
   * Expires a request when its caller gives up. Not a failure of the store. Stalls of this process are not deducted:
   * the caller does not wait longer.
   */
  #giveUpAt(waiting: Waiting, expiresMs: number): void {
    const giveUp = () => {
      if (waiting.settled) return
      this.done(waiting)
      waiting.expire()
    }
    waiting.stop = this.#timers.after(expiresMs - this.#timers.nowMs(), () => this.#timers.soon(giveUp))
  }

  #disarm(): void {
    this.#stop?.()
    this.#stop = undefined
  }

  #arm(nowMs: number): void {
    const first = this.#queue[this.#first]
    if (first === undefined) return
    const leftMs = first.startMs + this.#limitMs - nowMs
    const ms = leftMs > 0 ? Math.min(this.#tickMs, leftMs) : this.#tickMs
    this.#armedMs = nowMs + ms
    this.#stop = this.#timers.after(ms, () => this.#tick())
  }

  #tick(): void {
    const nowMs = this.#timers.nowMs()
    const lostMs = this.#lostMs(nowMs)
    if (lostMs > 0) {
      this.#stalls.push({ endedMs: nowMs, lostMs })
      if (this.#stalls.length > STALLS_MAX) this.#stalls.shift()
    }
    this.#tickedMs = nowMs
    const first = this.#queue[this.#first]
    if (first !== undefined && this.isOver(first.startMs, nowMs)) this.#timers.soon(() => this.#expireDue(nowMs))
    else this.#rearm()
  }

  /** `nowMs`: time of the tick. Replies that arrived before it have been read by now. */
  #expireDue(nowMs: number): void {
    let expired = false
    for (let first = this.#queue[this.#first]; first !== undefined && this.isOver(first.startMs, nowMs); ) {
      expired = true
      this.done(first)
      first.expire()
      first = this.#queue[this.#first]
    }
    if (expired) this.#onExpired()
    this.#rearm()
  }

  #rearm(): void {
    this.#disarm()
    this.#arm(this.#timers.nowMs())
  }

  /** Stalls since `startMs`, including a current one. Errs high for a request that started during a stall. */
  #stalledMs(startMs: number, nowMs: number): number {
    let stalledMs = this.#lostMs(nowMs)
    for (let at = this.#stalls.length - 1; at >= 0; at -= 1) {
      const stall = this.#stalls[at] as Stall // exists: `at` is an index
      if (stall.endedMs <= startMs) break
      stalledMs += stall.lostMs
    }
    return stalledMs
  }

  #lostMs(nowMs: number): number {
    const gapMs = nowMs - this.#tickedMs
    return this.#stop === undefined || gapMs <= LATE * this.#tickMs ? 0 : gapMs - this.#tickMs
  }

  #skipDone(): void {
    while (this.#queue[this.#first]?.settled) {
      this.#queue[this.#first] = DONE // so that the entry can be garbage-collected
      this.#first += 1
    }
    if (this.#first < DONE_MAX && this.#first < this.#queue.length) return
    this.#queue = this.#queue.slice(this.#first)
    this.#first = 0
  }
}

function tickOf(limitMs: number): number {
  return Math.min(TICK_MS_MAX, Math.max(TICK_MS_MIN, limitMs / TICKS))
}
