// The values of etcd keys → one set of rules. Each key holds a document, YAML, or JSON if its name ends in `.json`: one
// rule, a list of rules, or an object with the list under `rules`; all together, in the order of their keys, are the
// set. Mistakes name key and line.

import type { Fault } from 'sluice'
import { type RuleText, readRuleText } from '../long-text.ts'
import { placeOf } from '../rule-file.ts'
import type { EtcdKey } from './etcd-client.ts'

export type Documents = {
  /** What `parseRules` is given. */
  readonly value: { readonly rules: readonly unknown[] }
  /** What keeps a value from being YAML or JSON at all, and where that is. */
  readonly faults: readonly (Fault & { readonly place: string })[]
  /** Where fields such as `rules[3].limit` stand: `/sluice/rules/messages:3`. */
  placesOf(fields: readonly string[]): Promise<(string | undefined)[]>
}

/** Where a rule of the set comes from: the document, and the field that it is in there. */
type Origin = { readonly key: string; readonly text: RuleText; readonly field: string }

export async function joinDocuments(keys: readonly EtcdKey[]): Promise<Documents> {
  const faults: Documents['faults'][number][] = []
  const rules: unknown[] = []
  const origins: Origin[] = []
  for (const { key, value } of keys) {
    if (value === undefined) {
      faults.push({ field: 'value', value: undefined, fix: 'put it as UTF-8', place: key })
      continue
    }
    const text = await readRuleText(value, key.endsWith('.json') ? 'json' : 'yaml')
    faults.push(...(await placedFaults(key, text)))
    for (const [field, rule] of rulesIn(text.value)) {
      rules.push(rule)
      origins.push({ key, text, field })
    }
  }
  return { value: { rules }, faults, placesOf: (fields) => placesAmong(origins, rules, fields) }
}

async function placedFaults(key: string, { faults, linesOf }: RuleText): Promise<Documents['faults']> {
  if (faults.length === 0) return [] // to find lines the text is read again
  const lines = await linesOf(faults.map(({ field }) => field))
  return faults.map((fault, index) => ({ ...fault, place: placeOf(key, lines[index]) }))
}

/** Each rule of a document. What is no rule is left for the parser to refuse. */
function rulesIn(value: unknown): [field: string, rule: unknown][] {
  if (Array.isArray(value)) return value.map((rule, index) => [`rules[${index}]`, rule])
  const list = typeof value === 'object' && value !== null ? (value as { rules?: unknown }).rules : undefined
  return Array.isArray(list) ? list.map((rule, index) => [`rules[${index}]`, rule]) : [['', value]]
}

/** Each document is asked once for all of its lines: to find them it may have to be read again. */
async function placesAmong(
  origins: readonly Origin[],
  rules: readonly unknown[],
  fields: readonly string[],
): Promise<(string | undefined)[]> {
  const found = fields.map((field) => fieldIn(origins, rules, field))
  const places: (string | undefined)[] = found.map(() => undefined)
  for (const text of new Set(found.flatMap((one) => (one === undefined ? [] : [one.text])))) {
    const ours = found.flatMap((one, index) => (one?.text === text ? [{ ...one, index }] : []))
    const lines = await text.linesOf(ours.map(({ field }) => field))
    ours.forEach(({ key, index }, nth) => {
      places[index] = placeOf(key, lines[nth])
    })
  }
  return places
}

/** The document that a field of the set is in, and what it is called there. */
function fieldIn(origins: readonly Origin[], rules: readonly unknown[], field: string): Origin | undefined {
  const [, index, rest = ''] = /^rules\[(\d+)\]\.?(.*)$/.exec(field) ?? ruleById(rules, field) ?? []
  const origin = origins[Number(index)]
  return origin && { ...origin, field: [origin.field, rest].filter((step) => step !== '').join('.') }
}

/** Some faults name the rule by its id: `messages.store`. */
function ruleById(rules: readonly unknown[], field: string): [string, string, string] | undefined {
  const ids = rules.map((rule) => String((rule as { rule_id?: unknown } | null)?.rule_id))
  const index = ids.findIndex((id) => field.startsWith(`${id}.`))
  return index < 0 ? undefined : [field, String(index), field.slice((ids[index]?.length ?? 0) + 1)]
}
