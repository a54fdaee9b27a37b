// Explains, rule by rule, why a rule does not match a request. Tests each rule by itself instead of using the index, so
// it is slow but independent; a property test compares the two.

import { foldedCase } from '../canonical/path-readings.ts'
import type { Subject } from '../subject.ts'
import type { CompiledLimit, CompiledRule, Variant } from './compile.ts'
import { type Condition, readerOf, withHead } from './condition.ts'
import type { AppliedException } from './exception.ts'
import { onePerGroup } from './groups.ts'
import { describeLimit } from './most-per-window.ts'
import { isWild, segmentsOf } from './pattern.ts'
import type { Rule, RuleCondition } from './rule.ts'

/** Reasons that a rule does not charge a request, in the order of evaluation. Closed list, see http-api.md. */
export const REASONS = [
  'disabled',
  'layer',
  'path',
  'method',
  'plan',
  'when',
  'expired',
  'kill_switch',
  'rollout',
  'group',
  'missing_fact',
  'unlimited',
  'exempt',
  'barred',
  'bypassed',
] as const

export type Reason = (typeof REASONS)[number]

/** Effect of one rule on a request. */
export type RuleExplanation = {
  readonly ruleId: string
  /** null: the rule applies, and its limits are among the outcomes. */
  readonly reason: Reason | null
  /** The version for this request, if the rule is under rollout. */
  readonly variant?: Variant
  /** The fact that is missing or different, if that is the reason. */
  readonly fact?: string
  /** Human-readable. */
  readonly detail: string
}

/** Reason of a rule under rollout that the version for this key removes, or does not have yet. */
export const LEFT_OUT: Mismatch = { reason: 'rollout', detail: 'the version for this key has no such rule' }

export type Mismatch = Omit<RuleExplanation, 'ruleId'>

/** Undefined if the rule by itself matches the request. `readings` are the readings of its path. */
export function mismatchOf(
  rule: Rule,
  compiled: CompiledRule | undefined,
  subject: Subject,
  readings: readonly string[],
  nowUs: number,
): Mismatch | undefined {
  if (!rule.enabled) return { reason: 'disabled', detail: 'enabled is false' }
  if (compiled === undefined) return layerMismatch(rule)
  return (
    pathMismatch(rule, readings) ??
    methodMismatch(rule, subject) ??
    conditionMismatch(rule, compiled.conditions, subject) ??
    expiryMismatch(rule, compiled, nowUs)
  )
}

/** An enabled rule that is not compiled belongs to the other layer. */
function layerMismatch({ enforce_at: at }: Rule): Mismatch {
  return { reason: 'layer', detail: `enforce_at is ${at}, which is not the layer of this limiter` }
}

/** A rule matches if it matches any reading of the path. */
function pathMismatch({ endpoint_pattern: pattern }: Rule, readings: readonly string[]): Mismatch | undefined {
  if (readings.some((path) => coversPath(pattern, path))) return undefined
  return { reason: 'path', detail: `${pattern} does not match ${readings[0]}` }
}

/** `path` is a reading: canonical, with case folded. */
export function coversPath(pattern: string, path: string): boolean {
  const found = path === '/' ? [] : segmentsOf(path)
  const wanted = pattern === '/' ? [] : segmentsOf(foldedCase(pattern))
  const rest = wanted.indexOf('**')
  const fixed = rest === -1 ? wanted : wanted.slice(0, rest)
  const longEnough = rest === -1 ? found.length === fixed.length : found.length >= fixed.length
  return longEnough && fixed.every((segment, index) => isWild(segment) || segment === found[index])
}

function methodMismatch({ method: wanted }: Rule, { method }: Subject): Mismatch | undefined {
  if (wanted.length === 0 || (method && withHead(wanted).includes(method.toUpperCase()))) return undefined
  return { reason: 'method', detail: `it is for ${wanted.join(', ')}, and the request has ${method || 'no method'}` }
}

function conditionMismatch(rule: Rule, conditions: readonly Condition[], subject: Subject): Mismatch | undefined {
  const failing = conditions.find((condition) => !condition.holds(subject))
  if (failing === undefined) return undefined
  const { fact } = failing
  const found = readerOf(fact)(subject)
  const has = found === undefined ? 'none' : JSON.stringify(found)
  if (rule.plan !== undefined && failing === conditions.at(-1)) {
    return { reason: 'plan', fact, detail: `it is for the plan ${rule.plan}, and the request has ${has}` }
  }
  return {
    reason: 'when',
    fact,
    detail: `${fact} must be ${describeCondition(rule.when[fact] ?? [])}, and the request has ${has}`,
  }
}

function describeCondition(condition: RuleCondition): string {
  return 'not' in condition ? `other than ${condition.not.join(', ')}` : condition.join(' or ')
}

function expiryMismatch(rule: Rule, { expiresUs }: CompiledRule, nowUs: number): Mismatch | undefined {
  return expiresUs > nowUs ? undefined : { reason: 'expired', detail: `it expired at ${rule.expires_at}` }
}

/** Matching rules that apply: one of each group, per reading of the path. */
export function explainGroups(
  matched: readonly CompiledRule[],
  readings: readonly string[],
  why: Map<string, Mismatch>,
): ReadonlySet<CompiledRule> {
  const chosen = new Set(
    readings.flatMap((path) => onePerGroup(matched.filter(({ rule }) => coversPath(rule.endpoint_pattern, path)))),
  )
  for (const { id, group, shadow } of matched.filter((rule) => !chosen.has(rule))) {
    const better = [...chosen].find((rule) => rule.group === group && rule.shadow === shadow)
    why.set(id, { reason: 'group', detail: `in group ${group}, ${better?.id} has priority` })
  }
  return chosen
}

/** Explains a rule that applies with these limits. */
export function applies(limits: readonly CompiledLimit[], applied: readonly AppliedException[]): Mismatch {
  const text = limits.map(({ limit }) => describeLimit(limit)).join('; ')
  const by = applied.length === 0 ? '' : ` (${applied.map(describeException).join(', ')})`
  return { reason: null, detail: `${['it applies', text].filter((part) => part !== '').join(': ')}${by}` }
}

/** Explains why a matching rule charges nothing. */
export function chargesNothing(rule: CompiledRule, subject: Subject, applied: readonly AppliedException[]): Mismatch {
  const [exemption] = applied
  if (exemption !== undefined) return { reason: 'exempt', detail: describeException(exemption) }
  const limits = rule.limitsByPlan.get(subject.plan ?? '') ?? rule.limits
  if (limits.length === 0) return { reason: 'unlimited', detail: 'it sets no limit for this request' }
  const fact = rule.owner(subject) === undefined ? (rule.rule.scope[0] ?? '') : rule.rule.scope.slice(1).join(', ')
  return { reason: 'missing_fact', fact, detail: `the request has no ${fact}, and on_missing is ${rule.onMissing}` }
}

/** The rules as explained, except those that a bypass token left out. */
export function withBypasses(
  rules: readonly RuleExplanation[],
  exceptions: readonly AppliedException[],
): RuleExplanation[] {
  return rules.map((rule) => {
    const bypass = exceptions.find(({ kind, ruleId }) => kind === 'bypass' && ruleId === rule.ruleId)
    const detail = `bypass token ${bypass?.id} is charged instead`
    return bypass === undefined ? rule : { ruleId: rule.ruleId, reason: 'bypassed', detail }
  })
}

/** `override o1: limit 5`, `signal scraping: factor 0.2`, `global factor 0.5`. */
function describeException({ kind, id, effect }: AppliedException): string {
  if (kind === 'factor' && 'factor' in effect) return `global factor ${effect.factor}`
  const [name, value] = Object.entries(effect)[0] ?? []
  return `${kind} ${id}: ${name === 'exempt' ? 'exempt' : `${name} ${value}`}`
}
