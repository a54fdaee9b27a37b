// Rules → YAML, a line per field, that a rule file can hold. Written by hand because a library takes a second for ten
// thousand rules; whatever is not a plain word or number is written as JSON, which YAML understands.

import { inSlices, mapped } from 'sluice'
import type { PlainRule } from './changes.ts'

/** Texts that YAML takes for texts, unquoted. */
const WORD = /^[A-Za-z_/][\w./:*-]*$/
/** … other than these, and what ends in a colon. */
const NO_TEXT = /^(true|false|null|yes|no|on|off|y|n)$|:$|: /i

export async function rulesYaml(rules: readonly PlainRule[]): Promise<string> {
  if (rules.length === 0) return 'rules: []\n'
  return `rules:\n${(await inSlices(mapped(rules, ruleYaml))).join('')}`
}

function ruleYaml({ rule_id, ...fields }: PlainRule): string {
  const lines = Object.entries({ rule_id, ...fields }).map(([name, value]) => `${name}: ${valueYaml(value)}\n`)
  return lines.map((line, index) => `${index === 0 ? '  - ' : '    '}${line}`).join('')
}

function valueYaml(value: unknown): string {
  return typeof value === 'string' && WORD.test(value) && !NO_TEXT.test(value) ? value : JSON.stringify(value)
}
