// Units of a token bucket on lease. Leased units do not refill: the debt never falls below the subunits on lease, so
// the bucket has room for them whenever a node spends them. The invariant is
//
//   x ≥ D + O      D: debt if each unit were charged when it is spent; O: subunits of all units on lease
//
// It holds when units are charged (x and O, or x and D, grow alike), when they are spent (O becomes D), when time
// passes (D falls to 0 at the lowest, x to O) and when they are returned (x and O fall alike). x never exceeds the
// capacity, so neither does D: every interval of length T admits at most B + r·T, for any number of nodes and any lease
// time.
//
// Leases may hold at most HELD_SHARE of a bucket. The rest serves nodes without a lease: otherwise, with many nodes
// that each hold a little, a client far below its limit would be refused.
//
// Leased units are counted per epoch, as long as the lease TTL: y = units of the previous epoch × 2^16 + units of the
// current one. Units on a node that dies are lost for at most two epochs.

import type { PackedState } from './algorithm.ts'
import type { Limit } from './limit.ts'

// Keep these three equal to lua/include/items.lua.
/** Cap on units on lease per epoch and bucket, over all nodes. */
export const HELD_MAX: number = 2 ** 16 - 1
/** Cap on units on lease as a share of the capacity, over all nodes. */
const HELD_SHARE = 0.75
/** Factor of the previous epoch's count in `y`. */
const PREVIOUS = 2 ** 16

/** Units that can still be leased. */
export function heldRoom({ holdTicks, capacity }: Limit, state: unknown): number {
  if (holdTicks === 0) return Number.POSITIVE_INFINITY
  const { y } = state as PackedState
  const current = y % PREVIOUS
  const previous = (y - current) / PREVIOUS
  return Math.max(0, Math.min(HELD_MAX, Math.floor(capacity * HELD_SHARE) - previous) - current)
}

/** Advances a bucket with units on lease to tick `now`. Returns true if the clock stepped back. */
export function advanceHeld(limit: Limit, state: PackedState, now: number): boolean {
  const { holdTicks, subunitsPerTick, subunitsPerUnit } = limit
  const { at, y } = state
  state.at = now
  if (now < at) return true
  const current = y % PREVIOUS
  const epoch = holdTicks === 0 ? 0 : Math.floor(at / holdTicks)
  const firstEnd = holdTicks === 0 ? at : (epoch + 1) * holdTicks
  const secondEnd = firstEnd + holdTicks
  const repay = (ticks: number, held: number) => {
    // The debt is below the units on lease only after a reset: then nothing is withheld.
    state.x = Math.max(Math.min(state.x, held * subunitsPerUnit), state.x - Math.max(0, ticks) * subunitsPerTick)
  }
  repay(Math.min(now, firstEnd) - at, current + (y - current) / PREVIOUS)
  repay(Math.min(now, secondEnd) - firstEnd, current)
  repay(now - secondEnd, 0)
  if (now >= firstEnd) state.y = now < secondEnd ? current * PREVIOUS : 0
  return false
}

/**
 * Takes `settled` units off the lease count of the epoch in which they were booked. Returned units that were on lease
 * have not refilled, so they count in full. Returns the number of the other ones.
 */
export function settleHeld(
  { holdTicks, subunitsPerUnit }: Limit,
  state: PackedState,
  now: number,
  booked: number,
  units: number,
  settled: number,
): number {
  if (holdTicks === 0 || settled === 0) return units
  const age = Math.floor(now / holdTicks) - Math.floor(booked / holdTicks)
  const current = state.y % PREVIOUS
  const counted = age === 0 ? current : age === 1 ? (state.y - current) / PREVIOUS : 0
  if (counted < settled) return units
  state.y -= settled * (age === 0 ? 1 : PREVIOUS)
  state.x = Math.max(0, state.x - Math.min(units, settled) * subunitsPerUnit)
  return Math.max(0, units - settled)
}
