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
  readonly cost?: number
  readonly attributes?: Readonly<Record<string, unknown>>
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

/** Whether an id is the hash that events store: the service finds its buckets, but no override can have it as key. */
export function isHashed(id: string): boolean {
  return id.startsWith('hmac:')
}

/** The same request without facts that are stored as hashes; undefined if the client itself is one, or none is. */
export function withoutHashes(client: Client, facts: Facts): Facts | undefined {
  const kept = Object.entries(facts).filter(([, value]) => typeof value !== 'string' || !isHashed(value))
  return isHashed(client.id) || kept.length === Object.keys(facts).length ? undefined : Object.fromEntries(kept)
}

/** Different requests of the client, newest first. Other facts belong to it only if the client is one user or key. */
export function recentRequests(client: Client, events: readonly DecisionEvent[], max: number): readonly Facts[] {
  const found = new Map<string, Facts>()
  for (const event of events.filter(({ operation }) => operation === 'check')) {
    if (found.size >= max) break
    const { method, endpoint } = event
    const more = client.kind === 'user' || client.kind === 'api_key' ? otherFacts(event) : {}
    const facts = { ...more, ...factsOf(client), ...(method && { method }), ...(endpoint && { endpoint }) }
    const key = requestText(facts)
    if (!found.has(key)) found.set(key, facts)
  }
  return [...found.values()]
}

function otherFacts(event: DecisionEvent): Facts {
  const { client_id: user, api_key: key, ip, tenant, plan, request_cost: cost, attributes } = event
  return {
    ...(user !== null && { client_id: user }),
    ...(key !== null && { api_key: key }),
    ...(ip !== null && { ip_address: ip }),
    ...(tenant !== null && { tenant }),
    ...(plan !== null && { plan }),
    ...(cost !== null && cost > 1 && { cost }),
    ...(attributes !== null && { attributes: JSON.parse(attributes) as Readonly<Record<string, unknown>> }),
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
