// Rules as text, one line per field: the format of rule files. JSON is a subset of YAML.

export type PlainRule = { readonly rule_id: string } & Readonly<Record<string, unknown>>

/** Strings that need no quotes in YAML. */
const PLAIN = /^[A-Za-z_/][\w./*-]*$/
/** Words that YAML reads as another type. */
const AMBIGUOUS = /^(true|false|null|yes|no|on|off|y|n)$/i
/** Added by the service. */
const METADATA: readonly string[] = ['version', 'created_at', 'updated_at']

/** Fields that come first, in this order; the others follow as they are. */
const ORDER: readonly string[] = [
  ...['rule_id', 'name', 'description', 'endpoint_pattern', 'method', 'plan', 'when', 'scope', 'algorithm'],
  ...['limit', 'window_seconds', 'burst', 'limits', 'by_plan', 'mode'],
]

export function ruleText(rule: PlainRule | null | undefined): string {
  if (rule == null) return ''
  const names = Object.keys(rule).filter((name) => !METADATA.includes(name))
  const rank = (name: string) => (ORDER.includes(name) ? ORDER.indexOf(name) : ORDER.length)
  const lines = names.sort((a, b) => rank(a) - rank(b) || (a < b ? -1 : 1)).map((name) => [name, rule[name]] as const)
  return lines.map(([name, value]) => `${name}: ${valueText(value)}\n`).join('')
}

function valueText(value: unknown): string {
  return typeof value === 'string' && PLAIN.test(value) && !AMBIGUOUS.test(value) ? value : JSON.stringify(value)
}

/** Merge patch that turns one rule into another: null removes a field. */
export function patchBetween(before: PlainRule, after: PlainRule): PlainRule {
  const removed = Object.keys(before).filter((name) => !(name in after) && !METADATA.includes(name))
  return { ...Object.fromEntries(removed.map((name) => [name, null])), ...after }
}
