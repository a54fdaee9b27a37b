// Re-checks a change whose base has moved: a three-way comparison by field. It applies cleanly, or each conflict is
// named by rule and field.

import { isDeepStrictEqual } from 'node:util'
import type { PlainRule } from '../rules/changes.ts'
import type { ProposedChange } from './proposal.ts'

export type Conflict = {
  readonly rule_id: string
  readonly field: string
  readonly proposed: unknown
  readonly current: unknown
}

export type Rebased = { readonly changes: readonly ProposedChange[]; readonly conflicts: readonly Conflict[] }

/** Added by the rule store. */
const METADATA: readonly string[] = ['version', 'created_at', 'updated_at']

/** `current` holds the rules that exist now, by id. */
export function rebase(changes: readonly ProposedChange[], current: ReadonlyMap<string, PlainRule>): Rebased {
  const conflicts: Conflict[] = []
  const rebased = changes.map((change) => rebaseOne(change, current.get(change.ruleId) ?? null, conflicts))
  return { changes: rebased, conflicts }
}

function rebaseOne(change: ProposedChange, current: PlainRule | null, conflicts: Conflict[]): ProposedChange {
  const { ruleId, base, rule } = change
  const conflict = (field: string, proposed: unknown, now: unknown) => {
    conflicts.push({ rule_id: ruleId, field, proposed, current: now })
  }
  if (sameRule(base, current)) return { ...change, base: current }
  if (sameRule(rule, current)) return { ...change, base: current } // somebody made the same change
  if (current === null) {
    conflict('rule_id', rule === null ? null : ruleId, null)
    return change
  }
  if (base === null || rule === null) {
    for (const field of differing(base ?? rule, current)) conflict(field, rule?.[field], current[field])
    return change
  }
  const fields = new Map<string, unknown>()
  for (const field of fieldsOf(base, rule, current)) {
    const [was, proposed, now] = [base[field], rule[field], current[field]]
    const isChanged = !isDeepStrictEqual(was, proposed)
    if (isChanged && !isDeepStrictEqual(was, now) && !isDeepStrictEqual(proposed, now)) conflict(field, proposed, now)
    const value = isChanged ? proposed : now
    if (value !== undefined) fields.set(field, value)
  }
  return { ...change, base: current, rule: { ...Object.fromEntries(fields), rule_id: ruleId } }
}

/** Ignores the metadata of the rule store. */
export function sameRule(one: PlainRule | null, other: PlainRule | null): boolean {
  if (one === null || other === null) return one === other
  return differing(one, other).length === 0
}

function differing(one: PlainRule | null, other: PlainRule | null): string[] {
  return fieldsOf(one ?? {}, other ?? {}).filter((field) => !isDeepStrictEqual(one?.[field], other?.[field]))
}

function fieldsOf(...rules: readonly Readonly<Record<string, unknown>>[]): string[] {
  return [...new Set(rules.flatMap((rule) => Object.keys(rule)))].filter((field) => !METADATA.includes(field))
}
