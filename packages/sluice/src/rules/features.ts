// Names of everything that a rule can use: fields, values of closed lists, and the layouts of its buckets in Redis. A
// fleet compares what a rule uses with what each of its nodes knows. Derived from the tables of the parser and of the
// algorithms, so a new field, value or layout has a name as soon as it exists.

import { ALGORITHMS, type AlgorithmName } from '../algorithms/traits.ts'
import { isFields } from './fields.ts'
import { APPROXIMATE_FIELDS, CHOICES, FIELDS, LEASE_FIELDS } from './parse.ts'
import { LIMIT_FIELDS } from './parse-limits.ts'
import { REACTION_FIELDS } from './parse-signals.ts'

/** Fields inside a field, or inside each of its entries. */
const INNER_FIELDS: Readonly<Record<string, readonly string[]>> = {
  lease: LEASE_FIELDS,
  approximate: APPROXIMATE_FIELDS,
  limits: LIMIT_FIELDS,
  by_plan: [...LIMIT_FIELDS, 'limits'],
  on_signal: REACTION_FIELDS,
}

const LAYOUTS = new Set(Object.values(ALGORITHMS).map(({ storage }) => storage))

/** Features of this version: `rule.shards`, `rule.on_fail=open`, `rule.lease.ttl_ms`, `redis.packed`. */
export const RULE_FEATURES: readonly string[] = [
  ...FIELDS.map((field) => `rule.${field}`),
  ...Object.entries(CHOICES).flatMap(([field, values]) => values.map((value) => `rule.${field}=${value}`)),
  ...Object.entries(INNER_FIELDS).flatMap(([field, inner]) => inner.map((name) => `rule.${field}.${name}`)),
  ...[...LAYOUTS].map((layout) => `redis.${layout}`),
]

/** Features that a node needs to apply this rule, which is in the form of rule files or of storage. */
export function featuresOf(rule: Readonly<Record<string, unknown>>): string[] {
  const found: string[] = []
  for (const [field, value] of Object.entries(rule)) {
    if (value === undefined) continue
    found.push(`rule.${field}`)
    if (field in CHOICES) found.push(`rule.${field}=${value}`)
    if (field in INNER_FIELDS) found.push(...innerFields(field, value).map((name) => `rule.${field}.${name}`))
  }
  const { algorithm = 'token_bucket' } = rule
  const storage = ALGORITHMS[algorithm as AlgorithmName]?.storage
  return storage === undefined ? found : [...found, `redis.${storage}`]
}

/** `lease` and `approximate` are objects of fields; the others hold such objects, or lists of them. */
function innerFields(field: string, value: unknown): string[] {
  const isItem = field === 'lease' || field === 'approximate'
  const items = isItem ? [value] : isFields(value) ? Object.values(value).flat() : [value].flat()
  return items.filter(isFields).flatMap((item) => Object.keys(item))
}
