// What every algorithm is: functions over (limit, state, time). These files are the specification; the memory store
// runs them and the Lua must equal them on every trace (test/differential).

import type { Limit } from './limit.ts'

/**
 * `S` is the state of one bucket. `advance` comes first: all other functions take the state as of `nowUs`.
 * No function reads a clock or keeps anything of its own. They update the state they are handed rather than return a
 * new one: a check in memory then allocates nothing for it, and a log of 1000 entries is not copied for each request.
 */
export type Algorithm<S> = {
  /** A state nobody has touched. */
  fresh(): S
  /**
   * Brings the state to now: refilled, rolled over. True when the clock had stepped back behind it: then it is moved to
   * now as it was, and must be stored even if the request is refused, or the refusal would last until the clock is
   * back.
   */
  advance(limit: Limit, state: S, nowUs: number): boolean
  /** Units in use, above the capacity when in debt. A permit that `opId` itself holds is not counted. */
  used(limit: Limit, state: S, nowUs: number, opId?: string): number
  /** `held` of the units are not spent yet but on lease (held.ts). */
  charge(limit: Limit, state: S, nowUs: number, units: number, opId?: string, held?: number): void
  /** Takes back units that were booked at `bookedUs`, never below empty. `settled` units are no longer on lease. */
  refund(limit: Limit, state: S, nowUs: number, units: number, bookedUs: number, opId?: string, settled?: number): void
  /** Until `units` can be had, if nobody else takes any. `units` is at most the capacity. */
  waitUs(limit: Limit, state: S, nowUs: number, units: number, opId?: string): number
  /** Until nothing is in use. 0: the bucket cannot be told from a fresh one. */
  resetUs(limit: Limit, state: S, nowUs: number): number
  /** How long units charged now have to wait for their turn. */
  delayUs(limit: Limit, state: S): number
}

/** An algorithm that keeps a list, from which nothing goes by itself. */
export type ListAlgorithm<S> = Algorithm<S> & {
  dropExpired(limit: Limit, state: S, nowUs: number): void
}

/** Three numbers hold every algorithm but the log and the permits, so a bucket needs no object of its own. */
export type PackedState = { at: number; x: number; y: number }

export function freshPacked(): PackedState {
  return { at: 0, x: 0, y: 0 }
}
