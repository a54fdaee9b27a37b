// Carries a bucket over to an edited rule: units in use are kept, no client is locked out, and a node with older rules
// cannot undo the edit.

import type { Algorithm, ListAlgorithm, PackedState } from './algorithm.ts'
import type { Limit } from './limit.ts'
import { PACKED, type PackedLimit } from './registry.ts'
import { ALGORITHMS } from './traits.ts'

/** A stored state, migrated to the current limit and advanced to the current time. */
export type CurrentState<S> = {
  readonly state: S
  /**
   * The clock stepped back or the rule was edited. The state must be stored even if the take is refused, or the wait
   * would never end.
   */
  readonly moved: boolean
  /** The bucket was written by a newer generation of the rule. */
  readonly stale: boolean
}

/** `written` is the limit that stored `state`, `limit` the current one; `from` and `to` are their algorithms. */
export function migratePacked(
  written: PackedLimit,
  state: PackedState,
  limit: PackedLimit,
  nowUs: number,
  from: Algorithm<PackedState> = PACKED[written.algorithm],
  to: Algorithm<PackedState> = PACKED[limit.algorithm],
): CurrentState<PackedState> {
  const steppedBack = from.advance(written, state, nowUs)
  const live = from.resetUs(written, state, nowUs) > 0
  const edited = live && !sameShape(written, limit)
  const next = live && !edited ? state : unusedState(to, limit, nowUs)
  if (edited) inherit(written, state, from.used(written, state, nowUs), limit, next)
  return {
    state: next,
    moved: steppedBack || edited,
    stale: live && written.generation > limit.generation,
  }
}

/** Logs and permits store times and units directly. Entries outside of the old or the new window are dropped. */
export function migrateList<S>(
  algorithm: ListAlgorithm<S>,
  written: Limit,
  state: S,
  limit: Limit,
  nowUs: number,
): CurrentState<S> {
  const steppedBack = algorithm.advance(limit, state, nowUs)
  const edited = written.windowUs !== limit.windowUs
  if (edited) for (const either of [written, limit]) algorithm.dropExpired(either, state, nowUs)
  const live = algorithm.resetUs(limit, state, nowUs) > 0
  return { state, moved: steppedBack || edited, stale: live && written.generation > limit.generation }
}

/**
 * Whether a state written under `a` means the same under `b`. Capacity and units per window do not matter.
 */
function sameShape(a: Limit, b: Limit): boolean {
  if (a.algorithm !== b.algorithm || a.tickUs !== b.tickUs) return false
  if (!ALGORITHMS[a.algorithm].burst) return a.windowTicks === b.windowTicks
  return (
    a.subunitsPerUnit === b.subunitsPerUnit && a.subunitsPerTick === b.subunitsPerTick && a.holdTicks === b.holdTicks
  )
}

/**
 * Carries over the units in use, at most the capacity of a bucket with burst: a new rate can empty it, not put it in
 * debt. Between two such buckets the time owed carries over too, and the larger debt counts: raising a rate does not
 * admit a refused client immediately.
 */
function inherit(from: PackedLimit, state: PackedState, used: number, to: PackedLimit, next: PackedState): void {
  // A window forgets excess units when it ends; a bucket in debt would block its owner until the debt is paid.
  PACKED[to.algorithm].charge(to, next, 0, ALGORITHMS[to.algorithm].burst ? Math.min(to.capacity, used) : used)
  if (!ALGORITHMS[from.algorithm].burst || !ALGORITHMS[to.algorithm].burst) return

  const owedUs = Math.ceil(state.x / from.subunitsPerTick) * from.tickUs
  const owedTicks = Math.ceil(owedUs / to.tickUs)
  const most = to.capacity * to.subunitsPerUnit
  const owed = owedTicks >= most / to.subunitsPerTick ? most : owedTicks * to.subunitsPerTick
  next.x = Math.max(next.x, owed)
  next.y = state.y // units on lease stay on lease
}

function unusedState(algorithm: Algorithm<PackedState>, limit: PackedLimit, nowUs: number): PackedState {
  const state = algorithm.fresh()
  algorithm.advance(limit, state, nowUs)
  return state
}
