// Decides whether a change makes a rule refuse more. Errs towards yes: a change that cannot be compared counts as
// tighter.

import { isDeepStrictEqual } from 'node:util'
import { canaryProblem, hasPermits, isPairable, parseRules, type Rule, type RuleLimit } from 'sluice'
import type { PlainRule } from '../rules/changes.ts'
import type { Proposal, ProposedChange } from './proposal.ts'

/** null: the rule does not exist. */
export function tightens(before: Rule | null, after: Rule | null): boolean {
  if (after === null || !after.enabled || after.mode === 'shadow') return false
  if (before === null || !before.enabled || before.mode === 'shadow') return true
  const [old, fresh] = [limitsByPlan(before), limitsByPlan(after)]
  const plans = new Set([...Object.keys(old), ...Object.keys(fresh)])
  if ([...plans].some((plan) => isTighter(old[plan] ?? before.limits, fresh[plan] ?? after.limits))) return true
  return differsElsewhere(before, after)
}

function differsElsewhere(before: Rule, after: Rule): boolean {
  const fields = new Set([...Object.keys(before), ...Object.keys(after)]) as Set<keyof Rule>
  return [...fields].some((field) => !NOT_COMPARED.has(field) && !isDeepStrictEqual(before[field], after[field]))
}

/** The empty plan stands for all plans without numbers of their own. */
function limitsByPlan({ limits, by_plan }: Rule): Readonly<Record<string, readonly RuleLimit[]>> {
  return { '': limits, ...by_plan }
}

/** Fields that no decision depends on. */
const NOTES: ReadonlySet<string> = new Set([
  'rule_id',
  'name',
  'description',
  'created_at',
  'updated_at',
  'version',
] satisfies (keyof Rule)[])

/** Fields compared above, and notes. A difference in any other field counts as tighter. */
const NOT_COMPARED: ReadonlySet<string> = new Set([
  ...NOTES,
  'limits',
  'by_plan',
  'intent', // its effect on on_fail is in that field
  'mode',
  'enabled',
])

function isTighter(before: readonly RuleLimit[], after: readonly RuleLimit[]): boolean {
  return after.some((limit) => {
    const old = before.find(({ name }) => name === limit.name) ?? (before.length === 1 ? before[0] : undefined)
    if (old === undefined) return true // a limit that did not exist
    const slower = limit.limit * old.window_seconds < old.limit * limit.window_seconds
    return slower || limit.limit < old.limit || (limit.burst ?? limit.limit) < (old.burst ?? old.limit)
  })
}

export function parsedRule(rule: PlainRule | null): Rule | null {
  return rule === null ? null : (parseRules([rule])[0] ?? null)
}

/**
 * A tightening of a rule that had `intent: abuse` before is never reverted: a flood must not undo the defence. A change
 * cannot make itself exempt: the intent before it counts.
 */
export function isDefence({ base, rule }: Pick<ProposedChange, 'base' | 'rule'>): boolean {
  const [before, after] = [parsedRule(base), parsedRule(rule)]
  return before?.intent === 'abuse' && after?.intent === 'abuse' && tightens(before, after)
}

/** Whether the guard must not revert this change. A direct edit was assessed when it was made. */
export function isExempt({ kind }: Pick<Proposal, 'kind'>, change: ProposedChange): boolean {
  return kind === 'edit' && change.judged !== undefined ? change.defence === true : isDefence(change)
}

/** Whether any decision can depend on the difference. */
export function affectsDecisions(before: PlainRule | null, after: PlainRule | null): boolean {
  const [old, fresh] = [parsedRule(before), parsedRule(after)]
  if (old === null || fresh === null) return old !== fresh
  const names = new Set([...Object.keys(old), ...Object.keys(fresh)]) as Set<keyof Rule>
  return [...names].some((name) => !NOTES.has(name) && !isDeepStrictEqual(old[name], fresh[name]))
}

/**
 * Whether one newly denied request per key may be ignored as a difference in refill phase: it is at most `points` % of
 * the old limit, or of the old burst if that is smaller and changes, so no loss above the threshold is hidden.
 */
export function forgivesPhase({ base, rule }: Pick<ProposedChange, 'base' | 'rule'>, points: number): boolean {
  const before = parsedRule(base)
  if (before === null) return false
  const bursts = new Set(burstsOf(parsedRule(rule)))
  const cost = typeof before.cost === 'number' ? before.cost : Number.POSITIVE_INFINITY
  const limits = Object.values(limitsByPlan(before)).flat()
  return limits.every(({ limit, burst = limit }) => {
    const units = bursts.has(burst) ? limit : Math.min(limit, burst)
    return (100 * cost) / units <= points
  })
}

function burstsOf(rule: Rule | null): number[] {
  return rule === null
    ? []
    : Object.values(limitsByPlan(rule)).flatMap((limits) => limits.map(({ limit, burst = limit }) => burst))
}

/** A field that hides a change from the guard, and why. */
export type BlindSpot = { readonly field: keyof Rule; readonly why: string }

/** Reason that requests cannot be charged to both versions; undefined if they can. */
export function unpairableReason(change: Pick<ProposedChange, 'base' | 'rule'>): string | undefined {
  return unpairable(change)?.why
}

function unpairable({ base, rule }: Pick<ProposedChange, 'base' | 'rule'>): BlindSpot | undefined {
  const found = [base, rule].map(parsedRule).find((one) => one !== null && !isPairable(one))
  if (found == null) return undefined
  if (hasPermits(found)) return { field: 'algorithm', why: `the algorithm ${found.algorithm} cannot be charged twice` }
  if (found.consistency === 'local') return { field: 'consistency', why: 'a local rule is not in the store' }
  if (found.shards > 1) return { field: 'shards', why: 'a rule with shards has several buckets per key' }
  return { field: 'spread', why: 'a rule with spread: global has a bucket per region' }
}

/**
 * Field that keeps the guard from seeing requests that an edit may newly refuse; undefined if the edit can only refuse
 * less, or if the guard sees them all. Errs towards a blind spot. `others`: the other rules of the groups of the rule.
 */
export function blindSpot(
  change: Pick<ProposedChange, 'base' | 'rule'>,
  others: readonly PlainRule[],
): BlindSpot | undefined {
  const [before, after] = [parsedRule(change.base), parsedRule(change.rule)]
  const inGroup = groupSpot(before, after, others)
  if (inGroup !== undefined) return inGroup
  if (!tightens(before, after)) return undefined
  return unpairable(change) ?? keySpot(before, after)
}

/** Fields that decide which rule of a group applies to a request. */
const CHOOSING: readonly (keyof Rule)[] = [
  'group',
  'priority',
  'enabled',
  'endpoint_pattern',
  'method',
  'plan',
  'when',
  'expires_at',
  'mode',
  'enforce_at',
]

/** Then another rule applies with the change than without it, and the guard compares one rule only. */
function groupSpot(before: Rule | null, after: Rule | null, others: readonly PlainRule[]): BlindSpot | undefined {
  const isIn = (rule: Rule | null) => rule?.enabled === true && rule.group !== undefined
  const groups = [before, after].flatMap((rule) => (isIn(rule) ? (rule?.group ?? []) : []))
  const rivals = others
    .map(parsedRule)
    .filter((rule) => rule !== null)
    .filter((rule) => isIn(rule) && groups.includes(rule.group ?? ''))
    .filter((rule) => [before, after].some((one) => one !== null && mayOverlap(one, rule)))
  // Without the rule, only those that it outranked apply.
  const isGone = after === null || !after.enabled
  const outranked = rivals.some(({ priority }) => priority <= (before?.priority ?? 0))
  if (rivals.length === 0 || (isGone && !outranked)) return undefined
  const field = CHOOSING.find((name) => !isDeepStrictEqual(before?.[name], after?.[name]))
  return field && { field, why: 'another rule of its group may apply instead, which is not compared' }
}

/** Whether a request may match both rules. Errs towards yes. */
function mayOverlap(one: Rule, other: Rule): boolean {
  const isLiteral = ({ endpoint_pattern: path }: Rule) => !/[*:{]/.test(path)
  if (isLiteral(one) && isLiteral(other) && one.endpoint_pattern !== other.endpoint_pattern) return false
  if (one.plan !== undefined && other.plan !== undefined && one.plan !== other.plan) return false
  return one.method.length === 0 || other.method.length === 0 || one.method.some((name) => other.method.includes(name))
}

/** Requests without the facts of the old key are not compared. */
function keySpot(before: Rule | null, after: Rule | null): BlindSpot | undefined {
  if (before === null || after === null || !before.enabled || before.mode === 'shadow') return undefined
  const dropped = before.scope.find((fact) => !after.scope.includes(fact))
  if (dropped !== undefined) return { field: 'scope', why: `requests without ${dropped} have no old key to compare` }
  if (after.on_missing === before.on_missing || after.on_missing === 'skip' || after.scope.length === 0)
    return undefined
  return { field: 'on_missing', why: 'requests without the key are not compared' }
}

/** Rules that have a global bucket, before or after: their changes cannot apply to a share of the keys. */
export function canaryProblems(
  changes: readonly ProposedChange[],
): readonly { readonly ruleId: string; readonly why: string }[] {
  return changes.flatMap(({ ruleId, base, rule }) => {
    const versions = [base, rule].map(parsedRule).filter((one) => one !== null)
    const why = versions.map(canaryProblem).find((one) => one !== undefined)
    return why === undefined ? [] : [{ ruleId, why }]
  })
}

/** Whether the rule has a global bucket: then all requests are paired, or none. */
export function isShared({ base, rule }: Pick<ProposedChange, 'base' | 'rule'>): boolean {
  const decides = parsedRule(base) ?? parsedRule(rule)
  return decides !== null && canaryProblem(decides) !== undefined
}
