// Envoy's rate limit service v3. Domains of the configuration are counted as envoyproxy/ratelimit does; rules decide
// about all others. Synchronous whenever the store is. grpc/envoy/ and POST /json call it.

import { andThen, type Decision, type Limiter, type MaybePromise, type Store } from 'sluice'
import type { CheckController } from '../checks/check-controller.ts'
import type { EnvoyHeaders } from '../settings/envoy-settings.ts'
import { type CompatAnswer, CompatEngine } from './compat-engine.ts'
import type { EnvoyConfig } from './config-files.ts'
import { type NativeAnswer, NativeEngine } from './native-engine.ts'
import { nativeSubject } from './native-subject.ts'
import type { Descriptor, RateLimitRequest } from './rate-limit-request.ts'
import { CODE, type Json, type RateLimitResponse } from './rate-limit-response.ts'
import { decidingStatus, responseHeaders } from './response-headers.ts'

export type RateLimitOptions = {
  readonly headers: EnvoyHeaders
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
  readonly newId: () => string
  readonly options: RateLimitOptions
}

/** `expiresMs`: when the caller gives up, on the clock of `performance.now()`. */
export type DecideRateLimit = (request: RateLimitRequest, expiresMs?: number) => MaybePromise<RateLimitResponse>

export function createRateLimitService(deps: RateLimitServiceDeps): DecideRateLimit {
  const { store, limiter, checks, config, options } = deps
  const compat = new CompatEngine(store, deps.newId)
  const native = new NativeEngine({ limiter, checks, compat, overrides: options.overrides })
  const answerCompat = (request: RateLimitRequest, answer: CompatAnswer, startedMs: number): RateLimitResponse => {
    const { allowed, statuses, decision } = answer
    const [first] = request.descriptors
    checks.record(nativeSubject(request.domain, first?.entries ?? [], first?.hits || 1), decision, startedMs)
    const retry = allowed ? undefined : decidingStatus(statuses, false)?.resetSeconds
    const headers = responseHeaders(options.headers, statuses, allowed, retry)
    const metadata = options.metadata ? compatMetadata(request, answer) : undefined
    return { code: allowed ? CODE.ok : CODE.overLimit, statuses, headers, metadata }
  }
  const answerNative = (request: RateLimitRequest, answer: NativeAnswer): RateLimitResponse => {
    const { allowed, statuses, decision } = answer
    const headers = responseHeaders(options.headers, statuses, allowed, retrySeconds(answer))
    const metadata = options.metadata ? nativeMetadata(request, decision) : undefined
    return { code: allowed ? CODE.ok : CODE.overLimit, statuses, headers, metadata }
  }
  return (request, expiresMs) => {
    const domain = config().domains.get(request.domain)
    if (domain === undefined)
      return andThen(native.decide(request, expiresMs), (answer) => answerNative(request, answer))
    const startedMs = performance.now()
    const decided = compat.decide(domain, request, expiresMs)
    return andThen(decided, (answer) => answerCompat(request, answer, startedMs))
  }
}

function retrySeconds({ allowed, decision, statuses }: NativeAnswer): number | undefined {
  if (allowed) return undefined
  if (decision === undefined) return decidingStatus(statuses, false)?.resetSeconds
  return decision.retryAfterMs === null ? undefined : Math.ceil(decision.retryAfterMs / 1000)
}

/** As in envoyproxy/ratelimit. Metadata of passing descriptors is merged; the first value of a key stays. */
function compatMetadata(request: RateLimitRequest, { matches, statuses }: CompatAnswer): Record<string, Json> {
  const passing = matches.filter((_, index) => statuses[index]?.code === CODE.ok)
  const merged = Object.assign({}, ...passing.map((match) => match?.limit.metadata ?? {}).reverse())
  return { ...requestMetadata(request), ...(Object.keys(merged).length > 0 && { metadata: merged }) }
}

function nativeMetadata(request: RateLimitRequest, decision: Decision | undefined): Record<string, Json> {
  if (decision === undefined) return requestMetadata(request)
  const { ruleId: rule_id, requestId: request_id, version } = decision
  return { ...requestMetadata(request), sluice: { rule_id, request_id, version } }
}

function requestMetadata({ domain, descriptors, hits }: RateLimitRequest): Record<string, Json> {
  return { domain, descriptors: descriptors.map(descriptorMetadata), hitsAddend: hits }
}

function descriptorMetadata({ entries, limit, hits }: Descriptor): Json {
  const shown = entries.map(({ key, value }) => `${key}=${value}`)
  const override = limit && { limit: { requestsPerUnit: limit.requestsPerUnit, unit: limit.unit } }
  return { entries: shown, hitsAddend: hits, ...override }
}
