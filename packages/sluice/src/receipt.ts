// What an admitted request took, as plain data: any limiter with the same rules and the same store can return it. Its
// limits are named, not written out, so a limit that was edited or removed since is left out: its units cannot be told
// from those of the new one, and to return them could exceed it.

import type { Limit } from './algorithms/limit.ts'
import { isBucket } from './algorithms/registry.ts'
import type { Give, Given, Once } from './store/store.ts'

export type Receipt = {
  /** Unique: what it names is returned once. */
  readonly id: string
  /** The limiter that admitted the request. */
  readonly home: string
  /** Names its permits. */
  readonly op: string | undefined
  /** How long after the booking it can be redeemed. */
  readonly lastsUs: number
  readonly items: readonly ReceiptItem[]
}

export type ReceiptItem = {
  /** Id of the limit, or of the part of it that was charged. */
  readonly limit: string
  /** Tells whether the limit is still the same. */
  readonly print: string
  readonly owner: string
  readonly detail: string
  readonly units: number
  readonly bookedUs: number
  /** Of units that came out of a lease: when that was booked. */
  readonly leasedUs?: number | undefined
}

export type Redeemed = {
  /** outdated: every limit that it names was edited or removed. Nothing was returned, and nothing is remembered. */
  readonly outcome: Given | 'outdated'
  /** Ids of limits that got nothing back: edited or removed since, or counted by another node alone. */
  readonly leftOut: readonly string[]
}

const LASTS_US_MIN = 60_000_000
const LASTS_US_MAX = 86_400_000_000

export function receiptOf(once: Once, home: string, op: string | undefined, gives: readonly Give[]): Receipt {
  const items = gives.map(({ limit, owner, detail, units, bookedUs, leasedUs }): ReceiptItem => {
    return { limit: limit.id, print: printOf(limit), owner, detail, units, bookedUs, leasedUs }
  })
  return { ...once, home, op, items }
}

/** As long as any of the buckets remembers the units, within bounds. */
export function lastsUs(gives: readonly Give[]): number {
  const longest = gives.reduce((most, { limit }) => Math.max(most, remembersUs(limit)), LASTS_US_MIN)
  return Math.min(longest, LASTS_US_MAX)
}

/** What to give to the store. `limitOf` finds the limit that is in force under an id. */
export function givesOf(
  { items, home: from }: Receipt,
  home: string,
  limitOf: (id: string) => Limit | undefined,
): { readonly gives: Give[]; readonly leftOut: string[] } {
  const remote = from !== home
  const leftOut: string[] = []
  const gives = items.flatMap((item): Give[] => {
    const { owner, detail, units, bookedUs, leasedUs } = item
    const limit = limitOf(item.limit)
    // A permit is found by its name: whatever else was edited, it can be released.
    const same = limit !== undefined && (isPermit(limit) || printOf(limit) === item.print)
    if (same && !(limit.local && remote)) return [{ limit, owner, detail, units, bookedUs, leasedUs, remote }]
    leftOut.push(item.limit)
    return []
  })
  return { gives, leftOut }
}

export function isPermit({ algorithm }: Limit): boolean {
  return algorithm === 'concurrency'
}

/** The id of a limit, without that of the part that was charged. */
export function wholeId(id: string): string {
  return id.replace(/^(\d+|pool)%/, '')
}

/** Of all numbers that say what a unit is worth, and when. */
function printOf({ generation, algorithm, units, windowUs, capacity }: Limit): string {
  let hash = 0x811c9dc5
  for (const character of [generation, algorithm, units, windowUs, capacity].join(' ')) {
    hash = Math.imul(hash ^ character.charCodeAt(0), 0x01000193) >>> 0
  }
  return hash.toString(36)
}

function remembersUs({ algorithm, capacity, unitParts, tickParts, tickUs, windowUs }: Limit): number {
  if (isBucket(algorithm)) return Math.ceil((capacity * unitParts) / tickParts) * tickUs
  return algorithm === 'sliding_window' ? 2 * windowUs : windowUs
}
