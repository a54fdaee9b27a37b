// What a rule demands of a request beyond method and path, as functions made once and asked for each request.

import { parseAddress } from '../http/address.ts'
import { matchesAny, parseCidr } from '../http/cidr.ts'
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

const READERS: Readonly<Record<string, FactReader>> = {
  user: (subject) => subject.user || undefined,
  api_key: (subject) => subject.apiKey || undefined,
  tenant: (subject) => subject.tenant || undefined,
  plan: (subject) => subject.plan || undefined,
  method: (subject) => subject.method?.toUpperCase() || undefined,
  path: (subject) => subject.path || undefined,
  ip: (subject) => subject.ip || undefined,
}

/** A fact by name; what has no name of its own is an attribute, with or without the prefix. */
export function readerOf(fact: string): FactReader {
  const own = READERS[fact]
  if (own !== undefined) return own
  const name = fact.startsWith(ATTRIBUTE) ? fact.slice(ATTRIBUTE.length) : fact
  return ({ attributes }) => {
    const value = attributes !== undefined && Object.hasOwn(attributes, name) ? attributes[name] : undefined
    return value === undefined || value === '' ? undefined : String(value)
  }
}

export function conditionsOf(rule: Rule): Condition[] {
  const conditions = Object.entries(rule.when).map(([fact, condition]) => compile(fact, condition))
  return rule.plan === undefined ? conditions : [...conditions, compile('plan', [rule.plan])]
}

function compile(fact: string, condition: RuleCondition): Condition {
  const negated = 'not' in condition
  const values = negated ? condition.not : condition
  const test = fact === 'ip' ? addressTest(values) : textTest(fact, values)
  const exact = negated || fact === 'ip' || values.some((value) => value.endsWith('*')) ? undefined : values
  // A request without the fact satisfies no demand, and every demand not to be something.
  return { fact, exact, holds: negated ? (subject) => !test(subject) : test }
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
  return ({ ip }) => {
    const address = ip ? parseAddress(ip) : undefined
    return address !== undefined && matchesAny(cidrs, address)
  }
}
