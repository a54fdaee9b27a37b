// The body of a check → the subject that the limiter decides about, and the last two checks that a schema cannot make.

import { type Fault, type Subject, suggestion } from 'sluice'
import { canonicalAddress, METHODS } from 'sluice/http'
import { invalidRequest, ProblemError } from '../../problems/problem.ts'
import { ADDRESS_FIX, type CheckBody, METHOD_FIX } from './schemas.ts'

export function subjectOf(body: CheckBody): Subject {
  const { method, ip_address: ip } = body
  const methodIsKnown = method === undefined || METHODS.has(method) || METHODS.has(method.toUpperCase())
  const addressIsKnown = ip === undefined || canonicalAddress(ip) !== undefined
  if (!methodIsKnown || !addressIsKnown) throw refusal(body, methodIsKnown, addressIsKnown)
  return {
    ip,
    user: body.client_id,
    apiKey: body.api_key,
    tenant: body.tenant,
    plan: body.plan,
    method,
    path: body.endpoint,
    cost: body.cost,
    attributes: body.attributes,
  }
}

function refusal({ method = '', ip_address: ip }: CheckBody, methodIsKnown: boolean, addressIsKnown: boolean): Error {
  const faults: Fault[] = []
  if (!methodIsKnown) {
    const hint = suggestion(method.toUpperCase(), [...METHODS])
    faults.push({ field: 'method', value: method, fix: hint ? `unknown method${hint}` : METHOD_FIX })
  }
  if (!addressIsKnown) faults.push({ field: 'ip_address', value: ip, fix: ADDRESS_FIX })
  return new ProblemError(invalidRequest(faults))
}
