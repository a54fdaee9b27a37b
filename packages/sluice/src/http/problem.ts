// Body of a refusal: an RFC 9457 problem document that names the limits, so that every 429 explains itself, or states
// that the client is banned.

import type { Decision } from '../decision.ts'
import { retryAfterSeconds } from './headers.ts'
import { enforced, policyName } from './policy-name.ts'

export const PROBLEM_TYPE = 'application/problem+json'

export type QuotaExceeded = {
  readonly type: 'https://iana.org/assignments/http-problem-types#quota-exceeded'
  readonly title: string
  readonly status: 429
  readonly detail: string
  /** Names as in RateLimit-Policy. */
  readonly 'violated-policies': readonly string[]
  readonly request_id: string
  /** The rule whose limit has the longest wait; null for a ban that belongs to no rule. */
  readonly rule_id: string | null
  /** Its name, or else its id. */
  readonly violated_rule: string | null
  /** Its scope: `per_user`, `user+endpoint`. */
  readonly violated_tier: string | null
  /** Its limit: `1m`, or `default` for a rule with one limit. */
  readonly violated_limit: string | null
  /** Whole seconds, as in Retry-After; null when waiting will not help. */
  readonly retry_after: number | null
  /** The same in milliseconds, without jitter. */
  readonly retry_after_ms: number | null
}

/** Body of a refusal by a ban with status 403. */
export type Banned = {
  readonly type: 'about:blank'
  readonly title: string
  readonly status: 403
  readonly detail: string
  readonly request_id: string
  readonly rule_id: string | null
}

/** Omits the override and its expiry, so that a banned client does not learn when to return. */
export function banned({ requestId, ruleId }: Decision): Banned {
  const detail = ruleId === null ? 'This client is banned.' : `Banned by rule ${ruleId}.`
  return { type: 'about:blank', title: 'Forbidden', status: 403, detail, request_id: requestId, rule_id: ruleId }
}

/**
 * Pass the `retryAfter` of the header if it has jitter, so that body and header agree. `ruleName`: name of the deciding
 * rule, if it has one.
 */
export function quotaExceeded(
  decision: Decision,
  retryAfter: number | null = retryAfterSeconds(decision),
  ruleName: string | null = decision.ruleId,
): QuotaExceeded {
  const { ruleId, retryAfterMs, limit } = decision
  const violated = enforced(decision).filter((outcome) => !outcome.allowed)
  const deciding = violated.find((one) => one.ruleId === ruleId && one.retryAfterMs === retryAfterMs)
  return {
    type: 'https://iana.org/assignments/http-problem-types#quota-exceeded',
    title: 'Too many requests',
    status: 429,
    detail: detailOf(ruleId, deciding?.scope, limit, retryAfter),
    'violated-policies': violated.map(policyName),
    request_id: decision.requestId,
    rule_id: ruleId,
    violated_rule: ruleName,
    violated_tier: deciding?.scope ?? null,
    violated_limit: deciding?.name ?? null,
    retry_after: retryAfter,
    retry_after_ms: retryAfterMs,
  }
}

function detailOf(
  ruleId: string | null,
  scope: string | undefined,
  limit: number | null,
  retryAfter: number | null,
): string {
  const tier = scope === undefined ? '' : ` (${scope})`
  const who = ruleId === null ? 'The request was refused.' : `Refused by rule ${ruleId}${tier}.`
  const wait = retryAfter === null ? 'Waiting will not help.' : `Try again in ${retryAfter} s.`
  return limit === null ? `${who} ${wait}` : `${who} Limit: ${limit}. ${wait}`
}
