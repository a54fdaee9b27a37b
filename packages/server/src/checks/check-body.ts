// Body of a check, and its conversion to a subject. Checks what a schema cannot: known methods and valid addresses.

import { type FieldError, LimiterError, type Subject, suggestion } from 'sluice'
import { canonicalAddress, METHODS } from 'sluice/http'
import { invalidRequest, ProblemError } from '../problems/problem.ts'

/** Validated by the schema CHECK_BODY. */
export type CheckBody = {
  readonly client_id?: string
  readonly endpoint?: string
  readonly method?: string
  readonly ip_address?: string
  readonly api_key?: string
  readonly tenant?: string
  readonly plan?: string
  readonly cost?: number
  readonly bypass_token?: string
  readonly attributes?: Readonly<Record<string, string | number | boolean>>
  readonly dry_run?: boolean
  readonly request_id?: string
  readonly detail?: boolean
}

export const METHOD_FIX = 'use an HTTP method, such as GET or POST'
export const ADDRESS_FIX = 'give an IPv4 or IPv6 address, such as 203.0.113.42'

export function subjectFromBody(body: CheckBody): Subject {
  const { method, ip_address: ip } = body
  const methodIsKnown = method === undefined || METHODS.has(method) || METHODS.has(method.toUpperCase())
  const addressIsKnown = ip === undefined || canonicalAddress(ip) !== undefined
  if (!methodIsKnown || !addressIsKnown) throw invalidBody(body, methodIsKnown, addressIsKnown)
  return {
    ip,
    user: body.client_id,
    apiKey: body.api_key,
    tenant: body.tenant,
    plan: body.plan,
    method,
    path: body.endpoint,
    cost: body.cost,
    bypassToken: body.bypass_token,
    attributes: body.attributes,
  }
}

const TEXT_FACTS: readonly string[] = ['ip', 'user', 'apiKey', 'tenant', 'plan', 'method', 'path', 'bypassToken']
/** As in the body of a check. */
const SUBJECT_LENGTH_MAX = 64 * 1024
const COST_FIX = 'give a whole number from 1 to 1000000000'

/**
 * Subject of a remote node, with the names of the library. Throws LimiterError unless every fact has its type: other
 * values would be counted under keys that no other entry point uses, and could not be recorded as events.
 */
export function subjectFromJson(text: string): Subject {
  const sent = text.length <= SUBJECT_LENGTH_MAX ? parsed(text) : undefined
  if (typeof sent !== 'object' || sent === null || Array.isArray(sent)) {
    const fix = `give the facts of the request as a JSON object of at most ${SUBJECT_LENGTH_MAX} characters`
    throw invalidFact('subject_json', sent, fix)
  }
  for (const [name, value] of Object.entries(sent)) {
    if (TEXT_FACTS.includes(name) && typeof value !== 'string') {
      throw invalidFact(`subject.${name}`, value, 'give a string, or leave it out')
    }
    if (name === 'cost' && !isCost(value)) throw invalidFact('subject.cost', value, COST_FIX)
    if (name === 'attributes') requireAttributes(value)
  }
  return sent as Subject // the limiter rejects unknown facts
}

/** Undefined: not JSON. */
function parsed(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

/** Facts may be secrets: of texts, lists and objects, only the type is shown. */
function invalidFact(field: string, value: unknown, fix: string): LimiterError {
  const isScalar = value === null || typeof value === 'number' || typeof value === 'boolean'
  const shown = isScalar ? String(value) : Array.isArray(value) ? 'a list' : `of type ${typeof value}`
  return new LimiterError('SUBJECT_INVALID', `${field} = ${shown}: ${fix}`)
}

function isCost(value: unknown): boolean {
  return typeof value === 'number' && Number.isInteger(value) && value >= 1 && value <= 1_000_000_000
}

function requireAttributes(sent: unknown): void {
  if (typeof sent !== 'object' || sent === null || Array.isArray(sent)) {
    throw invalidFact('subject.attributes', sent, 'give an object of strings, numbers, true or false')
  }
  for (const [name, value] of Object.entries(sent)) {
    if (['string', 'number', 'boolean'].includes(typeof value)) continue
    throw invalidFact(`subject.attributes.${name}`, value, 'give a string, a number, true or false')
  }
}

function invalidBody(
  { method = '', ip_address: ip }: CheckBody,
  methodIsKnown: boolean,
  addressIsKnown: boolean,
): Error {
  const fieldErrors: FieldError[] = []
  if (!methodIsKnown) {
    const hint = suggestion(method.toUpperCase(), [...METHODS])
    fieldErrors.push({ field: 'method', value: method, fix: hint ? `unknown method${hint}` : METHOD_FIX })
  }
  if (!addressIsKnown) fieldErrors.push({ field: 'ip_address', value: ip, fix: ADDRESS_FIX })
  return new ProblemError(invalidRequest(fieldErrors))
}
