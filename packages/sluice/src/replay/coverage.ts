// Coverage of rules: how completely a recording can replay each. A sample contains all requests of some clients: a
// bucket of one such client is complete, a bucket that several clients share is not.

import { hasPermits } from '../algorithms/traits.ts'
import { ATTRIBUTE, type Rule } from '../rules/rule.ts'
import type { Subject } from '../subject.ts'
import { clientKind, type RecordedRequest } from './recorded-request.ts'
import type { Coverage } from './result.ts'

/** Cap on attribute names. A rule that needs an attribute beyond it is reported as `missing_facts`. */
const NAMES_MAX = 1000
const BUILT_IN: readonly string[] = ['ip', 'user', 'api_key', 'tenant', 'plan', 'method', 'endpoint']

/** Facts that occur in a recording. */
export class SeenFacts {
  requests = 0
  user = false
  apiKey = false
  ip = false
  ipv6 = false
  tenant = false
  plan = false
  method = false
  path = false
  releases = false
  /** Events that were not stored. */
  lost = 0
  /** An API key in a request whose client is the user. */
  keyOfUser = false
  /** An address in a request whose client is the user or the API key. */
  ipOfOther = false
  readonly attributes: Set<string> = new Set<string>()

  add(subject: Subject): void {
    const { user, apiKey, ip, attributes } = subject
    this.requests += 1
    if (user !== undefined) this.user = true
    if (apiKey !== undefined) this.apiKey = true
    if (ip !== undefined) this.ip = true
    if (subject.tenant !== undefined) this.tenant = true
    if (subject.plan !== undefined) this.plan = true
    if (subject.method !== undefined) this.method = true
    if (subject.path !== undefined) this.path = true
    if (attributes === undefined) return
    for (const name in attributes) if (this.attributes.size < NAMES_MAX) this.attributes.add(name)
  }

  /** Facts that matter for sampled recordings only. */
  addClient(subject: Subject): void {
    const { user, apiKey, ip } = subject
    if (user !== undefined && apiKey !== undefined) this.keyOfUser = true
    if (ip === undefined) return
    if (clientKind(subject) !== 'ip') this.ipOfOther = true
    if (ip.includes(':')) this.ipv6 = true
  }

  has(fact: string): boolean {
    switch (fact) {
      case 'user':
        return this.user
      case 'ip':
        return this.ip
      case 'api_key':
        return this.apiKey
      case 'tenant':
        return this.tenant
      case 'plan':
        return this.plan
      case 'method':
        return this.method
      case 'endpoint':
        return this.path
      default:
        return this.attributes.has(fact.startsWith(ATTRIBUTE) ? fact.slice(ATTRIBUTE.length) : fact)
    }
  }
}

export function seenFacts(requests: Iterable<RecordedRequest>): SeenFacts {
  const seen = new SeenFacts()
  for (const request of requests) {
    if (request.kind === 'refund') seen.releases = true
    if (request.kind !== 'check') continue
    seen.add(request.subject)
    seen.addClient(request.subject)
  }
  return seen
}

type Covered = { readonly coverage: Coverage; readonly reason?: string }

export function coverageOf(rule: Rule, seen: SeenFacts, sampleRate: number): Covered {
  const missing = missingFacts(rule, seen)
  if (missing.length > 0 && seen.requests > 0) {
    const reason = `no recorded request has ${missing.join(' or ')}`
    return { coverage: 'missing_facts', reason }
  }
  if (hasPermits(rule) && !seen.releases) {
    return { coverage: 'missing_facts', reason: 'the recording does not say when requests end' }
  }
  if (seen.lost > 0 && (sampleRate >= 1 || sharedBy(rule, seen) === undefined)) {
    return { coverage: 'incomplete', reason: `${seen.lost} events of this time were not stored` }
  }
  if (sampleRate >= 1) return { coverage: 'exact' }
  const shared = sharedBy(rule, seen)
  if (shared === undefined)
    return { coverage: 'scaled', reason: `estimated from ${percent(sampleRate)} of the clients` }
  return { coverage: 'needs_full_sample', reason: `${shared}; record with sample 1` }
}

/** Rules to leave out of the replay of a sample. */
export function sharedRules(rules: readonly Rule[], seen: SeenFacts, sampleRate: number): string[] {
  return sampleRate >= 1 ? [] : rules.filter((rule) => sharedBy(rule, seen) !== undefined).map(({ rule_id: id }) => id)
}

/** Facts without which the rule never applies, or charges wrong units. */
function missingFacts(rule: Rule, seen: SeenFacts): string[] {
  const key = rule.on_missing === 'skip' ? rule.scope : []
  const conditions = Object.entries(rule.when).flatMap(([fact, condition]) => ('not' in condition ? [] : [fact]))
  const others = [rule.plan === undefined ? '' : 'plan', rule.method.length === 0 ? '' : 'method']
  const cost = typeof rule.cost === 'string' ? [rule.cost] : []
  const needed = [...key, ...conditions, ...others.filter((fact) => fact !== ''), ...cost]
  return [...new Set(needed)].filter((fact) => !seen.has(fact)).map(shownFact)
}

function shownFact(fact: string): string {
  if (BUILT_IN.includes(fact)) return fact
  return `the attribute ${fact.startsWith(ATTRIBUTE) ? fact.slice(ATTRIBUTE.length) : fact}`
}

/** Reason that several clients share a bucket of the rule; undefined if each bucket belongs to one client. */
function sharedBy(rule: Rule, seen: SeenFacts): string | undefined {
  const byIp = rule.on_missing === 'by_ip' && seen.ipOfOther && !rule.scope.includes('ip')
  if (byIp) return 'requests without the key share the buckets of their address'
  if (rule.scope.includes('user')) return undefined
  if (rule.scope.includes('api_key')) return seen.keyOfUser ? 'several users can share an API key' : undefined
  if (!rule.scope.includes('ip')) return 'all clients share its buckets'
  if (seen.ipOfOther) return 'several clients can share an address'
  return seen.ipv6 ? 'several IPv6 addresses share a bucket' : undefined
}

function percent(share: number): string {
  return `${Number((share * 100).toPrecision(3))} %`
}
