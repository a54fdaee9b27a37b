// Joins the values of etcd keys into one rule set, in the order of the keys. Each value is a YAML document, or JSON if
// the key ends in `.json`: one rule, a list of rules, or an object with the list under `rules`. Errors name key and
// line.

import type { FieldError } from 'sluice'
import { fileAndLine } from '../rule-file.ts'
import { type RuleText, readRuleText } from '../rule-text.ts'
import type { EtcdKey } from './etcd-client.ts'

export type Documents = {
  /** Input for `parseRules`. */
  readonly value: { readonly rules: readonly unknown[] }
  /** Syntax errors and their locations. */
  readonly errors: readonly (FieldError & { readonly location: string })[]
  /** Locations of fields such as `rules[3].limit`: `/sluice/rules/messages:3`. */
  locationsOf(fields: readonly string[]): Promise<(string | undefined)[]>
}

/** Origin of a rule of the set: the document, and the field of the rule in it. */
type Origin = { readonly key: string; readonly text: RuleText; readonly field: string }

export async function joinDocuments(keys: readonly EtcdKey[]): Promise<Documents> {
  const errors: Documents['errors'][number][] = []
  const rules: unknown[] = []
  const origins: Origin[] = []
  for (const { key, value } of keys) {
    if (value === undefined) {
      errors.push({ field: 'value', value: undefined, fix: 'store it as UTF-8', location: key })
      continue
    }
    const text = await readRuleText(value, key.endsWith('.json') ? 'json' : 'yaml')
    errors.push(...(await locatedErrors(key, text)))
    for (const [field, rule] of rulesIn(text.value)) {
      rules.push(rule)
      origins.push({ key, text, field })
    }
  }
  return { value: { rules }, errors, locationsOf: (fields) => findLocations(origins, rules, fields) }
}

async function locatedErrors(key: string, { errors, linesOf }: RuleText): Promise<Documents['errors']> {
  if (errors.length === 0) return [] // finding lines parses the text again
  const lines = await linesOf(errors.map(({ field }) => field))
  return errors.map((error, index) => ({ ...error, location: fileAndLine(key, lines[index]) }))
}

/** Each rule of a document. The rule parser rejects anything that is not a rule. */
function rulesIn(value: unknown): [field: string, rule: unknown][] {
  if (Array.isArray(value)) return value.map((rule, index) => [`rules[${index}]`, rule])
  const list = typeof value === 'object' && value !== null ? (value as { rules?: unknown }).rules : undefined
  return Array.isArray(list) ? list.map((rule, index) => [`rules[${index}]`, rule]) : [['', value]]
}

/** Queries each document once for all of its lines, because each query may parse the document again. */
async function findLocations(
  origins: readonly Origin[],
  rules: readonly unknown[],
  fields: readonly string[],
): Promise<(string | undefined)[]> {
  const found = fields.map((field) => fieldIn(origins, rules, field))
  const locations: (string | undefined)[] = found.map(() => undefined)
  for (const text of new Set(found.flatMap((one) => (one === undefined ? [] : [one.text])))) {
    const own = found.flatMap((one, index) => (one?.text === text ? [{ ...one, index }] : []))
    const lines = await text.linesOf(own.map(({ field }) => field))
    own.forEach(({ key, index }, nth) => {
      locations[index] = fileAndLine(key, lines[nth])
    })
  }
  return locations
}

/** The document that contains a field of the set, and the name of the field there. */
function fieldIn(origins: readonly Origin[], rules: readonly unknown[], field: string): Origin | undefined {
  const [, index, rest = ''] = /^rules\[(\d+)\]\.?(.*)$/.exec(field) ?? ruleById(rules, field) ?? []
  const origin = origins[Number(index)]
  return origin && { ...origin, field: [origin.field, rest].filter((step) => step !== '').join('.') }
}

/** Some field errors name the rule by its id: `messages.store`. */
function ruleById(rules: readonly unknown[], field: string): [string, string, string] | undefined {
  const ids = rules.map((rule) => (rule as { rule_id?: unknown } | null)?.rule_id)
  const index = ids.findIndex((id) => typeof id === 'string' && field.startsWith(`${id}.`))
  return index < 0 ? undefined : [field, String(index), field.slice((ids[index] as string).length + 1)]
}
