// Share of a rule's traffic that both versions decide: bounded, so that the guard costs the store little, and leases
// keep deciding everything else.

import { PAIR_SHARE_FIRST, type Proposal, type ProposedChange } from './proposal.ts'
import { isShared } from './tightens.ts'

/** Approximate cap on the pairs per second of one rule, over all nodes. */
const PAIRS_PER_SECOND = 500
/** Request rate of a global bucket above which only a spot check of its requests is paired. */
const SHARED_PER_SECOND = 2 * PAIRS_PER_SECOND
/** Request rate of a global bucket above which none of its requests are paired. */
const SPOT_CHECKED_PER_SECOND = 10 * SHARED_PER_SECOND
/** Pairs of a spot check: enough to see a gross mistake, such as a limit of 0. */
const SPOT_CHECK_PAIRS = 1000
/** Time in which nodes count such requests before they pair them. */
const MEASURED_MS = 3000
const SHARE_MIN = 0.001
const RAISE = 4
/** Budget per rule: one pair per 50 checks. A pair costs Redis about five checks, so this adds about 10 % load. */
const CHECKS_PER_PAIR = 50

export type RuleLoad = {
  /** Checks per second of all rules, over all nodes. */
  readonly checksPerSecond: number
  /** Pairs per second that the guard needs. */
  readonly neededPerSecond: number
  /** Whether the share of newly denied pairs is above the threshold. It may be too few keys to act on. */
  readonly isSuspect: boolean
}

/** Pairs per second to aim at: few, unless the change seems to harm clients. */
export function wantedPairs({ checksPerSecond, neededPerSecond, isSuspect }: RuleLoad): number {
  if (isSuspect) return PAIRS_PER_SECOND
  const enough = (RAISE + 1) * neededPerSecond // the share is raised only below a quarter of the aim
  return Math.min(PAIRS_PER_SECOND, Math.max(enough, checksPerSecond / CHECKS_PER_PAIR))
}

/**
 * Share of keys to pair next. Changes in large steps only: each change reaches all nodes. A change that seems to harm
 * clients gets as many keys as the pairs allow, because a few busy keys make many pairs and prove nothing.
 */
export function nextPairShare(share: number, pairsPerSecond: number, wanted: number, isSuspect = false): number {
  if (pairsPerSecond > 2 * wanted) return Math.max(SHARE_MIN, (share * wanted) / pairsPerSecond)
  if (pairsPerSecond >= (isSuspect ? wanted : wanted / RAISE)) return share
  return Math.min(1, share * Math.min(RAISE, (2 * wanted) / pairsPerSecond))
}

export type SharedLoad = {
  /** Requests to the bucket, paired or not; 0 while no node has reported any. */
  readonly perSecond: number
  /** Pairs that are known. */
  readonly pairs: number
  /** Whether any request was paired in this attempt. */
  readonly wasPaired: boolean
  readonly elapsedMs: number
}

/**
 * Share for a global bucket: 0 or 1, because a counterfactual must see all requests. Once off, it stays off
 * until the rollout is tried again: the counterfactual bucket has missed requests.
 */
export function nextSharedPairShare(share: number, { perSecond, pairs, wasPaired, elapsedMs }: SharedLoad): 0 | 1 {
  if (perSecond > SPOT_CHECKED_PER_SECOND) return 0
  if (share > 0) return perSecond > SHARED_PER_SECOND && pairs >= SPOT_CHECK_PAIRS ? 0 : 1
  return perSecond > 0 && !wasPaired && elapsedMs >= MEASURED_MS ? 1 : 0
}

/** Reason that requests of the bucket are not compared; undefined if they are, or will be. */
export function tooBusyReason(share: number, { perSecond, wasPaired }: SharedLoad): string | undefined {
  if (share > 0 || !(wasPaired || perSecond > SPOT_CHECKED_PER_SECOND)) return undefined
  return `too many requests in one bucket to compare (at most ${SHARED_PER_SECOND} a second)`
}

/** Share of keys of one rule that both versions decide. The load of a global bucket is measured first. */
export function pairShareOf(
  { guard, pairShares }: Pick<Proposal, 'guard' | 'pairShares'>,
  change: ProposedChange,
): number {
  if (guard === 'off') return 0
  return pairShares[change.ruleId] ?? (isShared(change) ? 0 : PAIR_SHARE_FIRST)
}
