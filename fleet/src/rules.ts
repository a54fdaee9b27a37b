// Limits of the fleet, read from the same rules.yaml as its nodes.

import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { parseRules } from 'sluice'
import { parse } from 'yaml'
import type { Allowance } from './interval-check.ts'

export const RULES_PATH: string = fileURLToPath(new URL('../rules.yaml', import.meta.url))

/** Limit of the rule with this id. */
export function allowanceOf(id: string): Allowance {
  const { rules } = parse(readFileSync(RULES_PATH, 'utf8')) as { rules: unknown }
  const [limit] = parseRules(rules).find(({ rule_id }) => rule_id === id)?.limits ?? []
  if (limit === undefined) throw new Error(`fleet/rules.yaml has no limit for the rule "${id}"`)
  return { burst: limit.burst ?? limit.limit, perMs: limit.limit / limit.window_seconds / 1000 }
}
