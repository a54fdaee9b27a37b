// Limits, and how the load on them is spread over the nodes of a fleet.

import type { LimitNumbers } from 'sluice'

export const NODES = 8
/** How much more is asked for than there is. */
const PRESSURE = 2
const EVEN = Array.from({ length: NODES }, () => 1 / NODES)
const HARMONIC = EVEN.map((_, index) => 1 / (index + 1))
const ZIPF = HARMONIC.map((part) => part / HARMONIC.reduce((sum, one) => sum + one))
const ONE = EVEN.map((_, index) => (index === 0 ? 1 : 0))

/** Shares of the load by node, in the first half of a run and in the second. */
export const LOADS = { even: [EVEN, EVEN], 'by Zipf': [ZIPF, ZIPF], 'moved to one node': [EVEN, ONE] } as const
export type Load = keyof typeof LOADS
export const LOAD_NAMES: readonly Load[] = Object.keys(LOADS) as Load[]

export const LEASED = ['token_bucket', 'fixed_window', 'sliding_window', 'sliding_window_log'] as const

/** The largest that is tried: a log is capped. */
export function largest(algorithm: (typeof LEASED)[number]): number {
  return algorithm === 'sliding_window_log' ? 1000 : 10_000
}

export function leasedLimit(algorithm: (typeof LEASED)[number], units: number, windowUs: number): LimitNumbers {
  const id = `${algorithm} ${units} ${windowUs}`
  return { id, fact: 'user', onFail: 'closed', algorithm, units, windowUs, lease: { ttlUs: 1_000_000 } }
}

/** Requests a second of a node with such a share of the load. */
export function pressed(share: number): (limit: LimitNumbers) => number {
  return ({ units, windowUs }) => (share * PRESSURE * units * 1e6) / windowUs
}
