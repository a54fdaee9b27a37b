// Token bucket: refills `units` per window up to `capacity`; a request takes its cost.
// Exact at any rate: debt is counted in subunits. A unit costs `subunitsPerUnit`, a tick returns `subunitsPerTick`, so
// no division rounds. at: tick of the last change; x: subunits owed (0 is full); y: units on lease (held.ts).

import { type Algorithm, freshPacked, type PackedState } from './algorithm.ts'
import { advanceHeld, settleHeld } from './held.ts'
import { type Limit, STATE_MAX } from './limit.ts'

export const tokenBucket: Algorithm<PackedState> = {
  fresh: freshPacked,

  advance(limit, state, nowUs) {
    if (state.y !== 0) return advanceHeld(limit, state, tickOf(limit, nowUs))
    const ticks = tickOf(limit, nowUs) - state.at
    state.at += ticks
    if (ticks < 0) return true
    // Above 2^53 the product is rounded, but it then exceeds any debt: the bucket is full either way.
    state.x = Math.max(0, state.x - ticks * limit.subunitsPerTick)
    return false
  },

  used: (limit, state) => Math.ceil(state.x / limit.subunitsPerUnit),

  charge(limit, state, _nowUs, units, _opId, held = 0) {
    state.x = Math.min(STATE_MAX, state.x + units * limit.subunitsPerUnit)
    state.y += held
  },

  // Older units have partly refilled already: returning them in full would turn them into a burst.
  refund(limit, state, nowUs, units, bookedUs, _opId, settled = 0) {
    const others = settleHeld(limit, state, tickOf(limit, nowUs), tickOf(limit, bookedUs), units, settled)
    const ageTicks = Math.max(0, tickOf(limit, nowUs) - tickOf(limit, bookedUs))
    const subunits = Math.max(0, others * limit.subunitsPerUnit - ageTicks * limit.subunitsPerTick)
    state.x = Math.max(0, state.x - subunits)
  },

  waitUs(limit, state, nowUs, units) {
    const over = state.x - (limit.capacity - units) * limit.subunitsPerUnit
    return over <= 0 ? 0 : untilPaidUs(limit, state, nowUs, over)
  },

  resetUs: (limit, state, nowUs) => (state.x === 0 ? 0 : untilPaidUs(limit, state, nowUs, state.x)),

  delayUs: () => 0,
}

function tickOf(limit: Limit, nowUs: number): number {
  return limit.tickUs === 1 ? nowUs : Math.floor(nowUs / limit.tickUs)
}

function untilPaidUs(limit: Limit, state: PackedState, nowUs: number, subunits: number): number {
  return (state.at + Math.ceil(subunits / limit.subunitsPerTick)) * limit.tickUs - nowUs
}
