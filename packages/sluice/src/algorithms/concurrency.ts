// Concurrency: at most `units` permits are held at once. A permit is named by its op id: taking it again renews it,
// giving it releases it, and one that is neither expires after `windowUs`, so a crashed holder frees its place.

import type { ListAlgorithm } from './algorithm.ts'

export type Permit = { readonly units: number; readonly expiresUs: number }
/** By op id. */
export type PermitState = Map<string, Permit>

export const concurrency: ListAlgorithm<PermitState> = {
  fresh: () => new Map(),

  // A clock that stepped back would make permits outlive their time: none is due later than one window from now.
  // Expired ones stay until something is charged or given back: a refusal changes nothing.
  advance(limit, state, nowUs) {
    const latestUs = nowUs + limit.windowUs
    let ahead = false
    for (const [opId, { units, expiresUs }] of state) {
      if (expiresUs <= latestUs) continue
      state.set(opId, { units, expiresUs: latestUs })
      ahead = true
    }
    return ahead
  },

  used: (_limit, state, nowUs, opId) => unitsOf(othersOf(state, nowUs, opId)),

  charge(limit, state, nowUs, units, opId = '') {
    concurrency.dropExpired(limit, state, nowUs)
    state.set(opId, { units, expiresUs: nowUs + limit.windowUs })
  },

  refund(limit, state, nowUs, _units, _bookedUs, opId = '') {
    concurrency.dropExpired(limit, state, nowUs)
    state.delete(opId)
  },

  waitUs(limit, state, nowUs, units, opId) {
    const others = othersOf(state, nowUs, opId).sort((a, b) => a.expiresUs - b.expiresUs)
    let used = unitsOf(others)
    for (const permit of others) {
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

  dropExpired(_limit, state, nowUs) {
    for (const [holder, { expiresUs }] of state) if (expiresUs <= nowUs) state.delete(holder)
  },
}

export function holds(state: PermitState, opId: string, nowUs: number): boolean {
  return (state.get(opId)?.expiresUs ?? 0) > nowUs
}

function othersOf(state: PermitState, nowUs: number, opId: string | undefined): Permit[] {
  const others: Permit[] = []
  for (const [holder, permit] of state) if (holder !== opId && permit.expiresUs > nowUs) others.push(permit)
  return others
}

function unitsOf(permits: readonly Permit[]): number {
  return permits.reduce((sum, { units }) => sum + units, 0)
}
