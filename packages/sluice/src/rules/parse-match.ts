// Which requests a rule is for, and which facts form its key.

import { parseCidr } from '../http/cidr.ts'
import { METHODS } from '../http/method.ts'
import { canonicalPath } from '../http/path.ts'
import { nearest } from '../nearest.ts'
import type { Faults } from './faults.ts'
import { hasControl, isFields } from './fields.ts'
import { ANYWHERE, unreachable } from './pattern.ts'
import { ATTRIBUTE, FACTS, type RuleCondition, SCOPES } from './rule.ts'

type Fields = Readonly<Record<string, unknown>>

/** No request carries it: in an object literal it is the prototype, and the service refuses it. */
const NO_ATTRIBUTE = '__proto__'
export const NO_ATTRIBUTE_FIX: string = `choose another name: no request can have an attribute called "${NO_ATTRIBUTE}"`

const PATTERN_LENGTH_MAX = 500
const CONDITIONS_MAX = 32
const VALUES_MAX = 10_000

export function readPattern(fields: Fields, faults: Faults): string {
  const { endpoint_pattern: pattern } = fields
  if (pattern === undefined || pattern === '*' || pattern === '**') return ANYWHERE
  if (typeof pattern !== 'string' || pattern === '' || pattern.length > PATTERN_LENGTH_MAX || hasControl(pattern)) {
    faults.add(
      'endpoint_pattern',
      pattern,
      `give a path of 1 to ${PATTERN_LENGTH_MAX} characters, such as "/users/:id"`,
    )
    return ANYWHERE
  }
  const why = unreachable(pattern)
  if (why !== undefined) faults.add('endpoint_pattern', pattern, why)
  return pattern
}

export function readMethods(fields: Fields, faults: Faults): string[] {
  const { method } = fields
  if (method === undefined || method === '*') return []
  const methods = Array.isArray(method) ? method : [method]
  return methods.map((value) => {
    const upper = typeof value === 'string' ? value.toUpperCase() : ''
    if (METHODS.has(upper)) return upper
    const meant = nearest(upper, [...METHODS])
    faults.add('method', value, meant ? `unknown method; did you mean "${meant}"?` : `use ${[...METHODS].join(', ')}`)
    return ''
  })
}

export function readScope(fields: Fields, faults: Faults): string[] {
  const { scope } = fields
  if (scope === undefined) return []
  if (typeof scope === 'string' && Object.hasOwn(SCOPES, scope)) return [...(SCOPES[scope] ?? [])]
  if (Array.isArray(scope)) return scope.map((fact) => readFact(fact, faults))
  if (typeof scope === 'string' && scope.startsWith(ATTRIBUTE)) return [readFact(scope, faults)]
  const names = Object.keys(SCOPES)
  const meant = typeof scope === 'string' ? nearest(scope, names) : undefined
  faults.add(
    'scope',
    scope,
    meant ? `did you mean "${meant}"?` : `use ${names.join(', ')} or a list such as [user, endpoint]`,
  )
  return []
}

function readFact(fact: unknown, faults: Faults): string {
  const known = typeof fact === 'string' && (FACTS.some((name) => name === fact) || isAttribute(fact))
  if (known && !namesNoAttribute(fact)) return fact
  const fix = known ? NO_ATTRIBUTE_FIX : `use ${FACTS.join(', ')}, or "${ATTRIBUTE}<name>" for an attribute`
  faults.add('scope', fact, fix)
  return ''
}

function isAttribute(fact: string): boolean {
  return fact.startsWith(ATTRIBUTE) && fact.length > ATTRIBUTE.length && !hasControl(fact)
}

/** With or without the prefix: `when` and `cost` take both. */
export function namesNoAttribute(fact: string): boolean {
  return fact === NO_ATTRIBUTE || fact === ATTRIBUTE + NO_ATTRIBUTE
}

export function readConditions(fields: Fields, faults: Faults): Record<string, RuleCondition> {
  const { when = {} } = fields
  if (!isFields(when)) {
    faults.add('when', when, 'give an object of fact: value')
    return {}
  }
  const entries = Object.entries(when)
  if (entries.length > CONDITIONS_MAX) faults.add('when', entries.length, `give at most ${CONDITIONS_MAX} conditions`)
  const conditions = entries.map(([fact, given]): [string, RuleCondition] => {
    const inside = faults.at('when')
    if (fact === '' || hasControl(fact)) inside.add(fact, given, 'name a fact or an attribute of the request')
    if (namesNoAttribute(fact)) inside.add(fact, given, NO_ATTRIBUTE_FIX)
    if (isNegation(given)) return [fact, { not: readValues(fact, given.not, inside) }]
    return [fact, readValues(fact, given, inside)]
  })
  return Object.fromEntries(conditions)
}

function isNegation(given: unknown): given is { not: unknown } {
  return typeof given === 'object' && given !== null && Object.keys(given).join() === 'not'
}

function readValues(fact: string, given: unknown, faults: Faults): string[] {
  const values = Array.isArray(given) ? given : [given]
  if (values.length === 0 || values.length > VALUES_MAX) faults.add(fact, given, `give 1 to ${VALUES_MAX} values`)
  return values.map((value) => {
    const given = ['string', 'number', 'boolean'].includes(typeof value) ? String(value) : ''
    const text = fact === 'method' ? given.toUpperCase() : given
    const fix = text === '' || hasControl(text) ? 'give a text, a list of texts, or { not: … }' : misfit(fact, text)
    if (fix !== undefined) faults.add(fact, value, fix)
    return text
  })
}

/** Why no request could have a fact of this text; undefined when one can. */
function misfit(fact: string, text: string): string | undefined {
  if (fact === 'ip') return parseCidr(text) ? undefined : 'give an address or a CIDR such as "10.0.0.0/8"'
  const whole = !text.endsWith('*')
  if (text.slice(0, -1).includes('*')) return '"*" may only be the last character'
  if (fact === 'method' && whole && !METHODS.has(text)) return `unknown method; use ${[...METHODS].join(', ')}`
  if ((fact === 'path' || fact === 'endpoint') && whole && canonicalPath(text) !== text)
    return `no request has such a path; write "${canonicalPath(text)}"`
  return undefined
}
