// Token bucket: `units` per window flow back into a bucket of `capacity`, and a request takes its cost out.
// Exact at any rate: what is owed is counted in parts, of which a unit costs `unitParts` and a tick brings `tickParts`
// back, so no division ever rounds. at: tick of the last change; x: parts owed (0 is full); y: units on lease, which
// held.ts is about.

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
    // Above 2^53 the product is rounded, but then it exceeds any debt and the bucket is full either way.
    state.x = Math.max(0, state.x - ticks * limit.tickParts)
    return false
  },

  used: (limit, state) => Math.ceil(state.x / limit.unitParts),

  charge(limit, state, _nowUs, units, _opId, held = 0) {
    state.x = Math.min(STATE_MAX, state.x + units * limit.unitParts)
    state.y += held
  },

  // Units of some age have partly flowed back by themselves: returning them whole would turn old units into a burst.
  refund(limit, state, nowUs, units, bookedUs, _opId, settled = 0) {
    const others = settleHeld(limit, state, tickOf(limit, nowUs), tickOf(limit, bookedUs), units, settled)
    const ageTicks = Math.max(0, tickOf(limit, nowUs) - tickOf(limit, bookedUs))
    const parts = Math.max(0, others * limit.unitParts - ageTicks * limit.tickParts)
    state.x = Math.max(0, state.x - parts)
  },

  waitUs(limit, state, nowUs, units) {
    const over = state.x - (limit.capacity - units) * limit.unitParts
    return over <= 0 ? 0 : untilPaidUs(limit, state, nowUs, over)
  },

  resetUs: (limit, state, nowUs) => (state.x === 0 ? 0 : untilPaidUs(limit, state, nowUs, state.x)),

  delayUs: () => 0,
}

function tickOf(limit: Limit, nowUs: number): number {
  return limit.tickUs === 1 ? nowUs : Math.floor(nowUs / limit.tickUs)
}

function untilPaidUs(limit: Limit, state: PackedState, nowUs: number, parts: number): number {
  return (state.at + Math.ceil(parts / limit.tickParts)) * limit.tickUs - nowUs
}
