// Envoy's rate limit service v3. Domains of the configuration are counted as envoyproxy/ratelimit does; rules decide
// about those of RuleDomains; all others are unlimited. Synchronous whenever the store is. grpc/envoy/ and POST /json
// call it.

import { andThen, type Decision, type Limiter, type MaybePromise, type Store } from 'sluice'
import type { CheckController } from '../checks/check-controller.ts'
import { type CompatAnswer, CompatEngine, type CompatOptions } from './compat-engine.ts'
import type { EnvoyConfig } from './config-files.ts'
import { type NativeAnswer, NativeEngine } from './native-engine.ts'
import { nativeSubject } from './native-subject.ts'
import type { Descriptor, RateLimitRequest } from './rate-limit-request.ts'
import { CODE, type Json, type RateLimitResponse } from './rate-limit-response.ts'
import { type HeaderOptions, responseHeaders } from './response-headers.ts'
import type { RuleDomains } from './rule-domains.ts'

export type RateLimitOptions = HeaderOptions & {
  readonly compat: CompatOptions
  /** Whether responses have dynamic metadata. */
  readonly metadata: boolean
  /** Whether limits in requests apply to domains that are not in the configuration. */
  readonly overrides: boolean
}

export type RateLimitServiceDeps = {
  readonly store: Store
  readonly limiter: Pick<Limiter, 'decideAll' | 'peek' | 'give' | 'release'>
  readonly checks: CheckController
  /** The active configuration. */
  readonly config: () => EnvoyConfig
  readonly ruleDomains: Pick<RuleDomains, 'has'>
  readonly newId: () => string
  readonly options: RateLimitOptions
}

/** `expiresMs`: when the caller gives up, on the clock of `performance.now()`. */
export type DecideRateLimit = (request: RateLimitRequest, expiresMs?: number) => MaybePromise<RateLimitResponse>

export function createRateLimitService(deps: RateLimitServiceDeps): DecideRateLimit {
  const { store, limiter, checks, config, ruleDomains, options } = deps
  const compat = new CompatEngine(store, deps.newId, options.compat)
  const overrides = new CompatEngine(store, deps.newId)
  const native = new NativeEngine({ limiter, checks, compat: overrides, overrides: options.overrides })
  const answerCompat = (request: RateLimitRequest, answer: CompatAnswer, startedMs: number): RateLimitResponse => {
    const { allowed, statuses, decision } = answer
    const [first] = request.descriptors
    checks.record(nativeSubject(request.domain, first?.entries ?? [], first?.hits || 1), decision, startedMs)
    const headers = responseHeaders(options, statuses, decision.deciding, decision.retryAfterMs)
    const metadata = options.metadata ? compatMetadata(request, answer) : undefined
    return { code: allowed ? CODE.ok : CODE.overLimit, statuses, headers, metadata }
  }
  const answerNative = (request: RateLimitRequest, answer: NativeAnswer, isMapped: boolean): RateLimitResponse => {
    const { allowed, statuses, deciding, decision } = answer
    const headers = responseHeaders(options, statuses, deciding, decision?.retryAfterMs ?? null)
    const metadata = options.metadata ? nativeMetadata(request, isMapped ? decision : undefined) : undefined
    return { code: allowed ? CODE.ok : CODE.overLimit, statuses, headers, metadata }
  }
  return (request, expiresMs) => {
    const domain = config().domains.get(request.domain)
    if (domain === undefined) {
      const isMapped = ruleDomains.has(request.domain)
      const decided = native.decide(request, isMapped, expiresMs)
      return andThen(decided, (answer) => answerNative(request, answer, isMapped))
    }
    const startedMs = performance.now()
    const decided = compat.decide(domain, request, expiresMs)
    return andThen(decided, (answer) => answerCompat(request, answer, startedMs))
  }
}

/** As in envoyproxy/ratelimit: metadata of the limits that passed. */
function compatMetadata(request: RateLimitRequest, { matches, statuses }: CompatAnswer): Record<string, Json> {
  const passed = matches.filter((match, index) => match?.limit.counter && statuses[index]?.code === CODE.ok)
  const metadata = passed.reduce((all: JsonObject, match) => merged(all, match?.limit.metadata ?? {}), {})
  return { ...requestMetadata(request), ...(Object.keys(metadata).length > 0 && { metadata }) }
}

type JsonObject = { readonly [key: string]: Json }

/** The first value of a key stays, and objects are merged. `__proto__` is a key like any other. */
function merged(one: JsonObject, other: JsonObject): JsonObject {
  const entries = new Map(Object.entries(one))
  for (const [key, value] of Object.entries(other)) {
    const known = entries.get(key)
    if (known === undefined) entries.set(key, value)
    else if (isObject(known) && isObject(value)) entries.set(key, merged(known, value))
  }
  return Object.fromEntries(entries)
}

function isObject(value: Json): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function nativeMetadata(request: RateLimitRequest, decision: Decision | undefined): Record<string, Json> {
  if (decision === undefined) return requestMetadata(request)
  const { ruleId: rule_id, requestId: request_id, version } = decision
  return { ...requestMetadata(request), sluice: { rule_id, request_id, version } }
}

function requestMetadata({ domain, descriptors, hits }: RateLimitRequest): Record<string, Json> {
  return { domain, descriptors: descriptors.map(descriptorMetadata), ...(hits > 0 && { hitsAddend: hits }) }
}

function descriptorMetadata({ entries, limit, ownHits }: Descriptor): Json {
  const shown = entries.map(({ key, value }) => `${key}=${value}`)
  const override = limit && { limit: { requestsPerUnit: limit.requestsPerUnit, unit: limit.unit } }
  return { entries: shown, ...(ownHits !== undefined && { hitsAddend: ownHits }), ...override }
}
