// What an edited rule does to a bucket that the old one wrote: nothing in use is forgotten, nobody is locked out, and a
// node that still has the older rules cannot undo it.

import type { Give } from '../store/store.ts'
import type { Algorithm, ListAlgorithm, PackedState } from './algorithm.ts'
import type { Limit } from './limit.ts'
import { isBucket, PACKED, type PackedLimit } from './registry.ts'

/** A stored state, brought to the present limit and time. */
export type Settled<S> = {
  readonly state: S
  /**
   * The clock stepped back or the rule was edited: to be stored even if the take is refused, or the wait would never
   * end.
   */
  readonly moved: boolean
  /** The bucket was written under a newer generation than the one that asks. */
  readonly stale: boolean
}

/** `written` is the limit under which `state` was stored, `limit` the one of now; each with its algorithm. */
export function settlePacked(
  written: PackedLimit,
  state: PackedState,
  limit: PackedLimit,
  nowUs: number,
  from: Algorithm<PackedState> = PACKED[written.algorithm],
  to: Algorithm<PackedState> = PACKED[limit.algorithm],
): Settled<PackedState> {
  const ahead = from.advance(written, state, nowUs)
  const live = from.resetUs(written, state, nowUs) > 0
  const edited = live && !sameShape(written, limit)
  const next = live && !edited ? state : vacated(to, limit, nowUs)
  if (edited) inherit(written, state, from.used(written, state, nowUs), limit, next)
  return {
    state: next,
    moved: ahead || edited,
    stale: live && written.generation > limit.generation,
  }
}

/** Logs and permits hold their times and units outright. What has left the old window or the new one is gone. */
export function settleList<S>(
  algorithm: ListAlgorithm<S>,
  written: Limit,
  state: S,
  limit: Limit,
  nowUs: number,
): Settled<S> {
  const ahead = algorithm.advance(limit, state, nowUs)
  const edited = written.windowUs !== limit.windowUs
  if (edited) for (const either of [written, limit]) algorithm.dropExpired(either, state, nowUs)
  const live = algorithm.resetUs(limit, state, nowUs) > 0
  return { state, moved: ahead || edited, stale: live && written.generation > limit.generation }
}

/** Older rules do not touch what newer ones wrote, and to a vacant bucket there is nothing to give. */
export function isGivable<S>({ stale }: Settled<S>, { limit, units, settled = 0 }: Give, resetUs: number): boolean {
  if (stale || units < 0) return !stale
  return resetUs > 0 && (units > 0 || (settled > 0 && limit.holdTicks > 0))
}

/**
 * Whether a state written under `a` means the same under `b`: how much a bucket holds, or a window admits, is no part
 * of it.
 */
function sameShape(a: Limit, b: Limit): boolean {
  if (a.algorithm !== b.algorithm || a.tickUs !== b.tickUs) return false
  if (!isBucket(a.algorithm)) return a.windowTicks === b.windowTicks
  return a.unitParts === b.unitParts && a.tickParts === b.tickParts && a.holdTicks === b.holdTicks
}

/**
 * The units in use carry over, to a bucket up to its capacity: another rate can empty it, not put it in debt. Between
 * buckets the time owed carries over too, and the larger of the two counts: raising a rate does not free a client at
 * once.
 */
function inherit(from: PackedLimit, state: PackedState, used: number, to: PackedLimit, next: PackedState): void {
  // A window forgets by itself when it ends; a bucket in debt would make its owner wait for as long as the debt is
  // deep.
  PACKED[to.algorithm].charge(to, next, 0, isBucket(to.algorithm) ? Math.min(to.capacity, used) : used)
  if (!isBucket(from.algorithm) || !isBucket(to.algorithm)) return

  const owedUs = Math.ceil(state.x / from.tickParts) * from.tickUs
  const owedTicks = Math.ceil(owedUs / to.tickUs)
  const capacityParts = to.capacity * to.unitParts
  const owedParts = owedTicks >= capacityParts / to.tickParts ? capacityParts : owedTicks * to.tickParts
  next.x = Math.max(next.x, owedParts)
  next.y = state.y // what is on lease stays so
}

function vacated(algorithm: Algorithm<PackedState>, limit: PackedLimit, nowUs: number): PackedState {
  const state = algorithm.fresh()
  algorithm.advance(limit, state, nowUs)
  return state
}
