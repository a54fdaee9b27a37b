// Explanations of the service: which rules apply to a request, with the buckets now.

import { send } from '../../api.ts'
import type { Facts } from './facts.ts'

export type Bucket = {
  readonly rule_id: string
  readonly name: string
  readonly scope: string | readonly string[]
  readonly mode: string
  readonly allowed: boolean
  readonly limit: number
  readonly burst: number
  readonly window_ms: number
  readonly remaining: number
  readonly reset_after_ms: number
}

export type ExplainedRule = {
  readonly rule_id: string
  readonly applies: boolean
  readonly detail: string
  readonly limits?: readonly Bucket[]
}

export type AppliedException = {
  readonly kind: string
  readonly rule_id: string | null
  readonly signal?: string
  readonly limit?: number
  readonly factor?: number
  readonly ban?: { readonly status: number }
  readonly exempt?: true
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
      const endpoint = String(bucket.scope).includes('endpoint') ? facts.endpoint : ''
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
  if (scope === 'global') return ''
  const names = typeof scope === 'string' ? [scope.replace(/^per_/, '')] : scope
  const known = names.map((name) => [name, facts[FACTS[name] ?? 'plan']] as const)
  if (known.some(([name, value]) => FACTS[name] === undefined || value === undefined)) return undefined
  const [first] = known
  return known.length === 1 ? first?.[1] : (Object.fromEntries(known) as Record<string, string>)
}
