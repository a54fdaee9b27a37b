// Explanations of the service: which rules apply to a request, with the buckets now.

import { ApiError, send } from '../../api.ts'
import type { Client } from '../../clients.ts'
import type { AppliedException } from '../../exceptions/applied.ts'
import { type Facts, isHashed, requestText, withoutHashes } from './facts.ts'

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
  /** Absent from nodes of earlier versions, whose `reset_after_ms` has this meaning. */
  readonly full_after_ms?: number
  readonly reset_after_ms: number
}

export type ExplainedRule = {
  readonly rule_id: string
  readonly applies: boolean
  readonly detail: string
  readonly limits?: readonly Bucket[]
}

export type Explanation = {
  readonly answer: {
    readonly allowed: boolean
    readonly remaining: number | null
    readonly limit: number | null
    readonly rule_id?: string
  }
  /** Set if the store did not answer: the numbers are then those of `on_fail`. */
  readonly policy_reason?: string
  readonly version: number
  readonly rules: readonly ExplainedRule[]
  readonly exceptions: readonly AppliedException[]
  readonly left_out: number
}

/** Says why the state of the buckets is unknown; undefined if the store answered. */
export function doubtOf({ policy_reason: reason }: Explanation): string | undefined {
  return reason && `The store does not answer (${reason.replaceAll('_', ' ')}).`
}

/** Without the other facts of an old event if the service no longer knows the key of their hash. */
export async function explain(client: Client, facts: Facts, signal: AbortSignal): Promise<Explanation> {
  const ask = (body: Facts) => send<Explanation>('/rate-limit/explain', { method: 'POST', body, signal })
  try {
    return await ask(facts)
  } catch (error) {
    const others = withoutHashes(client, facts)
    if (others === undefined || !(error instanceof ApiError && error.code === 'KEY_UNKNOWN')) throw error
    return ask(others)
  }
}

/** Rules that refuse a request now and that this override does not change: it cannot help there. */
export function refusingBeside(overrideId: string, { rules, exceptions, ...found }: Explanation): readonly string[] {
  if (found.answer.allowed || doubtOf({ rules, exceptions, ...found }) !== undefined) return []
  const isOwn = (ruleId: string) =>
    exceptions.some((one) => one.override_id === overrideId && (one.rule_id === null || one.rule_id === ruleId))
  const refusing = rules.filter(({ limits = [] }) => limits.some(({ mode, allowed }) => mode === 'enforce' && !allowed))
  return refusing.map(({ rule_id: id }) => id).filter((id) => !isOwn(id))
}

/** A bucket with a request that is charged to it. */
export type KnownBucket = Bucket & {
  readonly facts: Facts
  /** False: the numbers are not those of the store. */
  readonly isKnown: boolean
}

/** Buckets of several requests, each once, in an order that does not depend on the requests. */
export function bucketsOf(found: readonly (readonly [Facts, Explanation])[]): readonly KnownBucket[] {
  const buckets = new Map<string, KnownBucket>()
  for (const [facts, explanation] of found) {
    const isKnown = doubtOf(explanation) === undefined
    for (const bucket of explanation.rules.flatMap(({ limits = [] }) => limits)) {
      const endpoint = factsOfScope(bucket.scope).includes('endpoint') ? requestText(facts) : ''
      const key = JSON.stringify([bucket.rule_id, bucket.name, endpoint])
      if (!buckets.has(key)) buckets.set(key, { ...bucket, facts, isKnown })
    }
  }
  return [...buckets.entries()].sort(([one], [other]) => (one < other ? -1 : 1)).map(([, bucket]) => bucket)
}

const FACTS: Readonly<Record<string, Exclude<keyof Facts, 'cost' | 'attributes'>>> = {
  user: 'client_id',
  ip: 'ip_address',
  api_key: 'api_key',
  tenant: 'tenant',
  plan: 'plan',
  method: 'method',
  endpoint: 'endpoint',
}

/** Key for a reset: the only fact, or every fact by name. Undefined: the request lacks one, or has only its hash. */
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
  if (value === undefined || isHashed(value)) return undefined
  if (name !== 'endpoint') return value
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
