// How regions share a limit: a part of it is split between them by weight, each region's own for good, and the rest is
// a pool that all lease from. Shares are whole millionths, so that no rounding adds up to more than the limit.

import { optionInvalid } from '../errors.ts'

export type Shares = {
  /** Of each region, by name, from 0 to 1; together at most 1. */
  readonly weights: Readonly<Record<string, number>>
  /** How much of each limit is split by weight, from 0 to 1. The rest is the pool. */
  readonly homeShare?: number | undefined
}

/** Shares that have been checked, in millionths. */
export type ExactShares = { readonly weights: ReadonlyMap<string, number>; readonly homeShare: number }

const MILLION = 1_000_000
const HOME_SHARE_DEFAULT = 0.1
const REGIONS_MAX = 64
const NAME = /^[a-z0-9][a-z0-9_-]{0,31}$/

/** `field` is what the shares are called where they were given. */
export function exactShares({ weights, homeShare = HOME_SHARE_DEFAULT }: Shares, field: string): ExactShares {
  const fault = (path: string, value: unknown, fix: string) => optionInvalid(`${field}.${path}`, value, fix)
  const entries = Object.entries(weights)
  if (entries.length === 0 || entries.length > REGIONS_MAX) {
    throw fault('weights', weights, `name 1 to ${REGIONS_MAX} regions, each with its weight`)
  }
  for (const [name, weight] of entries) {
    if (!NAME.test(name)) throw fault('weights', name, 'name a region with 1 to 32 characters of a-z, 0-9, "_" and "-"')
    if (!isShare(weight)) throw fault(`weights.${name}`, weight, 'give a number from 0 to 1')
  }
  if (!isShare(homeShare)) throw fault('homeShare', homeShare, 'give a number from 0 to 1')
  const exact = new Map(entries.map(([name, weight]) => [name, millionths(weight)]))
  const sum = [...exact.values()].reduce((total, weight) => total + weight, 0)
  if (sum > MILLION) throw fault('weights', weights, `lower some: together they are ${sum / MILLION}, and 1 is all`)
  return { weights: exact, homeShare: millionths(homeShare) }
}

/** Rounded down, so that parts of a whole stay one; but 0.57 times a million is a little less than 570,000. */
function millionths(share: number): number {
  return Math.floor(share * MILLION + 1e-6)
}

function isShare(value: unknown): value is number {
  return typeof value === 'number' && value >= 0 && value <= 1
}

/** What each region has of `units` for good, rounded down. `homeShare`: another one than that of the shares. */
export function homesOf({ weights, homeShare }: ExactShares, units: number, other?: number): Map<string, number> {
  const share = BigInt(other ?? homeShare)
  const part = (weight: number) => Number((BigInt(units) * BigInt(weight) * share) / BigInt(MILLION * MILLION))
  return new Map([...weights].map(([name, weight]) => [name, part(weight)]))
}

/** The home share of what cannot be leased: all of it is split by weight. */
export const ALL: number = MILLION
