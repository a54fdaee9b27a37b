// Parses which requests a rule matches, and which facts form its key.

import { parseCidr } from '../canonical/cidr.ts'
import { METHODS } from '../canonical/method.ts'
import { canonicalPath } from '../canonical/path.ts'
import { nearest, synonym } from '../nearest.ts'
import type { FieldErrors } from './field-errors.ts'
import { hasControl, isFields } from './fields.ts'
import { ANYWHERE, patternFix } from './pattern.ts'
import { ATTRIBUTE, FACTS, type RuleCondition, SCOPES } from './rule.ts'

type Fields = Readonly<Record<string, unknown>>

/** Never an attribute of a request: it is the prototype in an object literal, and the service rejects it. */
const FORBIDDEN_ATTRIBUTE = '__proto__'
export const FORBIDDEN_FIX: string = `choose another name: no attribute can be called "${FORBIDDEN_ATTRIBUTE}"`

const PATTERN_LENGTH_MAX = 500
const CONDITIONS_MAX = 32
const VALUES_MAX = 10_000
const SCOPE_FACTS_MAX = 16

export function readPattern(fields: Fields, errors: FieldErrors): string {
  const { endpoint_pattern: pattern } = fields
  if (pattern === undefined || pattern === '*' || pattern === '**') return ANYWHERE
  if (typeof pattern !== 'string' || pattern === '' || pattern.length > PATTERN_LENGTH_MAX || hasControl(pattern)) {
    errors.add(
      'endpoint_pattern',
      pattern,
      `give a path of 1 to ${PATTERN_LENGTH_MAX} characters, such as "/users/:id"`,
    )
    return ANYWHERE
  }
  const why = patternFix(pattern)
  if (why !== undefined) errors.add('endpoint_pattern', pattern, why)
  return pattern
}

export function readMethods(fields: Fields, errors: FieldErrors): string[] {
  const { method } = fields
  if (method === undefined || method === '*') return []
  const methods = Array.isArray(method) ? method : [method]
  if (methods.length > METHODS.size) {
    errors.add('method', methods.length, `give at most ${METHODS.size} methods`)
    return []
  }
  return methods.map((value) => {
    const upper = typeof value === 'string' ? value.toUpperCase() : ''
    if (METHODS.has(upper)) return upper
    const meant = nearest(upper, [...METHODS])
    errors.add('method', value, meant ? `unknown method; did you mean "${meant}"?` : `use ${[...METHODS].join(', ')}`)
    return ''
  })
}

export function readScope(fields: Fields, errors: FieldErrors): string[] {
  const { scope } = fields
  if (scope === undefined) return []
  if (typeof scope === 'string' && Object.hasOwn(SCOPES, scope)) return [...(SCOPES[scope] ?? [])]
  if (Array.isArray(scope) && scope.length > SCOPE_FACTS_MAX) {
    errors.add('scope', scope.length, `give at most ${SCOPE_FACTS_MAX} facts`)
    return []
  }
  if (Array.isArray(scope)) return scope.map((fact) => readFact(fact, errors))
  if (typeof scope === 'string' && scope.startsWith(ATTRIBUTE)) return [readFact(scope, errors)]
  const meant = typeof scope === 'string' ? knownScope(scope) : undefined
  errors.add(
    'scope',
    scope,
    meant ? `did you mean "${meant}"?` : `use ${Object.keys(SCOPES).join(', ')} or a list such as [user, endpoint]`,
  )
  return []
}

function knownScope(scope: string): string | undefined {
  const fact = knownFact(scope)
  const names = Object.keys(SCOPES)
  return names.find((name) => name === `per_${fact}`) ?? nearest(scope, names)
}

function readFact(fact: unknown, errors: FieldErrors): string {
  const known = typeof fact === 'string' && (FACTS.some((name) => name === fact) || isAttribute(fact))
  if (known && !isForbiddenAttribute(fact)) return fact
  const meant = knownFact(fact)
  const hint = meant === undefined ? '' : `did you mean "${meant}"? `
  const fix = known ? FORBIDDEN_FIX : `${hint}use ${FACTS.join(', ')}, or "${ATTRIBUTE}<name>" for an attribute`
  errors.add('scope', fact, fix)
  return ''
}

/** `user` for `client_id`, `per_client_id` and `per_user`. */
function knownFact(name: unknown): string | undefined {
  return typeof name === 'string' ? synonym(name.replace(/^per_/, ''), FACTS) : undefined
}

function isAttribute(fact: string): boolean {
  return fact.startsWith(ATTRIBUTE) && fact.length > ATTRIBUTE.length && !hasControl(fact)
}

/** With or without the prefix: `when` and `cost` accept both. */
export function isForbiddenAttribute(fact: string): boolean {
  return fact === FORBIDDEN_ATTRIBUTE || fact === ATTRIBUTE + FORBIDDEN_ATTRIBUTE
}

export function readConditions(fields: Fields, errors: FieldErrors): Record<string, RuleCondition> {
  const { when = {} } = fields
  if (!isFields(when)) {
    errors.add('when', when, 'give an object of fact: value')
    return {}
  }
  const entries = Object.entries(when)
  if (entries.length > CONDITIONS_MAX) {
    errors.add('when', entries.length, `give at most ${CONDITIONS_MAX} conditions`)
    return {}
  }
  const conditions = entries.map(([fact, given]): [string, RuleCondition] => {
    const inside = errors.at('when')
    if (fact === '' || hasControl(fact)) inside.add(fact, given, 'name a fact or an attribute of the request')
    if (isForbiddenAttribute(fact)) inside.add(fact, given, FORBIDDEN_FIX)
    if (isNegation(given)) return [fact, { not: readValues(fact, given.not, inside) }]
    return [fact, readValues(fact, given, inside)]
  })
  return Object.fromEntries(conditions)
}

function isNegation(given: unknown): given is { not: unknown } {
  return typeof given === 'object' && given !== null && Object.keys(given).join() === 'not'
}

function readValues(fact: string, given: unknown, errors: FieldErrors): string[] {
  const values = Array.isArray(given) ? given : [given]
  if (values.length === 0 || values.length > VALUES_MAX) {
    errors.add(fact, given, `give 1 to ${VALUES_MAX} values`)
    return []
  }
  return values.map((value) => {
    const given = ['string', 'number', 'boolean'].includes(typeof value) ? String(value) : ''
    const text = fact === 'method' ? given.toUpperCase() : given
    const fix =
      text === '' || hasControl(text) ? 'give a string, a list of strings, or { not: … }' : valueFix(fact, text)
    if (fix !== undefined) errors.add(fact, value, fix)
    return text
  })
}

/** Reason that no request can have this value; undefined if one can. */
function valueFix(fact: string, text: string): string | undefined {
  if (fact === 'ip') return parseCidr(text) ? undefined : 'give an address or a CIDR such as "10.0.0.0/8"'
  const whole = !text.endsWith('*')
  if (text.slice(0, -1).includes('*')) return '"*" may only be the last character'
  if (fact === 'method' && whole && !METHODS.has(text)) return `unknown method; use ${[...METHODS].join(', ')}`
  if ((fact === 'path' || fact === 'endpoint') && whole && canonicalPath(text) !== text)
    return `no request has such a path; write "${canonicalPath(text)}"`
  return undefined
}
