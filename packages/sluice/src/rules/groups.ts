// Groups of rules: of the rules of one group that match a request, one applies.

import type { CompiledRule } from './compile.ts'

/**
 * Keeps the rule with the highest priority of each group. Shadow rules form separate groups: a trial must not replace
 * the enforced rule.
 */
export function onePerGroup(rules: readonly CompiledRule[]): CompiledRule[] {
  const best = new Map<string, CompiledRule>()
  const groupOf = ({ shadow, group }: CompiledRule) => `${shadow} ${group}`
  for (const rule of rules) {
    if (rule.group === undefined) continue
    const held = best.get(groupOf(rule))
    if (held === undefined || outranks(rule, held)) best.set(groupOf(rule), rule)
  }
  return rules.filter((rule) => rule.group === undefined || best.get(groupOf(rule)) === rule)
}

/** Higher priority first, then the id that sorts first. */
export function outranks(a: CompiledRule, b: CompiledRule): boolean {
  return a.priority > b.priority || (a.priority === b.priority && a.id < b.id)
}
