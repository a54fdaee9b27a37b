// Requests of a client that can be explained: taken from its recorded events or from the patterns of rules.

import type { Client, ClientKind } from '../../clients.ts'
import type { DecisionEvent } from '../live/event.ts'

/** Body of an explanation. */
export type Facts = {
  readonly client_id?: string
  readonly api_key?: string
  readonly ip_address?: string
  readonly tenant?: string
  readonly plan?: string
  readonly method?: string
  readonly endpoint?: string
}

const FIELDS: Readonly<Record<ClientKind, keyof Facts>> = {
  user: 'client_id',
  api_key: 'api_key',
  ip: 'ip_address',
  tenant: 'tenant',
}

export function factsOf({ kind, id }: Client): Facts {
  return { [FIELDS[kind]]: id }
}

/** Different requests of the client, newest first. Other facts belong to it only if the client is one user or key. */
export function recentRequests(client: Client, events: readonly DecisionEvent[], max: number): readonly Facts[] {
  const found = new Map<string, Facts>()
  for (const event of events) {
    if (found.size >= max) break
    const { method, endpoint } = event
    const more = client.kind === 'user' || client.kind === 'api_key' ? otherFacts(event) : {}
    const facts = { ...more, ...factsOf(client), ...(method && { method }), ...(endpoint && { endpoint }) }
    const key = requestText(facts)
    if (!found.has(key)) found.set(key, facts)
  }
  return [...found.values()]
}

/** Hashed facts cannot be used in a request. */
function otherFacts({ client_id: user, api_key: key, ip, tenant, plan }: DecisionEvent): Facts {
  const isPlain = (text: string | null): text is string => text !== null && !text.startsWith('hmac:')
  return {
    ...(isPlain(user) && { client_id: user }),
    ...(isPlain(key) && { api_key: key }),
    ...(isPlain(ip) && { ip_address: ip }),
    ...(isPlain(tenant) && { tenant }),
    ...(isPlain(plan) && { plan }),
  }
}

export type RuleFacts = {
  readonly rule_id: string
  readonly endpoint_pattern?: string
  readonly method?: string | readonly string[]
}

/** Requests that the rules are for, for a client without events. Patterns with wildcards name no request. */
export function requestsOfRules(client: Client, rules: readonly RuleFacts[], max: number): readonly Facts[] {
  const found = new Map<string, Facts>()
  for (const { endpoint_pattern: endpoint, method } of rules) {
    if (found.size >= max) break
    if (endpoint === undefined || /[*{:]/.test(endpoint)) continue
    const first = typeof method === 'string' ? method : method?.[0]
    const facts = { ...factsOf(client), endpoint, ...(first !== undefined && first !== '*' && { method: first }) }
    found.set(requestText(facts), facts)
  }
  return [...found.values()]
}

export function requestText({ method, endpoint }: Facts): string {
  return `${method ?? 'any method'} ${endpoint ?? '/'}`
}
