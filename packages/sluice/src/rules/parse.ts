// unknown → Rule[]: the only place where rules are validated. Reports all errors together, with field, value and fix. A
// rule that could never apply is an error. The result is complete, and parsing it again returns the same rules.

import { ON_FAIL } from '../algorithms/limit.ts'
import { ALGORITHM_NAMES, ALGORITHMS, type AlgorithmName } from '../algorithms/traits.ts'
import { suggestion, synonym } from '../nearest.ts'
import { mapped, runSync, type Sliced } from '../slices.ts'
import { FieldErrors } from './field-errors.ts'
import { isFields, readNumber, readOneOf, readText, readTime } from './fields.ts'
import { checkShards, readNumbers } from './parse-limits.ts'
import {
  FORBIDDEN_FIX,
  isForbiddenAttribute,
  readConditions,
  readMethods,
  readPattern,
  readScope,
} from './parse-match.ts'
import { readOnSignal } from './parse-signals.ts'
import { type Approximate, FACTS, type Lease, plainRule, type Rule } from './rule.ts'
import { respell } from './spellings.ts'

export const RULES_MAX = 100_000
const SYNC_MS = { min: 20, max: 60_000 }
const RULE_ID = /^[a-z0-9_.-]{1,64}$/
/** Every field of a rule in canonical spelling. A test checks that docs/reference/rules.md has them all. */
export const FIELDS: readonly string[] = [
  ...['rule_id', 'name', 'description', 'created_at', 'updated_at', 'expires_at', 'version'],
  ...['endpoint_pattern', 'method', 'plan', 'when', 'scope', 'on_missing'],
  ...['algorithm', 'limit', 'window_seconds', 'window', 'burst', 'limits', 'by_plan', 'cost', 'group', 'priority'],
  ...['consistency', 'lease', 'approximate', 'on_signal', 'intent', 'on_fail', 'shards', 'store', 'spread'],
  ...['enforce_at', 'mode', 'enabled'],
]

/** Fields with a closed list of values. */
export const CHOICES: {
  readonly [Field in
    | 'algorithm'
    | 'intent'
    | 'on_missing'
    | 'on_fail'
    | 'consistency'
    | 'spread'
    | 'enforce_at'
    | 'mode']: readonly Rule[Field][]
} = {
  algorithm: ALGORITHM_NAMES,
  intent: ['fairness', 'abuse'],
  on_missing: ['skip', 'refuse', 'by_ip'],
  on_fail: ON_FAIL,
  consistency: ['strict', 'leased', 'approximate', 'local'],
  spread: ['regional', 'global'],
  enforce_at: ['edge', 'service', 'any'],
  mode: ['enforce', 'shadow'],
}

export const LEASE_FIELDS: readonly string[] = ['max_units', 'max_share', 'ttl_ms']
export const APPROXIMATE_FIELDS: readonly string[] = ['sync_ms', 'max_unsynced']

type Fields = Record<string, unknown>

const NOTHING: ReadonlyMap<unknown, unknown> = new Map()

/** Rules from a list, or from an object with the list under `rules`. Throws RULE_INVALID with all field errors. */
export function parseRules(input: unknown): Rule[] {
  return runSync(parsing(input))
}

/** `known` are rules parsed earlier, which are reused. */
export function* parsing(input: unknown, known: ReadonlyMap<unknown, unknown> = NOTHING): Sliced<Rule[]> {
  const errors = new FieldErrors()
  const list = rulesOf(input, errors)
  const rules = yield* mapped(list, (item, index) => {
    return known.has(item) ? (item as Rule) : parseRule(item, errors.at(`rules[${index}]`))
  })
  const seen = new Map<string, number>()
  rules.forEach((rule, index) => {
    const first = rule && seen.get(rule.rule_id)
    if (first !== undefined)
      errors.add(`rules[${index}].rule_id`, rule?.rule_id, `choose another: rules[${first}] has this id`)
    else if (rule) seen.set(rule.rule_id, index)
  })
  errors.throwIfAny('RULE_INVALID')
  return rules.filter((rule) => rule !== undefined)
}

function rulesOf(input: unknown, errors: FieldErrors): readonly unknown[] {
  const list = isFields(input) && Object.hasOwn(input, 'rules') ? rulesField(input, errors) : input
  if (!Array.isArray(list)) errors.withhold('rules', list, 'give a list of rules')
  else if (list.length > RULES_MAX) errors.add('rules', list.length, `give at most ${RULES_MAX} rules`)
  else return list
  return []
}

/** The rules API adds `version`, and `x-…` is for YAML anchors; any other field would have no effect. */
function rulesField({ rules, ...others }: Fields, errors: FieldErrors): unknown {
  for (const [name, value] of Object.entries(others)) {
    if (name !== 'version' && !name.startsWith('x-')) {
      errors.withhold(name, value, 'unknown field; put it into a rule')
    }
  }
  return rules
}

function parseRule(input: unknown, errors: FieldErrors): Rule | undefined {
  if (!isFields(input)) return errors.add('', input, 'give an object with at least rule_id and limit')
  const before = errors.list.length
  const { fields, spellings } = respell(input, errors)
  for (const name of Object.keys(fields)) {
    if (FIELDS.includes(name)) continue
    if (errors.isFull) break
    errors.add(name, fields[name], `unknown field; ${unknownFieldFix(name)}`)
  }
  const rule = readRule(fields, errors.spelled(spellings))
  if (errors.list.length > before) return undefined
  WRITTEN.set(rule, writtenFields(fields, rule))
  return rule
}

/** Fields as written in canonical spelling, by rule: a rule itself is complete, and a default may be written or not. */
const WRITTEN = new WeakMap<Rule, Fields>()

/**
 * The rule with the fields that its author wrote, in canonical spelling and with canonical values. Parses to the same
 * rule again. A default is in it only if it was written, because it may depend on another field that changes later.
 */
export function writtenRule(rule: Rule): Readonly<Record<string, unknown>> {
  return WRITTEN.get(rule) ?? plainRule(rule)
}

function writtenFields(fields: Fields, rule: Rule): Fields {
  const plain = plainRule(rule)
  const names = new Set(Object.keys(fields).filter((name) => fields[name] !== undefined))
  const isWritten = (name: string) => names.has(name) || NUMBERS.includes(name)
  const written = Object.fromEntries(Object.entries(plain).filter(([name]) => isWritten(name)))
  // An unlimited rule may have a window for its plans only.
  for (const name of ['window', 'window_seconds'])
    if (names.has(name) && plain.limit === 'unlimited') written[name] = fields[name]
  if (isFields(fields.by_plan)) written.by_plan = writtenPlans(fields.by_plan, rule.by_plan)
  return written
}

/** Present in the plain rule only if they were written, in one spelling or another. */
const NUMBERS: readonly string[] = ['limit', 'limits', 'window_seconds', 'burst']

/** A plan inherits the numbers that it omits. */
function writtenPlans(given: Fields, plans: Rule['by_plan']): Fields {
  return Object.fromEntries(
    Object.entries(plans).map(([plan, limits]) => {
      const fields = given[plan]
      const [only] = limits
      if (only === undefined) return [plan, 'unlimited']
      if (!isFields(fields) || limits.length > 1 || fields.limits != null) return [plan, limits]
      const has = (name: string) => fields[name] != null
      return [
        plan,
        {
          ...(has('limit') && { limit: only.limit }),
          ...((has('window') || has('window_seconds')) && { window_seconds: only.window_seconds }),
          ...(has('burst') && { burst: only.burst }),
        },
      ]
    }),
  )
}

/** A fact is a condition of a rule, not a field: `user` belongs in `when`. */
function unknownFieldFix(name: string): string {
  const fact = synonym(name, FIELDS) === undefined ? synonym(name, FACTS) : undefined
  if (fact !== undefined) return `put it in "when" as "${fact}"`
  return suggestion(name, FIELDS).slice(2) || 'remove it'
}

function readRule(fields: Fields, errors: FieldErrors): Rule {
  const algorithm = readOneOf(fields, 'algorithm', CHOICES.algorithm, errors) ?? 'token_bucket'
  const intent = readOneOf(fields, 'intent', CHOICES.intent, errors) ?? 'fairness'
  const scope = readScope(fields, errors)
  const rule: Rule = {
    rule_id: readRuleId(fields, errors),
    ...readNotes(fields, errors),
    version: readNumber(fields, 'version', { min: 0, max: Number.MAX_SAFE_INTEGER }, errors) ?? 0,
    endpoint_pattern: readPattern(fields, errors),
    method: readMethods(fields, errors),
    ...optional('plan', readText(fields, 'plan', errors)),
    when: readConditions(fields, errors),
    scope,
    on_missing: readOneOf(fields, 'on_missing', CHOICES.on_missing, errors) ?? 'skip',
    algorithm,
    ...readNumbers(fields, algorithm, errors),
    ...readBehaviour(fields, algorithm, errors),
    ...optional('on_signal', readOnSignal(fields, scope, errors)),
    intent,
    on_fail: readOneOf(fields, 'on_fail', CHOICES.on_fail, errors) ?? (intent === 'abuse' ? 'closed' : 'open'),
  }
  checkShards(rule, errors)
  return rule
}

type Behaviour = Pick<
  Rule,
  | 'cost'
  | 'group'
  | 'priority'
  | 'consistency'
  | 'lease'
  | 'approximate'
  | 'shards'
  | 'store'
  | 'spread'
  | 'enforce_at'
  | 'mode'
  | 'enabled'
>

function readBehaviour(fields: Fields, algorithm: AlgorithmName, errors: FieldErrors): Behaviour {
  const consistency = readConsistency(fields, algorithm, errors)
  return {
    cost: readCost(fields, errors),
    ...optional('group', readText(fields, 'group', errors)),
    priority: readNumber(fields, 'priority', { min: -1_000_000, max: 1_000_000 }, errors) ?? 0,
    consistency,
    ...optional('lease', readLease(fields, consistency, errors)),
    ...optional('approximate', readApproximate(fields, consistency, errors)),
    shards: readNumber(fields, 'shards', { min: 1, max: 1024 }, errors) ?? 1,
    store: readText(fields, 'store', errors) ?? 'default',
    spread: readOneOf(fields, 'spread', CHOICES.spread, errors) ?? 'regional',
    enforce_at: readOneOf(fields, 'enforce_at', CHOICES.enforce_at, errors) ?? 'any',
    mode: readOneOf(fields, 'mode', CHOICES.mode, errors) ?? 'enforce',
    enabled: readFlag(fields, 'enabled', errors) ?? true,
  }
}

function readNotes(
  fields: Fields,
  errors: FieldErrors,
): Pick<Rule, 'name' | 'description' | 'created_at' | 'updated_at' | 'expires_at'> {
  return {
    ...optional('name', readText(fields, 'name', errors)),
    ...optional('description', readText(fields, 'description', errors, 4096)),
    ...optional('created_at', readTime(fields, 'created_at', errors)),
    ...optional('updated_at', readTime(fields, 'updated_at', errors)),
    ...optional('expires_at', readTime(fields, 'expires_at', errors)),
  }
}

function readRuleId(fields: Fields, errors: FieldErrors): string {
  const { rule_id: ruleId } = fields
  if (typeof ruleId === 'string' && RULE_ID.test(ruleId)) return ruleId
  errors.add('rule_id', ruleId, 'give 1 to 64 characters of a-z, 0-9, "_", "." and "-"')
  return ''
}

function readCost(fields: Fields, errors: FieldErrors): number | string {
  if (typeof fields.cost === 'string') {
    if (isForbiddenAttribute(fields.cost)) errors.add('cost', fields.cost, FORBIDDEN_FIX)
    return readText(fields, 'cost', errors) ?? 1
  }
  return readNumber(fields, 'cost', { min: 1, max: 1_000_000_000 }, errors) ?? 1
}

function readFlag(fields: Fields, name: string, errors: FieldErrors): boolean | undefined {
  const value = fields[name]
  if (value === undefined || typeof value === 'boolean') return value
  return errors.add(name, value, 'use true or false')
}

/** Leaky bucket and concurrency are always strict: only the store knows the queue and the holders of permits. */
function readConsistency(fields: Fields, algorithm: AlgorithmName, errors: FieldErrors): Rule['consistency'] {
  const strict = ALGORITHMS[algorithm].lease === 'none'
  const given = readOneOf(fields, 'consistency', CHOICES.consistency, errors)
  if (!strict) return given ?? 'leased'
  if (given !== undefined && given !== 'strict')
    errors.add('consistency', given, `use strict, or another algorithm: ${algorithm} supports only strict`)
  return 'strict'
}

function readLease(fields: Fields, consistency: Rule['consistency'], errors: FieldErrors): Lease | undefined {
  const { lease } = fields
  if (lease === undefined) return undefined
  if (consistency === 'approximate' || consistency === 'local')
    return errors.add('lease', lease, `remove it: with consistency "${consistency}" nothing is leased`)
  if (!isFields(lease)) return errors.add('lease', lease, 'give an object with max_units, max_share or ttl_ms')
  const inside = errors.at('lease')
  for (const name of Object.keys(lease)) {
    if (!LEASE_FIELDS.includes(name)) inside.add(name, lease[name], 'unknown field; remove it')
  }
  const { max_share: share } = lease
  if (share !== undefined && !(typeof share === 'number' && share > 0 && share <= 1)) {
    inside.add('max_share', share, 'give a share above 0 and at most 1')
  }
  return {
    ...optional('max_units', readNumber(lease, 'max_units', { min: 1, max: 1_000_000_000 }, inside)),
    ...(typeof share === 'number' ? { max_share: share } : {}),
    ...optional('ttl_ms', readNumber(lease, 'ttl_ms', { min: 1, max: 3_600_000 }, inside)),
  }
}

function readApproximate(
  fields: Fields,
  consistency: Rule['consistency'],
  errors: FieldErrors,
): Approximate | undefined {
  const { approximate } = fields
  if (approximate === undefined) return undefined
  if (consistency !== 'approximate')
    return errors.add('approximate', approximate, 'remove it, or use consistency "approximate"')
  if (!isFields(approximate))
    return errors.add('approximate', approximate, 'give an object with sync_ms or max_unsynced')
  const inside = errors.at('approximate')
  for (const name of Object.keys(approximate)) {
    if (!APPROXIMATE_FIELDS.includes(name)) inside.add(name, approximate[name], 'unknown field; remove it')
  }
  return {
    ...optional('sync_ms', readNumber(approximate, 'sync_ms', SYNC_MS, inside)),
    ...optional('max_unsynced', readNumber(approximate, 'max_unsynced', { min: 1, max: 1_000_000_000 }, inside)),
  }
}

function optional<K extends string, V>(name: K, value: V | undefined): { readonly [key in K]?: V } {
  return value === undefined ? {} : ({ [name]: value } as { [key in K]: V })
}
