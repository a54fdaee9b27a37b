// One check of several subjects, all or nothing over all of them: their charges become one take. Subjects that share a
// bucket charge it once, with the larger cost, because they describe one request.

import { type Decision, type DecisionContext, LimiterDecision, withoutStore } from './decision.ts'
import { andThen, type MaybePromise } from './maybe-promise.ts'
import { type ChargedPair, ChargeSet, PairedCharge, PairedChargeSet } from './rules/charge-set.ts'
import type { CompiledLimit } from './rules/compile.ts'
import { type AppliedExceptions, NOTHING_APPLIED } from './rules/exception.ts'
import { type Charge, isBinding, NOT_CHARGED, type Taken } from './store/store.ts'

/** Decision about several subjects at once. */
export type JointDecision = {
  /** About the whole request; refund this one. */
  readonly decision: Decision
  /**
   * One decision per subject, in input order: refused if one of its own limits was short. If the request is refused,
   * nothing was taken, also for subjects that are allowed here. Refund the joint decision, not these.
   */
  readonly decisions: readonly Decision[]
  /** Index of the subject whose limit decided. */
  readonly decidedBy: number
}

type Joined = {
  readonly whole: ChargeSet
  /** Index in `whole` of each charge of each set. */
  readonly places: readonly (readonly number[])[]
}

export function decideJointly(
  context: DecisionContext,
  sets: readonly ChargeSet[],
  take: (whole: ChargeSet) => MaybePromise<Taken>,
  requestId: string | undefined,
): MaybePromise<JointDecision> {
  const { whole, places } = joined(sets)
  return andThen(withoutStore(whole) ?? take(whole), (taken) => {
    const decision = new LimiterDecision(context, whole, taken, requestId ?? whole.op?.id)
    const decisions = sets.map((set, index) => {
      return new LimiterDecision(context, set, takenBy(set, places[index] ?? [], taken), requestId ?? whole.op?.id)
    })
    const { allowed, ruleId } = decision
    const decidedBy = decisions.findIndex((one) => one.allowed === allowed && one.ruleId === ruleId)
    return { decision, decisions, decidedBy: Math.max(0, decidedBy) }
  })
}

/** The grants of one set. If a ban refused the request without the store, no charge was evaluated. */
function takenBy(set: ChargeSet, places: readonly number[], taken: Taken): Taken {
  const grants = places.map((place) => taken.grants[place] ?? NOT_CHARGED)
  const isShort = grants.some((grant, index) => {
    const kind = set.charges[index]?.kind
    return grant.short !== false && kind !== undefined && isBinding(kind)
  })
  // Without `undo`: only the whole take can be undone.
  const { nowUs, source, policyReason, replayed } = taken
  return { granted: !isShort && !isBanned(set), nowUs, source, policyReason, replayed, grants }
}

function joined(sets: readonly ChargeSet[]): Joined {
  const version = sets[0]?.version ?? 0
  const exceptions = appliedIn(sets)
  if (sets.some(isBanned)) {
    return { whole: new ChargeSet([], [], undefined, version, exceptions), places: sets.map(indexes) }
  }
  const charges: Charge[] = []
  const limits: CompiledLimit[] = []
  const pairs: ChargedPair[] = []
  const places = sets.map((set) => {
    // Assigns new pair ids: two subjects under one rule have the same id, but are two pairs.
    const ids = newPairIds(set, pairs)
    return set.charges.map((charge, index) => {
      const joint = withPairId(charge, ids)
      const same = charges.findIndex((other) => isSameBucket(other, joint))
      if (same >= 0) {
        if ((charges[same] as Charge).min < joint.min) charges[same] = joint
        return same
      }
      limits.push(set.limits[index] as CompiledLimit) // one per charge: subjects with a bypass token are rejected
      return charges.push(joint) - 1
    })
  })
  const op = sets.find((set) => set.op !== undefined)?.op
  const whole = new ChargeSet(charges, limits, op, version, exceptions)
  return { whole: pairs.length === 0 ? whole : new PairedChargeSet(whole, pairs), places }
}

/** Whether a ban of the key refuses the request without a rule. */
function isBanned({ charges, exceptions }: ChargeSet): boolean {
  return charges.length === 0 && exceptions.banned
}

function indexes({ charges }: ChargeSet): number[] {
  return charges.map((_, index) => index)
}

/** Adds the pairs of a set to `pairs` and assigns new pair ids. Returns the new id of each. */
function newPairIds(set: ChargeSet, pairs: ChargedPair[]): ReadonlyMap<number, number> {
  const ids = new Map<number, number>()
  if (!(set instanceof PairedChargeSet)) return ids
  for (const pair of set.pairs) {
    ids.set(pair.pair, pairs.length + 1)
    pairs.push({ ...pair, pair: pairs.length + 1 })
  }
  return ids
}

function withPairId(charge: Charge, ids: ReadonlyMap<number, number>): Charge {
  const id = charge.pair === undefined ? undefined : ids.get(charge.pair)
  if (id === undefined) return charge
  const { limit, owner, detail, min, kind } = charge
  return new PairedCharge(limit, owner, detail, min, kind, id)
}

function isSameBucket(a: Charge, b: Charge): boolean {
  return a.owner === b.owner && a.detail === b.detail && a.limit === b.limit && a.kind === b.kind
}

function appliedIn(sets: readonly ChargeSet[]): AppliedExceptions {
  const applied = sets.map(({ exceptions }) => exceptions).filter((one) => one !== NOTHING_APPLIED)
  const [first] = applied
  if (first === undefined || applied.length === 1) return first ?? NOTHING_APPLIED
  return {
    list: applied.flatMap(({ list }) => list),
    status: applied.find(({ status }) => status !== undefined)?.status,
    banned: applied.some(({ banned }) => banned),
  }
}
