// When the next call may go, by what the server said last. Units that are nearly gone are spread over the time until
// there are more; when none is left, calls wait for that moment. A call whose patience would not last goes at once: the
// server has the last word. Errs low: calls in flight count as spent until their answers are in.

import type { Timers } from '../clock.ts'
import type { ToldLimit } from './told-limits.ts'

/** Below this share of the quota, calls are spread. */
const SPREAD_SHARE = 0.2
/** Calls that wait for the same moment elsewhere, in other processes, must not all return in it. */
const JITTER_MS = 1000
/** More than so many do not wait: they go at once. */
const WAITING_MAX = 10_000

export type PaceOptions = { readonly timers: Timers; readonly random: () => number }

/** A limit as far as it is known, counted down here between two answers of the server. */
type Known = {
  readonly counted: boolean
  readonly quota: number
  readonly windowMs: number
  remaining: number
  renewedAtMs: number
}

type Waiter = { readonly untilMs: number; readonly go: (nowMs: number) => void }

export class Pace {
  readonly #timers: Timers
  readonly #random: () => number
  #limits: Known[] = []
  #heldUntilMs = 0
  #lastMs = Number.NEGATIVE_INFINITY
  #inFlight = 0
  #queue: Waiter[] = []
  #stop: () => void = () => {}

  constructor({ timers, random }: PaceOptions) {
    this.#timers = timers
    this.#random = random
  }

  /** Nothing is on its way and nobody waits. */
  get idle(): boolean {
    return this.#inFlight === 0 && this.#queue.length === 0
  }

  /** When the call may go, with how long it waited: `patienceMs` at most. Whoever went tells when it was `answered`. */
  turn(patienceMs: number, signal: AbortSignal | undefined): Promise<number> {
    signal?.throwIfAborted()
    return new Promise((resolve, reject) => {
      const cameMs = this.#timers.nowMs()
      const leave = () => {
        this.#queue = this.#queue.filter((one) => one !== waiter)
        reject(signal?.reason)
        this.#serve(this.#timers.nowMs())
      }
      const go = (nowMs: number) => {
        signal?.removeEventListener('abort', leave)
        resolve(nowMs - cameMs)
      }
      const waiter = { untilMs: this.#queue.length < WAITING_MAX ? cameMs + patienceMs : 0, go }
      signal?.addEventListener('abort', leave, { once: true })
      this.#queue.push(waiter)
      this.#serve(cameMs)
    })
  }

  /** A call is over: with the limits that were told, and for how long the server asks to be left alone. */
  answered(told: readonly ToldLimit[] = [], holdMs?: number): void {
    const nowMs = this.#timers.nowMs()
    this.#inFlight -= 1
    if (told.length > 0) this.#limits = told.flatMap((limit) => this.#known(limit, nowMs, holdMs))
    this.#heldUntilMs = Math.max(this.#heldUntilMs, nowMs + (holdMs ?? 0))
    this.#serve(nowMs)
  }

  /** Only a limit that says when there is more can be waited for. What is asked outright wins over what is told. */
  #known({ unit, quota, remaining, resetMs, windowMs }: ToldLimit, nowMs: number, holdMs?: number): Known[] {
    const renewedMs = remaining === 0 ? (holdMs ?? resetMs) : resetMs
    if (renewedMs === undefined) return []
    const counted = unit === 'requests'
    return [
      {
        counted,
        quota: quota ?? Number.POSITIVE_INFINITY,
        windowMs: windowMs ?? renewedMs,
        remaining: remaining - (counted ? this.#inFlight : 0),
        renewedAtMs: nowMs + renewedMs + (remaining === 0 ? this.#random() * JITTER_MS : 0),
      },
    ]
  }

  #serve(nowMs: number): void {
    this.#stop()
    while (this.#queue.length > 0) {
      const waitMs = this.#waitMs(nowMs)
      const next = waitMs === 0 ? 0 : this.#queue.findIndex(({ untilMs }) => untilMs < nowMs + waitMs)
      if (next < 0) {
        this.#stop = this.#timers.after(waitMs, () => this.#serve(this.#timers.nowMs()))
        return
      }
      const [waiter] = this.#queue.splice(next, 1)
      this.#went(nowMs)
      waiter?.go(nowMs)
    }
  }

  #went(nowMs: number): void {
    this.#lastMs = nowMs
    this.#inFlight += 1
    for (const limit of this.#limits) if (limit.counted) limit.remaining -= 1
  }

  #waitMs(nowMs: number): number {
    let atMs = this.#heldUntilMs
    for (const limit of this.#limits) {
      if (limit.renewedAtMs <= nowMs) renew(limit, nowMs)
      atMs = Math.max(atMs, this.#nextMs(limit))
    }
    return Math.max(0, Math.ceil(atMs - nowMs))
  }

  #nextMs({ counted, quota, remaining, renewedAtMs }: Known): number {
    if (remaining < 1) return renewedAtMs
    if (!counted || quota === Number.POSITIVE_INFINITY || remaining >= quota * SPREAD_SHARE) return 0
    return this.#lastMs + (renewedAtMs - this.#lastMs) / (remaining + 1)
  }
}

/** By the quota, until the server says otherwise: those who waited do not all go at once. */
function renew(limit: Known, nowMs: number): void {
  limit.remaining = limit.quota
  limit.renewedAtMs = nowMs + limit.windowMs
}
