// Rules and requests of demo traffic: a few users with a normal pace, one that sends too much, and logins from one
// address. No real client has these users, paths and addresses (RFC 5737). Each address sends so little that a limit
// per address on every path, such as address_flood of the example rules, does not apply before the demo rules.

import type { RuleInput, Subject } from 'sluice'

const PATH = '/sluice-demo'
const TENANT = 'demo'
/** Prefix of the ids of all demo rules. */
const PREFIX = 'demo_traffic_'

const RULES = [
  {
    ...{ rule_id: `${PREFIX}messages`, name: 'Demo: posting messages', endpoint_pattern: `${PATH}/messages` },
    ...{ method: 'POST', scope: 'per_user', algorithm: 'token_bucket', limit: 300, window_seconds: 10, burst: 300 },
  },
  {
    ...{ rule_id: `${PREFIX}search`, name: 'Demo: search', endpoint_pattern: `${PATH}/search` },
    ...{ method: 'GET', scope: 'per_ip', algorithm: 'sliding_window', limit: 150, window_seconds: 10 },
  },
  {
    ...{ rule_id: `${PREFIX}login`, name: 'Demo: logins', endpoint_pattern: `${PATH}/login` },
    ...{ method: 'POST', scope: 'per_ip', algorithm: 'fixed_window', limit: 10, window_seconds: 10 },
  },
] as const satisfies readonly RuleInput[]

export const DEMO_RULE_IDS: readonly string[] = RULES.map(({ rule_id: id }) => id)

/** Rules with an expiry, in case the node stops before it removes them. */
export function demoRules(expiresAt: string): readonly RuleInput[] {
  return RULES.map((rule) => ({ ...rule, expires_at: expiresAt, description: 'Removed when the demo traffic ends.' }))
}

const USERS = ['demo-alice', 'demo-bob', 'demo-carol', 'demo-dave', 'demo-erin', 'demo-frank']
/** Period of the waves in the traffic, in requests. */
const WAVE = 2400

/** Addresses that a user sends messages from; the greedy one has twice as many. */
const ADDRESSES = 8

/** The nth request of the demo. In the second half of each wave, one user sends half of all requests. */
export function demoRequest(n: number): Subject {
  const round = Math.floor(n / USERS.length)
  if (n % 100 === 0) return post('/login', { ip: '198.51.100.99', plan: 'free' })
  if (n % WAVE > WAVE / 2 && round % 2 === 0) {
    return post('/messages', { user: 'demo-greedy', ip: `203.0.113.${1 + (n % (2 * ADDRESSES))}`, plan: 'free' })
  }
  const index = n % USERS.length
  const client = { user: USERS[index], plan: index < 2 ? 'pro' : 'free' }
  if (round % 3 === 0) {
    return { ...client, ip: `192.0.2.${index + 1}`, tenant: TENANT, method: 'GET', path: `${PATH}/search` }
  }
  return post('/messages', { ...client, ip: `198.51.100.${1 + index * ADDRESSES + (round % ADDRESSES)}` })
}

function post(path: string, client: Subject): Subject {
  return { ...client, tenant: TENANT, method: 'POST', path: PATH + path }
}

/** One request for each demo rule. */
export const DEMO_SAMPLES: readonly Subject[] = [0, 1, USERS.length].map(demoRequest)
