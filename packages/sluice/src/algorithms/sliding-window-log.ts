// Sliding window log: stores when each unit was booked, so no interval of `windowUs` admits more than `units`. Exact,
// at the cost of memory: one entry per microsecond with an admitted request, hence LOG_UNITS_MAX.

import type { ListAlgorithm } from './algorithm.ts'

/** Pairs (µs, units), oldest first. Requests of the same microsecond share an entry. */
export type LogState = { used: number; entries: number[] }

export const slidingWindowLog: ListAlgorithm<LogState> = {
  fresh: () => ({ used: 0, entries: [] }),

  // Expired entries stay until the next charge or refund: a refusal must not change the state.
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

  // Nodes sync approximate limits later and in bulk, so the units are in entries at or after `bookedUs`.
  // Errs low: removes them from the oldest such entries, so the rest counts for longer.
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

// Entries come in pairs; callers pass only indexes within the array.
function timeAt(state: LogState, index: number): number {
  return state.entries[index] ?? 0
}

function unitsAt(state: LogState, index: number): number {
  return state.entries[index + 1] ?? 0
}
