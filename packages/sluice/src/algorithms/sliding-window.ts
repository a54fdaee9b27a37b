// Sliding window counter: counts two aligned windows and weights the previous one by its overlap with the last
// `windowUs`. Two counts per bucket, no boundary burst. docs/guides/algorithms.md has the error against the log.
// at: index of the current window; x: units in it; y: units in the one before.

import { type Algorithm, freshPacked, type PackedState } from './algorithm.ts'
import { type Limit, SLIDING_UNITS_MAX, windowIndex } from './limit.ts'

export const slidingWindow: Algorithm<PackedState> = {
  fresh: freshPacked,

  advance(limit, state, nowUs) {
    const windows = windowIndex(limit, nowUs) - state.at
    state.at += windows
    if (windows > 0) {
      state.y = windows === 1 ? state.x : 0
      state.x = 0
    }
    return windows < 0
  },

  used: (limit, state, nowUs) => state.x + weighted(limit, state, nowUs),

  charge(_limit, state, _nowUs, units) {
    state.x = Math.min(SLIDING_UNITS_MAX, state.x + units)
  },

  refund(limit, state, _nowUs, units, bookedUs) {
    const age = state.at - windowIndex(limit, bookedUs)
    if (age === 0) state.x = Math.max(0, state.x - units)
    if (age === 1) state.y = Math.max(0, state.y - units)
  },

  // Exact: the first tick at which the weighted previous window leaves `units` free. That is in the next window if the
  // current count alone leaves too little; the current count then fades.
  waitUs(limit, state, nowUs, units) {
    const free = limit.capacity - units
    const inThisWindow = state.x <= free
    const fading = inThisWindow ? state.y : state.x
    const room = inThisWindow ? free - state.x : free
    const overlapMax = fading === 0 ? limit.windowTicks : Math.floor((room * limit.windowTicks) / fading)
    const startTick = (state.at + (inThisWindow ? 0 : 1)) * limit.windowTicks
    return Math.max(0, (startTick + Math.max(0, limit.windowTicks - overlapMax)) * limit.tickUs - nowUs)
  },

  resetUs(limit, state, nowUs) {
    const windows = state.x > 0 ? 2 : state.y > 0 ? 1 : 0
    return windows === 0 ? 0 : (state.at + windows) * limit.windowUs - nowUs
  },

  delayUs: () => 0,
}

/** Weighted count of the previous window, rounded up: errs low. */
function weighted(limit: Limit, state: PackedState, nowUs: number): number {
  if (state.y === 0) return 0
  const elapsedTicks = Math.floor(nowUs / limit.tickUs) - state.at * limit.windowTicks
  return Math.ceil((state.y * (limit.windowTicks - elapsedTicks)) / limit.windowTicks)
}
