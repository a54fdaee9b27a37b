// The store contract: take, give, peek and reset over buckets. It is narrow so that a store can wrap another one (to
// hold leases, say, or to guard it), and `storeContract` of sluice/testing is the suite that every store runs.

import type { Limit } from '../algorithms/limit.ts'
import { optionInvalid } from '../errors.ts'

/**
 * What one limit asks of one bucket. The bucket is (limit.id, limit.fact, owner, detail): kept apart rather than
 * joined, because joining costs more than the rest of a check in memory, and because Redis groups buckets by owner.
 */
export type Charge = {
  readonly limit: Limit
  /** The first fact of the key: the user, the address; `` for a global limit. */
  readonly owner: string
  /** The other facts of a composite key, joined injectively; `` when there are none. */
  readonly detail: string
  /**
   * Integers, 1 ≤ min ≤ max. A check asks for its cost in both. A lease asks for up to `max`, and what it gets above
   * `min` is on lease until a `give` settles it, where the limit knows leases (`holdTicks`).
   */
  readonly min: number
  readonly max: number
  readonly kind: ChargeKind
}

/**
 * enforce: short of `min`, the whole take is refused.
 * shadow: never refuses; counted only if the take is granted.
 * force: always charged, into debt if need be, and tells whether it was over.
 * hold: for nobody yet: all units are on lease. Refuses nobody, and may get nothing.
 */
export type ChargeKind = 'enforce' | 'shadow' | 'force' | 'hold'

/** Whether a charge that is short refuses the whole take. */
export function isBinding(kind: ChargeKind): boolean {
  return kind === 'enforce'
}

/** Names a take, so that it can be renewed or released: the permit of a concurrency limit. */
export type Op = { readonly id: string }

/** All or nothing: a take that is refused by one charge changes no bucket (but for `force`). */
export type Take = {
  readonly charges: readonly Charge[]
  readonly op?: Op | undefined
  /** Given first, in the same message, and whether or not the take is granted. Leases send it to what they wrap. */
  readonly gives?: readonly Give[] | undefined
  /**
   * Buckets to forget first, in the same step and whether or not the take is granted: nobody finds them empty in
   * between. All of one owner, or it is one step for each place that they live in.
   */
  readonly resets?: readonly BucketName[] | undefined
  /** When whoever asks began to wait, by a clock that never steps: a deadline counts from there. */
  readonly askedMs?: number | undefined
}

/** now: wait and try again. never: the cost is above the capacity. stale_rules: a newer edit wrote the bucket. */
export type Short = false | 'now' | 'never' | 'stale_rules'

/** The answer to one charge. Times are relative; `Infinity` where waiting will not help. */
export type Grant = {
  /** Units charged; 0 when the take was refused. */
  readonly units: number
  readonly short: Short
  /** Units left, at least 0, after this take. */
  readonly remaining: number
  /** Until the bucket is as good as new. */
  readonly resetAfterUs: number
  /** Until `min` units can be had; 0 when they could be had now. */
  readonly retryAfterUs: number
  /** How long an admitted request should wait before it goes on (leaky bucket). */
  readonly delayUs: number
  /** When the units were booked, if that was before the take: they came out of a lease. */
  readonly bookedUs?: number | undefined
  /** Lower bound of the store time at which units of a lease were spent: a give counts their age from here. */
  readonly spentUs?: number | undefined
  /** The part that was charged of a bucket that is split: a give names it as its limit. */
  readonly part?: Limit
  /** Where and when this charge was decided, if the take was made in several places. */
  readonly at?: Pick<Taken, 'source' | 'nowUs'> | undefined
}

/** Where a decision was made. */
export type Source = 'store' | 'lease' | 'local' | 'policy'

export type Taken = {
  readonly granted: boolean
  /** Store time, at which all units of this take are booked. */
  readonly nowUs: number
  /** In the order of the charges. */
  readonly grants: readonly Grant[]
  readonly source: Source
  /** Every permit of this take was already held and has been renewed. */
  readonly replayed: boolean
  /** Of an answer that was given without the store: the request is refused elsewhere, so nothing is kept of it. */
  readonly undo?: (() => void) | undefined
  /** A peek that was read off a replica, or may have been: it may be behind. */
  readonly stale?: boolean | undefined
}

/** Said of a bucket that nobody asked about, when another one has refused the request. */
export const NOT_ASKED: Grant = { units: 0, short: false, remaining: 0, resetAfterUs: 0, retryAfterUs: 0, delayUs: 0 }

/** Where and when one charge of a take was decided. */
export function decidedAt(taken: Taken, grant: Grant): Pick<Taken, 'source' | 'nowUs'> {
  return grant.at ?? taken
}

export type Give = {
  readonly limit: Limit
  readonly owner: string
  readonly detail: string
  /** Negative: debt. */
  readonly units: number
  /** `nowUs` of the take that booked the units: windows and logs find them by it, buckets discount their age. */
  readonly bookedUs: number
  /** The units came out of a lease of this node, which was booked then. */
  readonly leasedUs?: number | undefined
  /** The units may have been taken through another node: only the store itself can take them back. */
  readonly remote?: boolean
  /** Units that are on lease no more: those that come back, and others that were spent. None unless it says so. */
  readonly settled?: number
}

/**
 * Names a give, so that it happens once. The store remembers the id for `lastsUs` from the newest booking among the
 * gives, written atomically with them, and refuses the give after that time.
 */
export type Once = { readonly id: string; readonly lastsUs: number }

/** repeated: a give of this id has happened before. expired: its time is over. Nothing was given in either case. */
export type Given = 'given' | 'repeated' | 'expired'

/** Until when a store remembers a give, and accepts it. */
export function untilUs(gives: readonly Give[], { lastsUs }: Once): number {
  return lastsUs + gives.reduce((newest, { bookedUs }) => Math.max(newest, bookedUs), 0)
}

/** The outcome of a give that was made in several places: each place has its own memory of the id. */
export function givenOf(outcomes: readonly Returned[]): Given {
  const all = outcomes.map((outcome) => outcome ?? 'given')
  return all.find((outcome) => outcome === 'given') ?? all.find((outcome) => outcome === 'expired') ?? all[0] ?? 'given'
}

/** A permit has to have a name, or nobody could renew or release it. */
export function requireOp({ charges, op }: Take): void {
  const permit = op === undefined && charges.find(({ limit }) => limit.algorithm === 'concurrency')
  if (permit) throw optionInvalid('op', op, `name the permit: ${permit.limit.id} is a concurrency limit`)
}

/** A store that does not know `once` returns nothing. */
// biome-ignore lint/suspicious/noConfusingVoidType: stores of others may be written without a return value
export type Returned = Given | void

export type BucketName = Pick<Charge, 'limit' | 'owner' | 'detail'>

export interface Store {
  /** Stores besides the default one that rules can be pinned to. */
  readonly named?: readonly string[]
  take(take: Take): Taken | Promise<Taken>
  /** The same as `take` when it can be answered without waiting; absent, or undefined, when the store must be asked. */
  takeSync?(take: Take): Taken | undefined
  /**
   * Returns units, never above full. With an op id: releases that permit. With `once` it is safe to retry, and tells
   * whether it happened; without, it is never retried. Rejects when the store does not answer.
   */
  give(gives: readonly Give[], opId?: string, once?: Once): Returned | Promise<Returned>
  /**
   * Whether a take of these would be granted, and the numbers as they stand; charges nothing. `mayBeStale`: who asks
   * only wants to tell somebody, so the answer may be that of a replica.
   */
  peek(charges: readonly Charge[], mayBeStale?: boolean): Taken | Promise<Taken>
  /** Forgets the bucket: the next request finds it full. */
  reset(bucket: BucketName): void | Promise<void>
  /** Where regions share limits: the part of a limit that has this id, as a `Grant` names it. */
  partOf?(whole: Limit, id: string): Limit | undefined
  /** Where limits can be shared between regions: why this one cannot be, or undefined. */
  refusesSpread?(limit: Limit): string | undefined
  /** How far the time of day is ahead of `nowUs` of its answers; absent: not at all. */
  wallAheadUs?(): number
  /** Numbers for metrics: gauges and totals by name. */
  stats?(): Readonly<Record<string, number>>
  close(): Promise<void>
}
