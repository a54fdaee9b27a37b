// Limits, and distributions of load over the nodes of a fleet.

import type { LimitNumbers } from 'sluice'

export const NODES = 8
/** Load as a multiple of the limit. */
const PRESSURE = 2
const EVEN = Array.from({ length: NODES }, () => 1 / NODES)
const HARMONIC = EVEN.map((_, index) => 1 / (index + 1))
const ZIPF = HARMONIC.map((share) => share / HARMONIC.reduce((sum, one) => sum + one))
const ONE = EVEN.map((_, index) => (index === 0 ? 1 : 0))

/** Share of the load per node, in the first and in the second half of a run. */
export const LOADS = { even: [EVEN, EVEN], Zipf: [ZIPF, ZIPF], 'moved to one node': [EVEN, ONE] } as const
export type Load = keyof typeof LOADS
export const LOAD_NAMES: readonly Load[] = Object.keys(LOADS) as Load[]

export const LEASED = ['token_bucket', 'fixed_window', 'sliding_window', 'sliding_window_log'] as const

/** The largest limit tested: logs are capped. */
export function largest(algorithm: (typeof LEASED)[number]): number {
  return algorithm === 'sliding_window_log' ? 1000 : 10_000
}

export function leasedLimit(algorithm: (typeof LEASED)[number], units: number, windowUs: number): LimitNumbers {
  const id = `${algorithm} ${units} ${windowUs}`
  return { id, fact: 'user', onFail: 'closed', algorithm, units, windowUs, lease: { ttlUs: 1_000_000 } }
}

/** Requests per second of a node with this share of the load. */
export function pressed(share: number): (limit: LimitNumbers) => number {
  return ({ units, windowUs }) => (share * PRESSURE * units * 1e6) / windowUs
}
