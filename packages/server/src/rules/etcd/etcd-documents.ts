// The values of etcd keys → one set of rules. Each key holds a document, YAML, or JSON if its name ends in `.json`: one
// rule, a list of rules, or an object with the list under `rules`; all together, in the order of their keys, are the
// set. Mistakes name key and line.

import type { Fault } from 'sluice'
import { readJson, readYaml, type SourceText } from '../source-text.ts'
import type { EtcdKey } from './etcd-client.ts'

export type Documents = {
  /** What `parseRules` is given. */
  readonly value: unknown
  /** What keeps a value from being YAML or JSON at all, and where. */
  readonly faults: readonly (Fault & { readonly place: string })[]
  /** Where a field such as `rules[3].limit` stands: `/sluice/rules/messages:3`. */
  placeOf(field: string): string | undefined
}

type Part = { readonly key: string; readonly source: SourceText; readonly field: string }

export function joinDocuments(keys: readonly EtcdKey[]): Documents {
  const faults: Documents['faults'][number][] = []
  const rules: unknown[] = []
  const parts: Part[] = []
  for (const { key, value } of keys) {
    const source = key.endsWith('.json') ? readJson(value) : readYaml(value)
    faults.push(...source.faults.map((fault) => ({ ...fault, place: placed(key, source.lineOf(fault.field)) })))
    for (const [field, rule] of rulesIn(source.value)) {
      rules.push(rule)
      parts.push({ key, source, field })
    }
  }
  return { value: { rules }, faults, placeOf: (field) => placeIn(parts, rules, field) }
}

/** Each rule of a document, with the field that it is in there. What is no rule is left for the parser to refuse. */
function rulesIn(value: unknown): [field: string, rule: unknown][] {
  if (Array.isArray(value)) return value.map((rule, index) => [`rules[${index}]`, rule])
  const list = typeof value === 'object' && value !== null ? (value as { rules?: unknown }).rules : undefined
  return Array.isArray(list) ? list.map((rule, index) => [`rules[${index}]`, rule]) : [['', value]]
}

function placeIn(parts: readonly Part[], rules: readonly unknown[], field: string): string | undefined {
  const [, index, rest = ''] = /^rules\[(\d+)\]\.?(.*)$/.exec(field) ?? ruleById(rules, field) ?? []
  const part = parts[Number(index)]
  if (part === undefined) return undefined
  return placed(part.key, part.source.lineOf([part.field, rest].filter((step) => step !== '').join('.')))
}

function placed(key: string, line: number | undefined): string {
  return line === undefined ? key : `${key}:${line}`
}

/** Some faults name the rule by its id: `messages.store`. */
function ruleById(rules: readonly unknown[], field: string): [string, string, string] | undefined {
  const ids = rules.map((rule) => String((rule as { rule_id?: unknown } | null)?.rule_id))
  const index = ids.findIndex((id) => field.startsWith(`${id}.`))
  return index < 0 ? undefined : [field, String(index), field.slice((ids[index]?.length ?? 0) + 1)]
}
