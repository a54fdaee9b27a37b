// What the rules of the fleet allow, as its nodes read them: rules.yaml is the one place that says it.

import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { parseRules } from 'sluice'
import { parse } from 'yaml'
import type { Allowance } from './interval-check.ts'

export const RULES_PATH: string = fileURLToPath(new URL('../rules.yaml', import.meta.url))

/** Of the rule with that id. */
export function allowanceOf(id: string): Allowance {
  const { rules } = parse(readFileSync(RULES_PATH, 'utf8')) as { rules: unknown }
  const [limit] = parseRules(rules).find(({ rule_id }) => rule_id === id)?.limits ?? []
  if (limit === undefined) throw new Error(`fleet/rules.yaml has no limit for the rule "${id}"`)
  return { burst: limit.burst ?? limit.limit, perMs: limit.limit / limit.window_seconds / 1000 }
}
