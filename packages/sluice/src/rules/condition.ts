// What a rule demands of a request beyond method and path, as functions made once and asked for each request.

import { subjectInvalid } from '../errors.ts'
import { parseAddress } from '../http/address.ts'
import { matchesAny, parseCidr } from '../http/cidr.ts'
import { foldedCase } from '../http/path-readings.ts'
import type { Subject } from '../subject.ts'
import { ATTRIBUTE, type Rule, type RuleCondition } from './rule.ts'

/** The text of a fact, or undefined when the request has none. The empty text is none. */
export type FactReader = (subject: Subject) => string | undefined

export type Condition = {
  readonly fact: string
  /** The exact texts that satisfy it, when that is all it takes: the index files the rule under them. */
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

/** A fact by name; what has no name of its own is an attribute, with or without the prefix. */
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
 * Facts often come from untyped places, a JSON body or a session. A number or an object is refused rather than made a
 * text: every object would be the same text, and their owners would share one bucket.
 */
export function textOf(fact: string, value: string | null | undefined): string | undefined {
  if (typeof value === 'string') return value === '' ? undefined : value
  if (value === undefined || value === null) return undefined
  throw subjectInvalid(fact, value, 'give a text')
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
  // A request without the fact satisfies no demand, and every demand not to be something.
  return { fact, exact, holds: negated ? (subject) => !test(subject) : test }
}

/** Rules for GET are for HEAD too: routers answer it with the same handler. */
export function withHead(methods: readonly string[]): readonly string[] {
  return methods.includes('GET') && !methods.includes('HEAD') ? [...methods, 'HEAD'] : methods
}

/** Paths and methods in the form in which those of requests are compared with them. */
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
