// A rule without what goes without saying: only fields that differ from what the parser would fill in. That is what is
// stored and exported, so that a change of one field is one line, and what follows from a field follows its changes.

import { isDeepStrictEqual } from 'node:util'
import { parseRules, plainRule, type Rule } from 'sluice'
import type { PlainRule } from './changes.ts'

/** Fields from which the parser fills in others. */
const CAUSES: readonly string[] = ['rule_id', 'algorithm', 'intent', 'limit', 'limits', 'window_seconds']
const NOTES: readonly string[] = ['version', 'created_at', 'updated_at']
const PLAINEST: PlainRule = completed({ limit: 1, window_seconds: 1 }, 'rule')

/** It parses to the same rule again, except for its version and times, which the store keeps. */
export function compactRule(rule: Rule): PlainRule {
  const plain = plainRule(rule)
  const filledIn = completed(Object.fromEntries(CAUSES.map((name) => [name, plain[name]])), rule.rule_id)
  const said = Object.entries(plain).filter(([name, value]) => {
    if (NOTES.includes(name)) return false
    if (name.startsWith('limit') || name === 'window_seconds') return true
    return !isDeepStrictEqual(value, (CAUSES.includes(name) ? PLAINEST : filledIn)[name])
  })
  return { ...Object.fromEntries(said), rule_id: rule.rule_id }
}

function completed(fields: Readonly<Record<string, unknown>>, ruleId: string): PlainRule {
  const given = Object.entries(fields).filter(([, value]) => value !== undefined)
  const [rule] = parseRules([{ ...Object.fromEntries(given), rule_id: ruleId }])
  return { ...(rule && plainRule(rule)), rule_id: ruleId }
}
