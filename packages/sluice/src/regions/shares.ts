// Shares of regions in a limit. The home share is split between them by weight; the rest is a pool from which all
// regions lease. Shares are whole millionths, so that rounding never adds up to more than the limit.

import { optionInvalid } from '../errors.ts'

export type Shares = {
  /** By region, from 0 to 1; at most 1 in total. */
  readonly weights: Readonly<Record<string, number>>
  /** Share of each limit that is split by weight, from 0 to 1. The rest is the pool. Default: 0.1. */
  readonly homeShare?: number | undefined
}

/** Validated shares in millionths. */
export type ExactShares = { readonly weights: ReadonlyMap<string, number>; readonly homeShare: number }

const MILLION = 1_000_000
const HOME_SHARE_DEFAULT = 0.1
const REGIONS_MAX = 64
const NAME = /^[a-z0-9][a-z0-9_-]{0,31}$/

/** `field`: name of the option, for errors. */
export function exactShares({ weights, homeShare = HOME_SHARE_DEFAULT }: Shares, field: string): ExactShares {
  const invalid = (path: string, value: unknown, fix: string) => optionInvalid(`${field}.${path}`, value, fix)
  const entries = Object.entries(weights)
  if (entries.length === 0 || entries.length > REGIONS_MAX) {
    throw invalid('weights', weights, `name 1 to ${REGIONS_MAX} regions, each with its weight`)
  }
  for (const [name, weight] of entries) {
    if (!NAME.test(name))
      throw invalid('weights', name, 'name a region with 1 to 32 characters of a-z, 0-9, "_" and "-"')
    if (!isShare(weight)) throw invalid(`weights.${name}`, weight, 'give a number from 0 to 1')
  }
  if (!isShare(homeShare)) throw invalid('homeShare', homeShare, 'give a number from 0 to 1')
  const exact = new Map(entries.map(([name, weight]) => [name, millionths(weight)]))
  const sum = [...exact.values()].reduce((total, weight) => total + weight, 0)
  if (sum > MILLION)
    throw invalid('weights', weights, `lower some weights: their sum is ${sum / MILLION}, at most 1 is allowed`)
  return { weights: exact, homeShare: millionths(homeShare) }
}

/** Rounds down, but tolerates floating point error: 0.57 × 1,000,000 is slightly less than 570,000. */
function millionths(share: number): number {
  return Math.floor(share * MILLION + 1e-6)
}

function isShare(value: unknown): value is number {
  return typeof value === 'number' && value >= 0 && value <= 1
}

/** Home of each region in units, rounded down. `share` replaces the home share. */
export function homesOf(
  { weights, homeShare }: ExactShares,
  units: number,
  share: number = homeShare,
): Map<string, number> {
  const home = (weight: number) => Number((BigInt(units) * BigInt(weight) * BigInt(share)) / BigInt(MILLION * MILLION))
  return new Map([...weights].map(([name, weight]) => [name, home(weight)]))
}

/** Home share of limits that cannot be leased: all of it is split by weight. */
export const WHOLE_SHARE: number = MILLION
