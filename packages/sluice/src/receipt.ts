// Receipt: the units of an admitted request as plain data, which any limiter with the same rules and store can refund.
// It names its limits by id. A limit that was edited or removed since is left out: its units cannot be distinguished
// from those of the new limit, and a refund could exceed it.

import { isCounterfactualId, type Limit } from './algorithms/limit.ts'
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

/**
 * Builds the give operations that refund a receipt. `limiterId`: id of this limiter. `limitsOf` finds the active limits
 * of an owner by id: two, if their rule is under rollout.
 */
export function givesOf(
  { items, issuer: issuedBy }: Receipt,
  limiterId: string,
  limitsOf: (id: string, owner: string) => readonly Limit[],
): { readonly gives: Give[]; readonly leftOut: string[] } {
  const remote = issuedBy !== limiterId
  const leftOut: string[] = []
  const gives = items.flatMap((item): Give[] => {
    const { owner, detail, units, bookedUs, leasedUs } = item
    // A permit is found by its op id, so it can be released even if the limit was edited.
    const limit = limitsOf(item.limit, owner).find((one) => hasPermits(one) || fingerprintOf(one) === item.fingerprint)
    if (limit !== undefined && !(limit.local && remote))
      return [{ limit, owner, detail, units, bookedUs, leasedUs, remote }]
    if (!isCounterfactualId(item.limit)) leftOut.push(item.limit) // its rollout has ended
    return []
  })
  return { gives, leftOut }
}

/** Age of the oldest units, by this node's clock. */
export function ageUs(gives: readonly Give[], nowUs: number): number {
  return Math.max(0, nowUs - Math.min(...gives.map(({ bookedUs }) => bookedUs)))
}

/** Id of the whole limit, given the id of a limit or sublimit. */
export function wholeId(id: string): string {
  return id.replace(/^(\d+|pool)%/, '')
}

/** Fingerprint of all numbers that define what a unit is worth, and when. */
export function fingerprintOf({ generation, algorithm, units, windowUs, capacity }: Limit): string {
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

/** Prefix of request ids: unique per process; a counter follows it. */
export function randomPrefix(): string {
  const [high = 0, low = 0] = crypto.getRandomValues(new Uint32Array(2))
  return `${high.toString(36)}${low.toString(36)}-`
}
