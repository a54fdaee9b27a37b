// What differs between two rule sets, rule by rule and field by field: for plans, answers and the audit.

import { isDeepStrictEqual } from 'node:util'
import { inSlices, type Sliced } from 'sluice'

/** A rule as people write it, as `plainRule` gives it. */
export type PlainRule = Readonly<Record<string, unknown>> & { readonly rule_id: string }

export type RuleChange = {
  readonly rule_id: string
  readonly change: 'created' | 'updated' | 'deleted'
  /** The rule, or the fields that differ; left out where there are too many changes to tell. */
  readonly before?: Readonly<Record<string, unknown>>
  readonly after?: Readonly<Record<string, unknown>>
}

/** Nobody reads more, and both sets are there to be compared again. */
const TOLD_MAX = 200
/** What the store keeps about a rule is no part of the rule. */
const NOTES: readonly string[] = ['version', 'created_at', 'updated_at']

/** In the order of rule ids. */
export function changesBetween(before: readonly PlainRule[], after: readonly PlainRule[]): Promise<RuleChange[]> {
  return inSlices(comparing(before, after))
}

function* comparing(before: readonly PlainRule[], after: readonly PlainRule[]): Sliced<RuleChange[]> {
  const old = new Map(before.map((rule) => [rule.rule_id, rule]))
  const changes: RuleChange[] = []
  for (const rule of after) {
    const change = changeOf(old.get(rule.rule_id), rule)
    if (change !== undefined) changes.push(change)
    old.delete(rule.rule_id)
    yield
  }
  for (const rule of old.values()) changes.push({ rule_id: rule.rule_id, change: 'deleted', before: rule })
  return changes.sort((one, other) => (one.rule_id < other.rule_id ? -1 : 1))
}

function changeOf(before: PlainRule | undefined, after: PlainRule): RuleChange | undefined {
  const { rule_id } = after
  if (before === undefined) return { rule_id, change: 'created', after }
  const fields = [...new Set([...Object.keys(before), ...Object.keys(after)])]
  const differing = fields.filter((name) => !NOTES.includes(name) && !isDeepStrictEqual(before[name], after[name]))
  if (differing.length === 0) return undefined
  return { rule_id, change: 'updated', before: pick(before, differing), after: pick(after, differing) }
}

function pick(rule: PlainRule, fields: readonly string[]): Record<string, unknown> {
  return Object.fromEntries(fields.filter((name) => name in rule).map((name) => [name, rule[name]]))
}

/** The changes as they are told: all about a few, of many only which. */
export function told(changes: readonly RuleChange[]): readonly RuleChange[] {
  if (changes.length <= TOLD_MAX) return changes
  return changes.map(({ rule_id, change }) => ({ rule_id, change }))
}
