// Differences between two rule sets, by rule and field, for plans, responses and the audit log.

import { isDeepStrictEqual } from 'node:util'
import { inSlices, type Sliced } from 'sluice'

/** A rule in the form that `plainRule` returns. */
export type PlainRule = Readonly<Record<string, unknown>> & { readonly rule_id: string }

/** A changed rule before and after an edit; null: does not exist. */
export type ChangedRule = {
  readonly ruleId: string
  readonly before: PlainRule | null
  readonly after: PlainRule | null
}

export type RuleChange = {
  readonly rule_id: string
  readonly change: 'created' | 'updated' | 'deleted'
  /** The whole rule, or the fields that differ. Omitted if there are too many changes. */
  readonly before?: Readonly<Record<string, unknown>>
  readonly after?: Readonly<Record<string, unknown>>
}

/** Longer lists contain only rule ids; both versions can still be compared. */
const DETAILED_MAX = 200
/** Added by the rule store, not part of the rule. */
const METADATA: readonly string[] = ['version', 'created_at', 'updated_at']

/** Sorted by rule id. */
export function changesBetween(before: readonly PlainRule[], after: readonly PlainRule[]): Promise<RuleChange[]> {
  return inSlices(compare(before, after))
}

function* compare(before: readonly PlainRule[], after: readonly PlainRule[]): Sliced<RuleChange[]> {
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
  const differing = fields.filter((name) => !METADATA.includes(name) && !isDeepStrictEqual(before[name], after[name]))
  if (differing.length === 0) return undefined
  return { rule_id, change: 'updated', before: pick(before, differing), after: pick(after, differing) }
}

function pick(rule: PlainRule, fields: readonly string[]): Record<string, unknown> {
  return Object.fromEntries(fields.filter((name) => name in rule).map((name) => [name, rule[name]]))
}

/** Drops the fields if there are too many changes. */
export function summarized(changes: readonly RuleChange[]): readonly RuleChange[] {
  if (changes.length <= DETAILED_MAX) return changes
  return changes.map(({ rule_id, change }) => ({ rule_id, change }))
}
