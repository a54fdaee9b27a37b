// Writes rules as YAML, one line per field. Hand-written, because a library takes a second for ten thousand rules.
// Values other than plain words are written as JSON, a subset of YAML.

import { inSlices, mapped } from 'sluice'
import type { PlainRule } from './changes.ts'

/** Strings that need no quotes in YAML, unless AMBIGUOUS matches. */
const PLAIN = /^[A-Za-z_/][\w./:*-]*$/
/** Words that YAML 1.1 or 1.2 reads as another type, and strings with a colon at the end or before a space. */
const AMBIGUOUS = /^(true|false|null|yes|no|on|off|y|n)$|:$|: /i

export async function rulesYaml(rules: readonly PlainRule[]): Promise<string> {
  if (rules.length === 0) return 'rules: []\n'
  return `rules:\n${(await inSlices(mapped(rules, ruleYaml))).join('')}`
}

function ruleYaml({ rule_id, ...fields }: PlainRule): string {
  const lines = Object.entries({ rule_id, ...fields }).map(([name, value]) => `${name}: ${valueYaml(value)}\n`)
  return lines.map((line, index) => `${index === 0 ? '  - ' : '    '}${line}`).join('')
}

function valueYaml(value: unknown): string {
  return typeof value === 'string' && PLAIN.test(value) && !AMBIGUOUS.test(value) ? value : JSON.stringify(value)
}
