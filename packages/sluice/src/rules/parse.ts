// unknown → Rule[]: the one place where rules are checked. Everything wrong is reported at once, with field, value and
// fix; a rule that would silently never apply is wrong too. What comes out is complete, and parses to itself again.

import { ALGORITHMS, type AlgorithmName } from '../algorithms/limit.ts'
import { suggestion } from '../nearest.ts'
import { atOnce, mapped, type Sliced } from '../slices.ts'
import { Faults } from './faults.ts'
import { isFields, readNumber, readOneOf, readText, readTime } from './fields.ts'
import { checkShards, readNumbers } from './parse-limits.ts'
import {
  NO_ATTRIBUTE_FIX,
  namesNoAttribute,
  readConditions,
  readMethods,
  readPattern,
  readScope,
} from './parse-match.ts'
import type { Approximate, Lease, Rule } from './rule.ts'
import { respell } from './spellings.ts'

export const RULES_MAX = 100_000
const SYNC_MS = { min: 20, max: 60_000 }
const RULE_ID = /^[a-z0-9_.-]{1,64}$/
/** Every field of a rule in its canonical spelling; docs/reference/rules.md has each, and a test keeps it so. */
export const FIELDS: readonly string[] = [
  ...['rule_id', 'name', 'description', 'created_at', 'updated_at', 'expires_at', 'version'],
  ...['endpoint_pattern', 'method', 'plan', 'when', 'scope', 'on_missing'],
  ...['algorithm', 'limit', 'window_seconds', 'window', 'burst', 'limits', 'by_plan', 'cost', 'group', 'priority'],
  ...['consistency', 'lease', 'approximate', 'intent', 'on_fail', 'shards', 'store', 'spread'],
  ...['enforce_at', 'mode', 'enabled'],
]

type Fields = Record<string, unknown>

const NOTHING: ReadonlyMap<unknown, unknown> = new Map()

/** Rules from a list, or from an object with the list under `rules`. Throws RULE_INVALID with every fault it found. */
export function parseRules(input: unknown): Rule[] {
  return atOnce(parsing(input))
}

/** `known` are rules that were parsed before: they parse to themselves. */
export function* parsing(input: unknown, known: ReadonlyMap<unknown, unknown> = NOTHING): Sliced<Rule[]> {
  const faults = new Faults()
  const list = listOf(input, faults)
  const rules = yield* mapped(list, (item, index) => {
    return known.has(item) ? (item as Rule) : parseRule(item, faults.at(`rules[${index}]`))
  })
  const seen = new Map<string, number>()
  rules.forEach((rule, index) => {
    const first = rule && seen.get(rule.rule_id)
    if (first !== undefined)
      faults.add(`rules[${index}].rule_id`, rule?.rule_id, `choose another: rules[${first}] has it`)
    else if (rule) seen.set(rule.rule_id, index)
  })
  faults.throwIfAny('RULE_INVALID')
  return rules.filter((rule) => rule !== undefined)
}

function listOf(input: unknown, faults: Faults): readonly unknown[] {
  const list = isFields(input) && Object.hasOwn(input, 'rules') ? listAmong(input, faults) : input
  if (!Array.isArray(list)) faults.withhold('rules', list, 'give a list of rules')
  else if (list.length > RULES_MAX) faults.add('rules', list.length, `give at most ${RULES_MAX} rules`)
  else return list
  return []
}

/** `version` is what the rules API adds, and `x-…` is a place for YAML anchors; anything else would do nothing. */
function listAmong({ rules, ...others }: Fields, faults: Faults): unknown {
  for (const [name, value] of Object.entries(others)) {
    if (name !== 'version' && !name.startsWith('x-')) {
      faults.withhold(name, value, 'unknown field; put it into a rule')
    }
  }
  return rules
}

function parseRule(input: unknown, faults: Faults): Rule | undefined {
  if (!isFields(input)) return faults.add('', input, 'give an object with at least rule_id and limit')
  const before = faults.list.length
  const { fields, spellings } = respell(input, faults)
  for (const name of Object.keys(fields)) {
    if (FIELDS.includes(name)) continue
    faults.add(name, fields[name], `unknown field${suggestion(name, FIELDS) || '; remove it'}`)
  }
  const rule = readRule(fields, faults.spelled(spellings))
  return faults.list.length === before ? rule : undefined
}

function readRule(fields: Fields, faults: Faults): Rule {
  const algorithm = readOneOf(fields, 'algorithm', ALGORITHMS, faults) ?? 'token_bucket'
  const intent = readOneOf(fields, 'intent', ['fairness', 'abuse'], faults) ?? 'fairness'
  const rule: Rule = {
    rule_id: readRuleId(fields, faults),
    ...readNotes(fields, faults),
    version: readNumber(fields, 'version', { min: 0, max: Number.MAX_SAFE_INTEGER }, faults) ?? 0,
    endpoint_pattern: readPattern(fields, faults),
    method: readMethods(fields, faults),
    ...optional('plan', readText(fields, 'plan', faults)),
    when: readConditions(fields, faults),
    scope: readScope(fields, faults),
    on_missing: readOneOf(fields, 'on_missing', ['skip', 'refuse', 'by_ip'], faults) ?? 'skip',
    algorithm,
    ...readNumbers(fields, algorithm, faults),
    ...readBehaviour(fields, algorithm, faults),
    intent,
    on_fail:
      readOneOf(fields, 'on_fail', ['open', 'closed', 'local'], faults) ?? (intent === 'abuse' ? 'closed' : 'open'),
  }
  checkShards(rule, faults)
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

function readBehaviour(fields: Fields, algorithm: AlgorithmName, faults: Faults): Behaviour {
  const consistency = readConsistency(fields, algorithm, faults)
  return {
    cost: readCost(fields, faults),
    ...optional('group', readText(fields, 'group', faults)),
    priority: readNumber(fields, 'priority', { min: -1_000_000, max: 1_000_000 }, faults) ?? 0,
    consistency,
    ...optional('lease', readLease(fields, consistency, faults)),
    ...optional('approximate', readApproximate(fields, consistency, faults)),
    shards: readNumber(fields, 'shards', { min: 1, max: 1024 }, faults) ?? 1,
    store: readText(fields, 'store', faults) ?? 'default',
    spread: readOneOf(fields, 'spread', ['regional', 'global'], faults) ?? 'regional',
    enforce_at: readOneOf(fields, 'enforce_at', ['edge', 'service', 'any'], faults) ?? 'any',
    mode: readOneOf(fields, 'mode', ['enforce', 'shadow'], faults) ?? 'enforce',
    enabled: readFlag(fields, 'enabled', faults) ?? true,
  }
}

function readNotes(
  fields: Fields,
  faults: Faults,
): Pick<Rule, 'name' | 'description' | 'created_at' | 'updated_at' | 'expires_at'> {
  return {
    ...optional('name', readText(fields, 'name', faults)),
    ...optional('description', readText(fields, 'description', faults, 4096)),
    ...optional('created_at', readTime(fields, 'created_at', faults)),
    ...optional('updated_at', readTime(fields, 'updated_at', faults)),
    ...optional('expires_at', readTime(fields, 'expires_at', faults)),
  }
}

function readRuleId(fields: Fields, faults: Faults): string {
  const { rule_id: ruleId } = fields
  if (typeof ruleId === 'string' && RULE_ID.test(ruleId)) return ruleId
  faults.add('rule_id', ruleId, 'give 1 to 64 characters of a-z, 0-9, "_", "." and "-"')
  return ''
}

function readCost(fields: Fields, faults: Faults): number | string {
  if (typeof fields.cost === 'string') {
    if (namesNoAttribute(fields.cost)) faults.add('cost', fields.cost, NO_ATTRIBUTE_FIX)
    return readText(fields, 'cost', faults) ?? 1
  }
  return readNumber(fields, 'cost', { min: 1, max: 1_000_000_000 }, faults) ?? 1
}

function readFlag(fields: Fields, name: string, faults: Faults): boolean | undefined {
  const value = fields[name]
  if (value === undefined || typeof value === 'boolean') return value
  return faults.add(name, value, 'use true or false')
}

/** Leaky bucket and concurrency are always strict: whose turn it is, and who holds a permit, only the store knows. */
function readConsistency(fields: Fields, algorithm: AlgorithmName, faults: Faults): Rule['consistency'] {
  const strict = algorithm === 'leaky_bucket' || algorithm === 'concurrency'
  const given = readOneOf(fields, 'consistency', ['strict', 'leased', 'approximate', 'local'], faults)
  if (!strict) return given ?? 'leased'
  if (given !== undefined && given !== 'strict')
    faults.add('consistency', given, `use strict, or another algorithm: ${algorithm} has no other`)
  return 'strict'
}

function readLease(fields: Fields, consistency: Rule['consistency'], faults: Faults): Lease | undefined {
  const { lease } = fields
  if (lease === undefined) return undefined
  if (consistency === 'approximate' || consistency === 'local')
    return faults.add('lease', lease, `remove it: with consistency "${consistency}" nothing is held ahead`)
  if (!isFields(lease)) return faults.add('lease', lease, 'give an object with max_units, max_share or ttl_ms')
  const inside = faults.at('lease')
  for (const name of Object.keys(lease)) {
    if (!['max_units', 'max_share', 'ttl_ms'].includes(name)) inside.add(name, lease[name], 'unknown field; remove it')
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

function readApproximate(fields: Fields, consistency: Rule['consistency'], faults: Faults): Approximate | undefined {
  const { approximate } = fields
  if (approximate === undefined) return undefined
  if (consistency !== 'approximate')
    return faults.add('approximate', approximate, 'remove it, or use consistency "approximate": it is for that only')
  if (!isFields(approximate))
    return faults.add('approximate', approximate, 'give an object with sync_ms or max_unsynced')
  const inside = faults.at('approximate')
  for (const name of Object.keys(approximate)) {
    if (!['sync_ms', 'max_unsynced'].includes(name)) inside.add(name, approximate[name], 'unknown field; remove it')
  }
  return {
    ...optional('sync_ms', readNumber(approximate, 'sync_ms', SYNC_MS, inside)),
    ...optional('max_unsynced', readNumber(approximate, 'max_unsynced', { min: 1, max: 1_000_000_000 }, inside)),
  }
}

function optional<K extends string, V>(name: K, value: V | undefined): { readonly [key in K]?: V } {
  return value === undefined ? {} : ({ [name]: value } as { [key in K]: V })
}
