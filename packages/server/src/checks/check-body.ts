// Body of a check, and its conversion to a subject. Checks what a schema cannot: known methods and valid addresses.

import { type FieldError, type Subject, suggestion } from 'sluice'
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
