// Receipt: the units of an admitted request as plain data, which any limiter with the same rules and store can refund.
// It names its limits by id. A limit that was edited or removed since is left out: its units cannot be distinguished
// from those of the new limit, and a refund could exceed it.

import type { Limit } from './algorithms/limit.ts'
import { ALGORITHMS, hasPermits } from './algorithms/traits.ts'
import type { Give, GiveResult, IdempotencyKey } from './store/store.ts'

export type Receipt = {
  /** Unique id; a receipt is refunded once. */
  readonly id: string
  /** Id of the limiter that admitted the request. */
  readonly issuer: string
  /** Op id of its permits. */
  readonly op: string | undefined
  /** Time after the booking during which it can be redeemed. */
  readonly ttlUs: number
  readonly items: readonly ReceiptItem[]
}

export type ReceiptItem = {
  /** Id of the limit, or of the sublimit that was charged. */
  readonly limit: string
  /** Fingerprint of the limit; changes when the limit is edited. */
  readonly fingerprint: string
  readonly owner: string
  readonly detail: string
  readonly units: number
  readonly bookedUs: number
  /** Booking time of the lease that the units came from. */
  readonly leasedUs?: number | undefined
}

export type Redeemed = {
  /** outdated: every named limit was edited or removed. Nothing was returned or recorded. */
  readonly outcome: GiveResult | 'outdated'
  /** Ids of limits that got no refund: edited or removed since, or counted only by another node. */
  readonly leftOut: readonly string[]
}

const TTL_US_MIN = 60_000_000
const TTL_US_MAX = 86_400_000_000

export function receiptOf(
  idempotencyKey: IdempotencyKey,
  issuer: string,
  op: string | undefined,
  gives: readonly Give[],
): Receipt {
  const items = gives.map(({ limit, owner, detail, units, bookedUs, leasedUs }): ReceiptItem => {
    return { limit: limit.id, fingerprint: fingerprintOf(limit), owner, detail, units, bookedUs, leasedUs }
  })
  return { ...idempotencyKey, issuer, op, items }
}

/** TTL: as long as any of the buckets remembers the units, within bounds. */
export function receiptTtlUs(gives: readonly Give[]): number {
  const longest = gives.reduce((most, { limit }) => Math.max(most, retentionUs(limit)), TTL_US_MIN)
  return Math.min(longest, TTL_US_MAX)
}

/** Gives that refund a receipt. `limiterId`: id of this limiter. `limitOf` finds the active limit with an id. */
export function givesOf(
  { items, issuer: issuedBy }: Receipt,
  limiterId: string,
  limitOf: (id: string) => Limit | undefined,
): { readonly gives: Give[]; readonly leftOut: string[] } {
  const remote = issuedBy !== limiterId
  const leftOut: string[] = []
  const gives = items.flatMap((item): Give[] => {
    const { owner, detail, units, bookedUs, leasedUs } = item
    const limit = limitOf(item.limit)
    // A permit is found by its op id, so it can be released even if the limit was edited.
    const same = limit !== undefined && (hasPermits(limit) || fingerprintOf(limit) === item.fingerprint)
    if (same && !(limit.local && remote)) return [{ limit, owner, detail, units, bookedUs, leasedUs, remote }]
    leftOut.push(item.limit)
    return []
  })
  return { gives, leftOut }
}

/** Id of the whole limit, given the id of a limit or sublimit. */
export function wholeId(id: string): string {
  return id.replace(/^(\d+|pool)%/, '')
}

/** Fingerprint of all numbers that define what a unit is worth, and when. */
function fingerprintOf({ generation, algorithm, units, windowUs, capacity }: Limit): string {
  let hash = 0x811c9dc5
  for (const character of [generation, algorithm, units, windowUs, capacity].join(' ')) {
    hash = Math.imul(hash ^ character.charCodeAt(0), 0x01000193) >>> 0
  }
  return hash.toString(36)
}

function retentionUs({ algorithm, capacity, subunitsPerUnit, subunitsPerTick, tickUs, windowUs }: Limit): number {
  const { burst, windows } = ALGORITHMS[algorithm]
  if (burst) return Math.ceil((capacity * subunitsPerUnit) / subunitsPerTick) * tickUs
  return Math.max(1, windows) * windowUs
}
