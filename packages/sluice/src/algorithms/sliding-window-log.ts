// Sliding window log: remembers when every admitted unit was booked, so no window of `windowUs`, wherever it starts,
// holds more than `units`. Exact, and paid for in memory: one entry per admitted instant, hence LOG_UNITS_MAX.

import type { ListAlgorithm } from './algorithm.ts'

/** Pairs (µs, units), oldest first; requests of one microsecond share an entry and all count. */
export type LogState = { used: number; entries: number[] }

export const slidingWindowLog: ListAlgorithm<LogState> = {
  fresh: () => ({ used: 0, entries: [] }),

  // Entries that have left the window stay until something is charged or given back: a refusal changes nothing.
  advance(_limit, state, nowUs) {
    const aheadUs = newestUs(state) - nowUs
    if (!(aheadUs > 0)) return false
    for (let index = 0; index < state.entries.length; index += 2) state.entries[index] = timeAt(state, index) - aheadUs
    return true
  },

  used(limit, state, nowUs) {
    let used = state.used
    const start = liveStart(state, nowUs - limit.windowUs)
    for (let index = 0; index < start; index += 2) used -= unitsAt(state, index)
    return used
  },

  charge(limit, state, nowUs, units) {
    slidingWindowLog.dropExpired(limit, state, nowUs)
    state.used += units
    if (newestUs(state) === nowUs) state.entries.push((state.entries.pop() ?? 0) + units)
    else state.entries.push(nowUs, units)
  },

  // A node of an approximate limit tells the store later, all at once: the units are in the entries from `bookedUs` on.
  // Errs low: they come out of the oldest of these, so what is left counts for longer.
  refund(limit, state, nowUs, units, bookedUs) {
    slidingWindowLog.dropExpired(limit, state, nowUs)
    if (bookedUs <= nowUs - limit.windowUs) return
    const index = liveStart(state, bookedUs - 1)
    let left = units
    while (left > 0 && index < state.entries.length) {
      if (limit.approximate === undefined && timeAt(state, index) !== bookedUs) return
      const taken = Math.min(left, unitsAt(state, index))
      left -= taken
      state.used -= taken
      if (taken === unitsAt(state, index)) state.entries.splice(index, 2)
      else state.entries[index + 1] = unitsAt(state, index) - taken
    }
  },

  waitUs(limit, state, nowUs, units) {
    let used = slidingWindowLog.used(limit, state, nowUs)
    const start = liveStart(state, nowUs - limit.windowUs)
    for (let index = start; index < state.entries.length && used + units > limit.capacity; index += 2) {
      used -= unitsAt(state, index)
      if (used + units <= limit.capacity) return timeAt(state, index) + limit.windowUs - nowUs
    }
    return 0
  },

  resetUs: (limit, state, nowUs) => Math.max(0, newestUs(state) + limit.windowUs - nowUs),

  delayUs: () => 0,

  dropExpired(limit, state, nowUs) {
    state.used = slidingWindowLog.used(limit, state, nowUs)
    state.entries.splice(0, liveStart(state, nowUs - limit.windowUs))
  },
}

function newestUs(state: LogState): number {
  return state.entries.at(-2) ?? Number.NEGATIVE_INFINITY
}

/** Index of the first entry after `sinceUs`. */
function liveStart(state: LogState, sinceUs: number): number {
  let start = 0
  while (start < state.entries.length && timeAt(state, start) <= sinceUs) start += 2
  return start
}

// Entries come in pairs, and every index handed to these two is within the array.
function timeAt(state: LogState, index: number): number {
  return state.entries[index] ?? 0
}

function unitsAt(state: LogState, index: number): number {
  return state.entries[index + 1] ?? 0
}
