// Sizes the share of one Envoy in one bucket: a token bucket that, over the whole lease, cannot pass more than the
// units that were paid for it.

import type { Strategy } from './messages.ts'

/** Lease of an assignment: several reports long, because Envoy reports every 5 s and reconnects as slowly. */
export const LEASE_SECONDS = 15

export type TokenShare = Exclude<Strategy, { blanket: string }>

/** Share of the paid units that refills, rather than being available at once. */
const REFILLED = 0.75
/** Fewer units cannot be assigned: one at the start and one refill. */
export const UNITS_MIN = 2
/** Largest number of tokens in the protocol. */
const TOKENS_MAX = 2 ** 32 - 1

/** Most requests that Envoy can pass with this share until its lease ends. */
export function mostPassed({ maxTokens, tokensPerFill, fillSeconds }: TokenShare): number {
  return maxTokens + tokensPerFill * Math.ceil(LEASE_SECONDS / fillSeconds)
}

/** Units needed for a request rate during a lease, plus 25 % headroom. */
export function unitsFor(requestsPerSecond: number): number {
  return Math.max(UNITS_MIN, Math.min(TOKENS_MAX, Math.ceil(1.25 * requestsPerSecond * (LEASE_SECONDS + 2)) + 2))
}

/** Share for `units`; undefined below the minimum. */
export function shareOf(units: number): TokenShare | undefined {
  if (units < UNITS_MIN) return undefined
  const refilled = Math.max(1, Math.floor(units * REFILLED))
  const perSecond = Math.floor(refilled / LEASE_SECONDS)
  const fillSeconds = perSecond >= 1 ? 1 : Math.ceil(LEASE_SECONDS / Math.min(refilled, LEASE_SECONDS))
  const tokensPerFill = Math.max(1, perSecond)
  const maxTokens = units - tokensPerFill * Math.ceil(LEASE_SECONDS / fillSeconds)
  return maxTokens >= 1 ? { maxTokens, tokensPerFill, fillSeconds } : undefined
}

/**
 * Envoy compares token buckets by their tokens and the nanoseconds of the interval: it would ignore a change of only
 * the interval. One token less makes the change visible and passes no more.
 */
export function distinctFrom(share: TokenShare, before: TokenShare | undefined): TokenShare {
  const looksEqual = share.maxTokens === before?.maxTokens && share.tokensPerFill === before.tokensPerFill
  if (!looksEqual || share.fillSeconds === before.fillSeconds) return share
  return share.maxTokens > 1 ? { ...share, maxTokens: share.maxTokens - 1 } : before
}

/** Whether to keep the old share: Envoy keeps tokens in proportion, so frequent changes only add noise. */
export function isClose(one: TokenShare, other: TokenShare): boolean {
  const ratio = mostPassed(one) / mostPassed(other)
  return ratio > 0.8 && ratio < 1.25
}
