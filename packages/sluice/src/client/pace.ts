// Schedules calls by the limits that the server reported last. The last units of a quota are spread over the time until
// the reset; without units, calls wait for the reset. A call that cannot wait long enough is sent immediately, and the
// server decides. Errs low: calls in flight count as spent until their responses arrive.

import type { Timers } from '../clock.ts'
import type { ReportedLimit } from './limit-headers.ts'

/** Below this remaining share of the quota, calls are spread. */
const SPREAD_SHARE = 0.2
/** Jitter, so that processes that wait for the same reset do not all continue at once. */
const JITTER_MS = 1000
/** Queue cap: further calls are sent immediately. */
const WAITING_MAX = 10_000

export type PaceOptions = { readonly timers: Timers; readonly random: () => number }

/** The last reported state of a limit, counted down between responses. */
type TrackedLimit = {
  /** Whether each call takes one unit. */
  readonly counted: boolean
  readonly quota: number
  readonly windowMs: number
  remaining: number
  renewedAtMs: number
}

type Waiter = { readonly deadlineMs: number; readonly go: (nowMs: number) => void }

export class Pace {
  readonly #timers: Timers
  readonly #random: () => number
  #limits: TrackedLimit[] = []
  #heldUntilMs = 0
  #lastMs = Number.NEGATIVE_INFINITY
  #inFlight = 0
  #queue: Waiter[] = []
  #stop: () => void = () => {}

  constructor({ timers, random }: PaceOptions) {
    this.#timers = timers
    this.#random = random
  }

  /** No call is in flight or waiting. */
  get idle(): boolean {
    return this.#inFlight === 0 && this.#queue.length === 0
  }

  /** Resolves with the time waited, at most `waitMsMax`, when the call may be sent. Call `completed` afterwards. */
  turn(waitMsMax: number, signal: AbortSignal | undefined): Promise<number> {
    signal?.throwIfAborted()
    return new Promise((resolve, reject) => {
      const arrivedMs = this.#timers.nowMs()
      const abort = () => {
        this.#queue = this.#queue.filter((one) => one !== waiter)
        reject(signal?.reason)
        this.#serve(this.#timers.nowMs())
      }
      const go = (nowMs: number) => {
        signal?.removeEventListener('abort', abort)
        resolve(nowMs - arrivedMs)
      }
      const waiter = { deadlineMs: this.#queue.length < WAITING_MAX ? arrivedMs + waitMsMax : 0, go }
      signal?.addEventListener('abort', abort, { once: true })
      this.#queue.push(waiter)
      this.#serve(arrivedMs)
    })
  }

  /** Ends a call, with the reported limits and the wait that the server requested. */
  completed(limits: readonly ReportedLimit[] = [], holdMs?: number): void {
    const nowMs = this.#timers.nowMs()
    this.#inFlight -= 1
    if (limits.length > 0) this.#limits = limits.flatMap((limit) => this.#tracked(limit, nowMs, holdMs))
    this.#heldUntilMs = Math.max(this.#heldUntilMs, nowMs + (holdMs ?? 0))
    this.#serve(nowMs)
  }

  /** Empty without a reset time: such a limit cannot be waited for. A requested wait overrides the reset. */
  #tracked(
    { unit, quota = Number.POSITIVE_INFINITY, remaining, resetMs, retryMs, windowMs }: ReportedLimit,
    nowMs: number,
    holdMs?: number,
  ): TrackedLimit[] {
    // A limit that refills admits one call at a time, long before it is full.
    const onceMs = remaining === 0 && holdMs === undefined ? retryMs : undefined
    const renewedMs = onceMs ?? (remaining === 0 ? (holdMs ?? resetMs) : resetMs)
    if (renewedMs === undefined) return []
    const counted = unit === 'requests'
    return [
      {
        counted,
        quota: onceMs === undefined ? quota : 1,
        windowMs: onceMs ?? windowMs ?? renewedMs,
        remaining: remaining - (counted ? this.#inFlight : 0),
        renewedAtMs: nowMs + renewedMs + (remaining === 0 ? this.#random() * JITTER_MS : 0),
      },
    ]
  }

  #serve(nowMs: number): void {
    this.#stop()
    while (this.#queue.length > 0) {
      const waitMs = this.#waitMs(nowMs)
      const next = waitMs === 0 ? 0 : this.#queue.findIndex(({ deadlineMs }) => deadlineMs < nowMs + waitMs)
      if (next < 0) {
        this.#stop = this.#timers.after(waitMs, () => this.#serve(this.#timers.nowMs()))
        return
      }
      const [waiter] = this.#queue.splice(next, 1)
      this.#sent(nowMs)
      waiter?.go(nowMs)
    }
  }

  #sent(nowMs: number): void {
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

  #nextMs({ counted, quota, remaining, renewedAtMs }: TrackedLimit): number {
    if (remaining < 1) return renewedAtMs
    if (!counted || quota === Number.POSITIVE_INFINITY || remaining >= quota * SPREAD_SHARE) return 0
    return this.#lastMs + (renewedAtMs - this.#lastMs) / (remaining + 1)
  }
}

/** Assumes a full quota until the next response, so that waiting calls are still spread. */
function renew(limit: TrackedLimit, nowMs: number): void {
  limit.remaining = limit.quota
  limit.renewedAtMs = nowMs + limit.windowMs
}
