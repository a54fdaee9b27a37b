// Fixed window: at most `units` per epoch-aligned window. Cheap and easy to explain, but a client can spend twice the
// limit around a boundary. at: index of the window; x: units counted in it; y: unused.

import { type Algorithm, freshPacked, type PackedState } from './algorithm.ts'
import { type Limit, STATE_MAX, windowIndex } from './limit.ts'

export const fixedWindow: Algorithm<PackedState> = {
  fresh: freshPacked,

  advance(limit, state, nowUs) {
    const windows = windowIndex(limit, nowUs) - state.at
    state.at += windows
    if (windows > 0) state.x = 0
    return windows < 0
  },

  used: (_limit, state) => state.x,

  charge(_limit, state, _nowUs, units) {
    state.x = Math.min(STATE_MAX, state.x + units)
  },

  refund(limit, state, _nowUs, units, bookedUs) {
    if (windowIndex(limit, bookedUs) === state.at) state.x = Math.max(0, state.x - units)
  },

  waitUs: (limit, state, nowUs, units) => (state.x + units <= limit.capacity ? 0 : untilNextUs(limit, state, nowUs)),

  resetUs: (limit, state, nowUs) => (state.x === 0 ? 0 : untilNextUs(limit, state, nowUs)),

  delayUs: () => 0,
}

function untilNextUs(limit: Limit, state: PackedState, nowUs: number): number {
  return (state.at + 1) * limit.windowUs - nowUs
}
