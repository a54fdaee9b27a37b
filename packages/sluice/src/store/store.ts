// Store interface: take, give, peek and reset over buckets. Narrow, so that a store can wrap another one (leases,
// circuit breaker). Every implementation runs `storeContract` of sluice/testing.

import type { Limit } from '../algorithms/limit.ts'
import { hasPermits } from '../algorithms/traits.ts'
import { optionInvalid } from '../errors.ts'
import type { SomeStats } from './stats.ts'

/**
 * Charge of one limit against one bucket. The bucket is (limit.id, limit.fact, owner, detail): separate fields, because
 * joining them costs more than the rest of a check in memory, and because Redis groups buckets by owner.
 */
export type Charge = {
  readonly limit: Limit
  /** First fact of the key: the user, the address; `` for a global limit. */
  readonly owner: string
  /** Other facts of a composite key, joined injectively; `` if there are none. */
  readonly detail: string
  /**
   * Integers, 1 ≤ min ≤ max. A check sets both to its cost. A lease takes up to `max`; units above `min` are on lease
   * until a `give` settles them, if the limit tracks leases (`holdTicks`).
   */
  readonly min: number
  readonly max: number
  readonly kind: ChargeKind
  /**
   * Pair id: groups the charges of both versions of a rule under rollout. An integer from 1 to 65,535. Every
   * counterfactual charge has one.
   */
  readonly pair?: number | undefined
}

/**
 * enforce: short of `min`, the whole take is refused.
 * shadow: never refuses; counted only if the take is granted.
 * force: always charged, into debt if necessary; `short` reports whether it was over.
 * hold: takes units on lease only, for no request. Never refuses; may grant 0 units.
 * counterfactual: the version of a rule that is not enforced. Never refuses. All of one pair are charged, whether or
 *   not the take is granted, if none of them is short and no enforce charge outside of the pair is. A bucket that does
 *   not exist starts with the state of the live bucket (`limit.seed`) before the take, and is stored in any case.
 */
export type ChargeKind = 'enforce' | 'shadow' | 'force' | 'hold' | 'counterfactual'

/** Whether a charge that is short refuses the whole take. */
export function isBinding(kind: ChargeKind): boolean {
  return kind === 'enforce'
}

/** Names a take, so that it can be renewed or released: the permit of a concurrency limit. */
export type Op = { readonly id: string }

/** All or nothing: a take that one charge refuses changes no bucket, except by `force` and `counterfactual`. */
export type Take = {
  readonly charges: readonly Charge[]
  readonly op?: Op | undefined
  /** Given first, in the same round trip, whether or not the take is granted. Used by leases. */
  readonly gives?: readonly Give[] | undefined
  /**
   * Buckets to reset first, whether or not the take is granted. Atomic with the take if all buckets have one owner;
   * otherwise one step per target.
   */
  readonly resets?: readonly BucketName[] | undefined
  /** Store time that earlier requests of the same check took; the deadline covers all of them. */
  readonly spent?: SpentTime | undefined
  /**
   * Monotonic time at which the caller gives up: rejects with DEADLINE_EXCEEDED, and nothing is taken. 0: decides
   * without asking the store.
   */
  readonly expiresMs?: number | undefined
  /** Called by the store when it writes the request to its connection, each time. */
  readonly onSent?: (() => void) | undefined
}

/** Time that stores took to answer, without stalls of this process. Requests of one check share it, and add to it. */
export type SpentTime = { ms: number }

/** now: retry later. never: the cost exceeds the capacity. stale_rules: a newer edit of the rule wrote the bucket. */
export type Short = false | 'now' | 'never' | 'stale_rules'

/** Result of one charge. Times are relative; `Infinity` if waiting will not help. */
export type Grant = {
  /** Units charged; 0 when the take was refused. */
  readonly units: number
  readonly short: Short
  /** Units left, at least 0, after this take. */
  readonly remaining: number
  /** Time until the bucket is full. */
  readonly resetAfterUs: number
  /** Time until `min` units are available after this take: when the same request passes. 0 if it would now. */
  readonly retryAfterUs: number
  /** Delay before an admitted request should proceed (leaky bucket). */
  readonly delayUs: number
  /** Booking time of units from a lease; undefined if they were booked by this take. */
  readonly bookedUs?: number | undefined
  /** Lower bound of the store time at which units from a lease were spent; a give counts their age from here. */
  readonly spentUs?: number | undefined
  /** Sublimit that was charged instead of the limit; a give must name it. */
  readonly sublimit?: Limit
  /** Source and time of this charge, if the take was scattered. */
  readonly at?: Pick<Taken, 'source' | 'nowUs'> | undefined
}

/** Longest time that a node may refuse without asking the store: another may have refunded or reset the bucket. */
export const REFUSAL_MS = 200

/** Source of a decision. */
export type Source = 'store' | 'lease' | 'local' | 'policy'

/**
 * Reasons for which `on_fail` decides instead of the store. timeout: no reply within the deadline. unavailable: the
 * request failed. breaker_open, drill: the circuit breaker is open, after failures or on purpose. store_full: no room
 * for a new bucket. too_many_waiting: the cap on waiting requests. closing: the store was closed meanwhile.
 */
export const POLICY_REASONS = [
  'timeout',
  'unavailable',
  'breaker_open',
  'drill',
  'store_full',
  'too_many_waiting',
  'closing',
] as const
export type PolicyReason = (typeof POLICY_REASONS)[number]

export type Taken = {
  readonly granted: boolean
  /** Store time at which the units were booked. */
  readonly nowUs: number
  /** In the order of the charges. */
  readonly grants: readonly Grant[]
  readonly source: Source
  /** Set if `on_fail` decided, for at least one charge. */
  readonly policyReason?: PolicyReason | undefined
  /** Every permit was already held and has been renewed. */
  readonly replayed: boolean
  /** Undoes a take that was decided without the store, if another store refuses the request. */
  readonly undo?: (() => void) | undefined
  /** A peek that may have been read from a replica, which may lag. */
  readonly stale?: boolean | undefined
}

/** Grant for a bucket that was not charged because another one refused. */
export const NOT_CHARGED: Grant = { units: 0, short: false, remaining: 0, resetAfterUs: 0, retryAfterUs: 0, delayUs: 0 }

/** Source and time of one charge of a take. */
export function decidedAt(taken: Taken, grant: Grant): Pick<Taken, 'source' | 'nowUs'> {
  return grant.at ?? taken
}

export type Give = {
  readonly limit: Limit
  readonly owner: string
  readonly detail: string
  /** Negative: debt. */
  readonly units: number
  /** `nowUs` of the take that booked the units: windows and logs find them by it, token buckets discount their age. */
  readonly bookedUs: number
  /** Booking time of the lease that the units came from, on this node. */
  readonly leasedUs?: number | undefined
  /** The units may have been taken through another node, so only the store itself can accept them. */
  readonly remote?: boolean
  /** Units no longer on lease, returned or spent; 0 by default. */
  readonly settled?: number
}

/**
 * Idempotency key of a give. The store keeps the id for `ttlUs` from the newest booking among the gives, writes it
 * atomically with them, and rejects the give as expired after that time.
 */
export type IdempotencyKey = { readonly id: string; readonly ttlUs: number }

/** repeated: a give with this key succeeded before. expired: the TTL is over. Nothing was given in either case. */
export type GiveResult = 'given' | 'repeated' | 'expired'

/** Time until which a store remembers and accepts a give. */
export function untilUs(gives: readonly Give[], { ttlUs }: IdempotencyKey): number {
  return ttlUs + gives.reduce((newest, { bookedUs }) => Math.max(newest, bookedUs), 0)
}

/** Result of a scattered give: each target keeps its own idempotency keys. */
export function mergeGiveResults(outcomes: readonly GiveReply[]): GiveResult {
  const all = outcomes.map((outcome) => outcome ?? 'given')
  return all.find((outcome) => outcome === 'given') ?? all.find((outcome) => outcome === 'expired') ?? all[0] ?? 'given'
}

/** A permit needs an op id, or it could not be renewed or released. */
export function requireOp({ charges, op }: Take): void {
  const permit = op === undefined && charges.find(({ limit }) => hasPermits(limit))
  if (permit) throw optionInvalid('op', op, `name the permit: ${permit.limit.id} is a concurrency limit`)
}

/** Stores without idempotency keys return nothing. */
// biome-ignore lint/suspicious/noConfusingVoidType: third-party stores may return nothing
export type GiveReply = GiveResult | void

export type BucketName = Pick<Charge, 'limit' | 'owner' | 'detail'>

export interface Store {
  /** Names of the other stores that rules can be pinned to. */
  readonly named?: readonly string[]
  take(take: Take): Taken | Promise<Taken>
  /** Like `take`, without a round trip; absent, or returns undefined, if one is needed. */
  takeSync?(take: Take): Taken | undefined
  /**
   * Returns units, never above full. With an op id: releases that permit. Safe to retry only with an idempotency key.
   * Rejects if the store does not reply.
   */
  give(gives: readonly Give[], opId?: string, idempotencyKey?: IdempotencyKey): GiveReply | Promise<GiveReply>
  /**
   * Whether a take of these charges would be granted, with the current numbers; charges nothing. `mayBeStale` allows a
   * read from a replica. `expiresMs`: when the caller gives up, as in `Take`.
   */
  peek(charges: readonly Charge[], mayBeStale?: boolean, expiresMs?: number): Taken | Promise<Taken>
  /** Deletes the bucket: the next request finds it full. */
  reset(bucket: BucketName): void | Promise<void>
  /** Region stores: sublimit of `whole` with this id, as named by a `Grant`. */
  sublimit?(whole: Limit, id: string): Limit | undefined
  /** Region stores: reason why regions cannot share this limit, or undefined. */
  refusesSpread?(limit: Limit): string | undefined
  /** Time of day minus store time; 0 if absent. */
  wallAheadUs?(): number
  /** Store time of the newest reply, in microseconds; 0 before the first one. Absent if unknown. */
  lastUs?(): number
  /** Gauges and totals for metrics, with those of wrapped stores. `storeStats` fills in the others. */
  stats?(): SomeStats
  close(): Promise<void>
}
