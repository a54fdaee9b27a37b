// Removes defaulted fields from a rule, for storage and export. A change of one field is then one line, and defaults
// that depend on another field follow its changes.

import { isDeepStrictEqual } from 'node:util'
import { parseRules, plainRule, type Rule } from 'sluice'
import type { PlainRule } from './changes.ts'

/** Added by the rule store. */
const METADATA: readonly string[] = ['version', 'created_at', 'updated_at']
const ALWAYS_KEPT: readonly string[] = ['rule_id', 'limit', 'limits', 'window_seconds']
const DEFAULTS: Plain = withDefaults({})

type Plain = Readonly<Record<string, unknown>>

/** Parses to the same rule again, except for the metadata of the store. */
export function compactRule(rule: Rule): PlainRule {
  const { algorithm, intent } = rule
  const defaults = defaultsFor(algorithm, intent)
  const kept = Object.entries(plainRule(rule)).filter(([name, value]) => {
    if (METADATA.includes(name)) return false
    const base = name === 'algorithm' || name === 'intent' ? DEFAULTS : defaults
    return ALWAYS_KEPT.includes(name) || !isDeepStrictEqual(value, base[name])
  })
  return { ...Object.fromEntries(kept), rule_id: rule.rule_id }
}

const cache = new Map<string, Plain>()

/** Defaults depend on these two fields only. */
function defaultsFor(algorithm: Rule['algorithm'], intent: Rule['intent']): Plain {
  const key = `${algorithm} ${intent}`
  const known = cache.get(key) ?? withDefaults({ algorithm, intent })
  cache.set(key, known)
  return known
}

function withDefaults(fields: Plain): Plain {
  const [rule] = parseRules([{ rule_id: 'any', limit: 1, window_seconds: 1, ...fields }])
  return rule === undefined ? {} : plainRule(rule)
}
