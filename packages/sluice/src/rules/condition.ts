// Conditions of a rule beyond method and path, compiled to functions of the subject.

import { parseAddress } from '../canonical/address.ts'
import { matchesAny, parseCidr } from '../canonical/cidr.ts'
import { foldedCase } from '../canonical/path-readings.ts'
import { subjectInvalid } from '../errors.ts'
import type { Subject } from '../subject.ts'
import { ATTRIBUTE, type Rule, type RuleCondition } from './rule.ts'

/** Value of a fact; undefined if it is absent or empty. */
export type FactReader = (subject: Subject) => string | undefined

export type Condition = {
  readonly fact: string
  /** The values that satisfy it, if an exact match is all it needs; the index looks rules up by them. */
  readonly exact: readonly string[] | undefined
  holds(subject: Subject): boolean
}

const READERS: ReadonlyMap<string, FactReader> = new Map<string, FactReader>([
  ['user', (subject) => textOf('user', subject.user)],
  ['api_key', (subject) => textOf('apiKey', subject.apiKey)],
  ['tenant', (subject) => textOf('tenant', subject.tenant)],
  ['plan', (subject) => textOf('plan', subject.plan)],
  ['method', (subject) => textOf('method', subject.method)?.toUpperCase()],
  ['path', (subject) => textOf('path', subject.path)],
  ['endpoint', (subject) => textOf('path', subject.path)],
  ['ip', (subject) => textOf('ip', subject.ip)],
])

/** Reader of a fact by name. Any name that is not a built-in fact is an attribute, with or without the prefix. */
export function readerOf(fact: string): FactReader {
  const own = READERS.get(fact)
  if (own !== undefined) return own
  const name = fact.startsWith(ATTRIBUTE) ? fact.slice(ATTRIBUTE.length) : fact
  return ({ attributes }) => {
    const value = attributes && Object.hasOwn(attributes, name) ? attributes[name] : undefined
    const plain = typeof value === 'number' || typeof value === 'boolean' ? String(value) : value
    return textOf(`${ATTRIBUTE}${name}`, plain)
  }
}

/**
 * Facts often come from untyped sources, such as a JSON body or a session. Rejects numbers and objects instead of
 * converting them: every object would become the same string, and all clients would share one bucket.
 */
export function textOf(fact: string, value: string | null | undefined): string | undefined {
  if (typeof value === 'string') return value === '' ? undefined : value
  if (value === undefined || value === null) return undefined
  throw subjectInvalid(fact, value, 'give a string')
}

export function conditionsOf(rule: Rule): Condition[] {
  const conditions = Object.entries(rule.when).map(([fact, condition]) => compile(fact, condition))
  return rule.plan === undefined ? conditions : [...conditions, compile('plan', [rule.plan])]
}

function compile(fact: string, condition: RuleCondition): Condition {
  const negated = 'not' in condition
  const values = comparable(fact, negated ? condition.not : condition)
  const test = fact === 'ip' ? addressTest(values) : textTest(fact, values)
  const exact = negated || fact === 'ip' || values.some((value) => value.endsWith('*')) ? undefined : values
  // A request without the fact satisfies no condition, and every `not`.
  return { fact, exact, holds: negated ? (subject) => !test(subject) : test }
}

/** Rules for GET include HEAD: routers use the same handler. */
export function withHead(methods: readonly string[]): readonly string[] {
  return methods.includes('GET') && !methods.includes('HEAD') ? [...methods, 'HEAD'] : methods
}

/** Values in the normalised form of the request's facts. */
function comparable(fact: string, values: readonly string[]): readonly string[] {
  if (fact === 'path' || fact === 'endpoint') return values.map(foldedCase)
  return fact === 'method' ? withHead(values) : values
}

function textTest(fact: string, values: readonly string[]): (subject: Subject) => boolean {
  const read = readerOf(fact)
  const whole = new Set(values.filter((value) => !value.endsWith('*')))
  const prefixes = values.filter((value) => value.endsWith('*')).map((value) => value.slice(0, -1))
  return (subject) => {
    const text = read(subject)
    return text !== undefined && (whole.has(text) || prefixes.some((prefix) => text.startsWith(prefix)))
  }
}

function addressTest(values: readonly string[]): (subject: Subject) => boolean {
  const cidrs = values.map(parseCidr).filter((cidr) => cidr !== undefined)
  return (subject) => {
    const ip = textOf('ip', subject.ip)
    const address = ip === undefined ? undefined : parseAddress(ip)
    return address !== undefined && matchesAny(cidrs, address)
  }
}
