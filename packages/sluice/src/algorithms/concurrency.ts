// Concurrency: at most `units` permits are held at once. A permit is named by its op id: taking it again renews it,
// giving it releases it, and one that is neither expires after `windowUs`, so a crashed holder frees its place.

import type { Algorithm } from './algorithm.ts'

export type Permit = { readonly units: number; readonly expiresUs: number }
/** By op id. */
export type PermitState = Map<string, Permit>

export const concurrency: Algorithm<PermitState> = {
  fresh: () => new Map(),

  // A clock that stepped back would make permits outlive their time: none is due later than one window from now.
  advance(limit, state, nowUs) {
    const latestUs = nowUs + limit.windowUs
    let ahead = false
    for (const [opId, { units, expiresUs }] of state) {
      if (expiresUs <= nowUs) state.delete(opId)
      if (expiresUs <= latestUs) continue
      state.set(opId, { units, expiresUs: latestUs })
      ahead = true
    }
    return ahead
  },

  used: (_limit, state, _nowUs, opId) => unitsOf(state) - (state.get(opId ?? '')?.units ?? 0),

  charge(limit, state, nowUs, units, opId = '') {
    state.set(opId, { units, expiresUs: nowUs + limit.windowUs })
  },

  refund(_limit, state, _nowUs, _units, _bookedUs, opId = '') {
    state.delete(opId)
  },

  waitUs(limit, state, nowUs, units, opId) {
    let used = concurrency.used(limit, state, nowUs, opId)
    const others = [...state].filter(([holder]) => holder !== opId).map(([, permit]) => permit)
    for (const permit of others.sort((a, b) => a.expiresUs - b.expiresUs)) {
      if (used + units <= limit.capacity) break
      used -= permit.units
      if (used + units <= limit.capacity) return permit.expiresUs - nowUs
    }
    return 0
  },

  resetUs(_limit, state, nowUs) {
    let latestUs = nowUs
    for (const { expiresUs } of state.values()) latestUs = Math.max(latestUs, expiresUs)
    return latestUs - nowUs
  },

  delayUs: () => 0,
}

function unitsOf(state: PermitState): number {
  let sum = 0
  for (const { units } of state.values()) sum += units
  return sum
}
