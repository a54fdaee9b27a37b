// Units of a token bucket that nodes hold ahead of need. What is held does not flow back: the parts owed never fall
// below those of the units on lease, so whenever a node spends them, the bucket has room for them:
//
//   x ≥ D + O      D: what a bucket would owe that saw each unit when it was spent; O: parts of all units on lease
//
// holds when units are charged (x and O, or x and D, grow alike), when they are spent (O becomes D), when time passes
// (D falls to 0 at most, x to O) and when they come back (x and O fall alike). x never exceeds the capacity, so neither
// does D: every interval of length T sees at most B + r·T, for any number of nodes, however long they hold.
//
// Not all of a bucket may be on lease: with many nodes, each holding a little, a client that is far below its limit
// would be refused by the next one. What is left is for whoever asks when all that may be held is held.
//
// Units are counted by epoch, each as long as a lease may be held: y = those of the epoch before × 2^16 + those of this
// one. A node that dies with units in hand takes them along for two epochs at most.

import type { PackedState } from './algorithm.ts'
import type { Limit } from './limit.ts'

// The same three numbers stand in lua/include/leased.lua.
/** Units on lease per epoch and bucket, over all nodes. */
export const HELD_MAX: number = 2 ** 16 - 1
/** Of the capacity, over all nodes. */
const HELD_SHARE = 0.75
/** Those of the epoch before are counted in these. */
const BEFORE = 2 ** 16

/** How many more units can be on lease. */
export function heldRoom({ holdTicks, capacity }: Limit, state: unknown): number {
  if (holdTicks === 0) return Number.POSITIVE_INFINITY
  const { y } = state as PackedState
  const current = y % BEFORE
  const before = (y - current) / BEFORE
  return Math.max(0, Math.min(HELD_MAX, Math.floor(capacity * HELD_SHARE) - before) - current)
}

/** Brings a bucket with units on lease to `now`, a tick; true when the clock had stepped back behind it. */
export function advanceHeld(limit: Limit, state: PackedState, now: number): boolean {
  const { holdTicks, tickParts, unitParts } = limit
  const { at, y } = state
  state.at = now
  if (now < at) return true
  const current = y % BEFORE
  const epoch = holdTicks === 0 ? 0 : Math.floor(at / holdTicks)
  const firstEnd = holdTicks === 0 ? at : (epoch + 1) * holdTicks
  const secondEnd = firstEnd + holdTicks
  const owed = (ticks: number, held: number) => {
    // Less than what is held is owed only if the bucket was reset: then nothing is held back.
    state.x = Math.max(Math.min(state.x, held * unitParts), state.x - Math.max(0, ticks) * tickParts)
  }
  owed(Math.min(now, firstEnd) - at, current + (y - current) / BEFORE)
  owed(Math.min(now, secondEnd) - firstEnd, current)
  owed(now - secondEnd, 0)
  if (now >= firstEnd) state.y = now < secondEnd ? current * BEFORE : 0
  return false
}

/**
 * Takes `settled` units off the lease of the epoch in which they were booked. Those that come back have not flowed back
 * meanwhile, so they count whole; the number of the others is returned.
 */
export function settleHeld(
  { holdTicks, unitParts }: Limit,
  state: PackedState,
  now: number,
  booked: number,
  units: number,
  settled: number,
): number {
  if (holdTicks === 0 || settled === 0) return units
  const age = Math.floor(now / holdTicks) - Math.floor(booked / holdTicks)
  const current = state.y % BEFORE
  const counted = age === 0 ? current : age === 1 ? (state.y - current) / BEFORE : 0
  if (counted < settled) return units
  state.y -= settled * (age === 0 ? 1 : BEFORE)
  state.x = Math.max(0, state.x - Math.min(units, settled) * unitParts)
  return Math.max(0, units - settled)
}
