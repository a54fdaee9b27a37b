// Algorithm interface: pure functions over (limit, state, time). The files in this folder are the specification. The
// memory store runs them; the Lua must give the same results on every trace (test/differential).

import type { Limit } from './limit.ts'

/**
 * `S` is the state of one bucket. Call `advance` first: all other functions expect the state as of `nowUs`.
 * Functions read no clock and keep no data. They update the state in place (docs/decisions/0008).
 */
export type Algorithm<S> = {
  /** State of an unused bucket. */
  fresh(): S
  /**
   * Brings the state to `nowUs`: refills it or starts a new window. Returns true if the clock stepped back since the
   * state was stored. The state then moves to `nowUs` unchanged and must be stored even if the request is refused, or
   * requests would be refused until the clock catches up.
   */
  advance(limit: Limit, state: S, nowUs: number): boolean
  /** Units in use; above the capacity when in debt. Excludes a permit held by `opId`. */
  used(limit: Limit, state: S, nowUs: number, opId?: string): number
  /** Charges `units`, of which `held` are on lease (held.ts). */
  charge(limit: Limit, state: S, nowUs: number, units: number, opId?: string, held?: number): void
  /** Returns units that were booked at `bookedUs`, never above full. `settled` units are no longer on lease. */
  refund(limit: Limit, state: S, nowUs: number, units: number, bookedUs: number, opId?: string, settled?: number): void
  /** Time until `units` are available, if no other request takes any. `units` is at most the capacity. */
  waitUs(limit: Limit, state: S, nowUs: number, units: number, opId?: string): number
  /** Time until the bucket equals an unused one; 0 if it does now. */
  resetUs(limit: Limit, state: S, nowUs: number): number
  /** Delay of units charged now (leaky bucket). */
  delayUs(limit: Limit, state: S): number
}

/** An algorithm whose state is a list; expired entries stay until `dropExpired`. */
export type ListAlgorithm<S> = Algorithm<S> & {
  dropExpired(limit: Limit, state: S, nowUs: number): void
}

/** State of the packed algorithms: three numbers, so a bucket in memory needs no object. */
export type PackedState = { at: number; x: number; y: number }

export function freshPacked(): PackedState {
  return { at: 0, x: 0, y: 0 }
}
