// Pairs: requests that were charged to both versions of a rule under rollout, and what each version decided.

import { type ChargedPair, type ChargeSet, PairedChargeSet } from './rules/charge-set.ts'
import type { CompiledLimit, Variant } from './rules/compile.ts'
import { type Charge, decidedAt, type Grant, NOT_CHARGED, type Taken } from './store/store.ts'

/** Decisions of both versions of a rule about one request. A request that another rule refuses is denied by both. */
export type Pair = {
  readonly ruleId: string
  /** Owner of the bucket, or the client if the bucket is global. */
  readonly owner: string
  readonly enforced: Variant
  readonly currentDenied: boolean
  readonly candidateDenied: boolean
}

export const NO_PAIRS: readonly Pair[] = []

/** Leaves out pairs of which the store did not evaluate every charge, such as answers by policy. */
export function pairsIn(chargeSet: ChargeSet, taken: Taken): readonly Pair[] {
  if (!(chargeSet instanceof PairedChargeSet) || taken.grants.some(({ short }) => short === 'stale_rules'))
    return NO_PAIRS
  const { charges, limits, pairs } = chargeSet
  return pairs.flatMap((pair) => pairIn(pair, charges, limits, taken) ?? [])
}

function pairIn(
  { ruleId, pair, owner, enforced }: ChargedPair,
  charges: readonly Charge[],
  limits: readonly CompiledLimit[],
  taken: Taken,
): Pair | undefined {
  const other = enforced === 'current' ? 'candidate' : 'current'
  const denied = { current: false, candidate: false, elsewhere: false }
  let evaluated = 0
  for (const [index, charge] of charges.entries()) {
    const grant = taken.grants[index] as Grant // one per charge
    const isOwn = charge.pair === pair
    if (isOwn && !isFromStore(taken, grant)) return undefined
    if (isOwn) evaluated += 1
    if (grant.short === false || limits[index]?.rule.shadow) continue
    if (!isOwn) denied.elsewhere ||= charge.kind === 'enforce'
    else if (charge.kind === 'counterfactual') denied[other] = true
    else denied[enforced] = true
  }
  if (evaluated === 0) return undefined
  const { current, candidate, elsewhere } = denied
  return { ruleId, owner, enforced, currentDenied: current || elsewhere, candidateDenied: candidate || elsewhere }
}

function isFromStore(taken: Taken, grant: Grant): boolean {
  return grant !== NOT_CHARGED && decidedAt(taken, grant).source === 'store'
}
