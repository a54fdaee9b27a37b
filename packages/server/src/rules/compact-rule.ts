// A rule without what goes without saying: only fields that differ from what the parser would fill in. That is what is
// stored and exported, so that a change of one field is one line, and what follows from a field follows its changes.

import { isDeepStrictEqual } from 'node:util'
import { parseRules, plainRule, type Rule } from 'sluice'
import type { PlainRule } from './changes.ts'

/** What the store keeps about a rule. */
const NOTES: readonly string[] = ['version', 'created_at', 'updated_at']
const ALWAYS: readonly string[] = ['rule_id', 'limit', 'limits', 'window_seconds']
const PLAINEST: Plain = completed({})

type Plain = Readonly<Record<string, unknown>>

/** It parses to the same rule again, except for its version and times, which the store keeps. */
export function compactRule(rule: Rule): PlainRule {
  const { algorithm, intent } = rule
  const filledIn = completion(algorithm, intent)
  const said = Object.entries(plainRule(rule)).filter(([name, value]) => {
    if (NOTES.includes(name)) return false
    const unsaid = name === 'algorithm' || name === 'intent' ? PLAINEST : filledIn
    return ALWAYS.includes(name) || !isDeepStrictEqual(value, unsaid[name])
  })
  return { ...Object.fromEntries(said), rule_id: rule.rule_id }
}

const completions = new Map<string, Plain>()

/** What the parser fills in follows from these two alone. */
function completion(algorithm: Rule['algorithm'], intent: Rule['intent']): Plain {
  const key = `${algorithm} ${intent}`
  const known = completions.get(key) ?? completed({ algorithm, intent })
  completions.set(key, known)
  return known
}

function completed(fields: Plain): Plain {
  const [rule] = parseRules([{ rule_id: 'any', limit: 1, window_seconds: 1, ...fields }])
  return rule === undefined ? {} : plainRule(rule)
}
