// Explanations of the service: which rules apply to a request, with the buckets now.

import { send } from '../../api.ts'
import type { AppliedException } from '../../exceptions/applied.ts'
import { type Facts, requestText } from './facts.ts'

export type Bucket = {
  readonly rule_id: string
  readonly name: string
  /** `global`, `per_user`, `user+endpoint` */
  readonly scope: string
  readonly mode: string
  readonly allowed: boolean
  readonly limit: number
  readonly burst: number
  readonly window_ms: number
  readonly remaining: number
  readonly full_after_ms: number
}

export type ExplainedRule = {
  readonly rule_id: string
  readonly applies: boolean
  readonly detail: string
  readonly limits?: readonly Bucket[]
}

export type Explanation = {
  readonly answer: { readonly allowed: boolean; readonly remaining: number | null; readonly limit: number | null }
  readonly version: number
  readonly rules: readonly ExplainedRule[]
  readonly exceptions: readonly AppliedException[]
  readonly left_out: number
}

export function explain(facts: Facts, signal: AbortSignal): Promise<Explanation> {
  return send<Explanation>('/rate-limit/explain', { method: 'POST', body: facts, signal })
}

/** A bucket with a request that is charged to it. */
export type KnownBucket = Bucket & { readonly facts: Facts }

/** Buckets of several requests, each once, in an order that does not depend on the requests. */
export function bucketsOf(found: readonly (readonly [Facts, Explanation])[]): readonly KnownBucket[] {
  const buckets = new Map<string, KnownBucket>()
  for (const [facts, { rules }] of found) {
    for (const bucket of rules.flatMap(({ limits = [] }) => limits)) {
      const endpoint = factsOfScope(bucket.scope).includes('endpoint') ? requestText(facts) : ''
      const key = JSON.stringify([bucket.rule_id, bucket.name, endpoint])
      if (!buckets.has(key)) buckets.set(key, { ...bucket, facts })
    }
  }
  return [...buckets.entries()].sort(([one], [other]) => (one < other ? -1 : 1)).map(([, bucket]) => bucket)
}

const FACTS: Readonly<Record<string, keyof Facts>> = {
  user: 'client_id',
  ip: 'ip_address',
  api_key: 'api_key',
  tenant: 'tenant',
  plan: 'plan',
  method: 'method',
  endpoint: 'endpoint',
}

/** Key for a reset: the only fact, or every fact by name. Undefined: the request lacks one. */
export function resetKeyOf({ scope, facts }: KnownBucket): string | Readonly<Record<string, string>> | undefined {
  const names = factsOfScope(scope)
  if (names.length === 0) return ''
  const known = names.map((name) => [name, keyFact(name, facts)] as const)
  if (known.some(([, value]) => value === undefined)) return undefined
  const [first] = known
  return known.length === 1 ? first?.[1] : (Object.fromEntries(known) as Record<string, string>)
}

/** Buckets of endpoints are per method: `POST /api/v1/messages`. Without a method, the bucket is not known. */
function keyFact(name: string, facts: Facts): string | undefined {
  const field = FACTS[name]
  const value = field && facts[field]
  if (name !== 'endpoint' || value === undefined) return value
  return facts.method === undefined ? undefined : `${facts.method} ${value}`
}

/** Reads `global`, `per_user` and `user+endpoint`. */
export function factsOfScope(scope: string): readonly string[] {
  return scope === 'global' ? [] : scope.replace(/^per_/, '').split('+')
}

/** Names the clients that share a bucket, for the text of its reset. */
export function sharersOf({ scope, facts }: KnownBucket): string {
  const names = factsOfScope(scope)
  if (['user', 'api_key', 'ip'].some((name) => names.includes(name))) return 'the client starts'
  return names.includes('tenant') ? `all clients of tenant ${facts.tenant} start` : 'all clients share them and start'
}
