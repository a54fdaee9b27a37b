// A rule as its author wrote it, for storage and export. A change of one field is then one line, and a default that
// depends on another field follows its changes, unless the author wrote the value.

import { type Rule, writtenRule } from 'sluice'
import type { PlainRule } from './changes.ts'

/** Added by the rule store. */
const METADATA: readonly string[] = ['version', 'created_at', 'updated_at']

/** Parses to the same rule again, except for the metadata of the store. */
export function compactRule(rule: Rule): PlainRule {
  const fields = Object.entries(writtenRule(rule)).filter(([name]) => !METADATA.includes(name))
  return { ...Object.fromEntries(fields), rule_id: rule.rule_id }
}
