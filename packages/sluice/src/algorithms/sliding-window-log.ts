// Sliding window log: remembers when every admitted unit was booked, so no window of `windowUs`, wherever it starts,
// holds more than `units`. Exact, and paid for in memory: one entry per admitted instant, hence LOG_UNITS_MAX.

import type { Algorithm } from './algorithm.ts'

/** Pairs (µs, units), oldest first; requests of one microsecond share an entry and all count. */
export type LogState = { used: number; entries: number[] }

export const slidingWindowLog: Algorithm<LogState> = {
  fresh: () => ({ used: 0, entries: [] }),

  advance(limit, state, nowUs) {
    const aheadUs = newestUs(state) - nowUs
    if (aheadUs > 0) {
      for (let index = 0; index < state.entries.length; index += 2)
        state.entries[index] = timeAt(state, index) - aheadUs
    }
    let expired = 0
    while (expired < state.entries.length && timeAt(state, expired) <= nowUs - limit.windowUs) {
      state.used -= unitsAt(state, expired)
      expired += 2
    }
    if (expired > 0) state.entries.splice(0, expired)
    return aheadUs > 0
  },

  used: (_limit, state) => state.used,

  charge(_limit, state, nowUs, units) {
    state.used += units
    if (newestUs(state) === nowUs) state.entries.push((state.entries.pop() ?? 0) + units)
    else state.entries.push(nowUs, units)
  },

  refund(_limit, state, _nowUs, units, bookedUs) {
    for (let index = 0; index < state.entries.length; index += 2) {
      if (timeAt(state, index) !== bookedUs) continue
      const left = Math.max(0, unitsAt(state, index) - units)
      state.used -= unitsAt(state, index) - left
      if (left === 0) state.entries.splice(index, 2)
      else state.entries[index + 1] = left
      return
    }
  },

  waitUs(limit, state, nowUs, units) {
    let used = state.used
    for (let index = 0; index < state.entries.length && used + units > limit.capacity; index += 2) {
      used -= unitsAt(state, index)
      if (used + units <= limit.capacity) return timeAt(state, index) + limit.windowUs - nowUs
    }
    return 0
  },

  resetUs: (limit, state, nowUs) => (state.used === 0 ? 0 : newestUs(state) + limit.windowUs - nowUs),

  delayUs: () => 0,
}

function newestUs(state: LogState): number {
  return state.entries.at(-2) ?? Number.NEGATIVE_INFINITY
}

// Entries come in pairs, and every index handed to these two is within the array.
function timeAt(state: LogState, index: number): number {
  return state.entries[index] ?? 0
}

function unitsAt(state: LogState, index: number): number {
  return state.entries[index + 1] ?? 0
}
