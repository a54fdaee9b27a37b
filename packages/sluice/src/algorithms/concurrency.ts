// Concurrency limit: at most `units` permits are held at a time. The op id names a permit: taking it again renews it,
// giving it releases it. A permit that is neither renewed nor released expires after `windowUs`.

import type { ListAlgorithm } from './algorithm.ts'

export type Permit = { readonly units: number; readonly expiresUs: number }
/** Permits by op id. */
export type PermitState = Map<string, Permit>

export const concurrency: ListAlgorithm<PermitState> = {
  fresh: () => new Map(),

  // Caps expiry at one window from now, or permits would outlive a clock that stepped back. Expired permits stay until
  // the next charge or refund: a refusal must not change the state.
  advance(limit, state, nowUs) {
    const latestUs = nowUs + limit.windowUs
    let steppedBack = false
    for (const [opId, { units, expiresUs }] of state) {
      if (expiresUs <= latestUs) continue
      state.set(opId, { units, expiresUs: latestUs })
      steppedBack = true
    }
    return steppedBack
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
