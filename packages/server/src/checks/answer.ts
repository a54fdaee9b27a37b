// Serialises a decision as the JSON answer of a check. Concatenates strings, because this is the hot path and none of
// the values needs escaping.

import type { Decision, Limiter, Outcome, Rule } from 'sluice'
import { bucketOf, hasPermits, plainRule } from 'sluice'
import { type HeaderOptions, rateLimitHeaders, retryAfterSeconds } from 'sluice/http'
import { type PlainException, plainException } from './plain-exception.ts'

/** Parsed answer of a check; CHECK_ANSWER is its schema. */
export type CheckAnswer = {
  readonly allowed: boolean
  readonly remaining: number | null
  readonly limit: number | null
  readonly reset_at: number | null
  readonly retry_after?: number | null
  readonly rule_id?: string
  readonly delay_ms?: number
  readonly source?: string
  readonly stale?: true
  /** Refused by a ban with this status. */
  readonly status?: 403
  /** Refused by a ban: id of its override. */
  readonly override_id?: string
  /** With detail: epoch seconds at which the limit is full again, rounded up. */
  readonly full_at?: number | null
  /** With detail: what changed the decision. */
  readonly exceptions?: readonly PlainException[]
  /** With detail: every limit of every rule that matched. */
  readonly rules?: readonly PlainOutcome[]
}

/** Outcome of one limit, with the field names of the API. */
export type PlainOutcome = {
  readonly rule_id: string
  readonly name: string
  readonly scope: string
  readonly mode: string
  readonly allowed: boolean
  readonly limit: number
  readonly remaining: number
  readonly window_ms: number
}

/** The rule that refused a request. */
export type Violation = {
  readonly rule_id: string
  readonly violated_rule: string
  readonly violated_tier: string
  /** The same as JSON fields, with a leading comma. */
  readonly text: string
}

/** Properties of the active rules that checks read, computed once per version. */
export type ActiveRules = {
  /** Fields that a refusal by this rule adds to the answer. Undefined: the rule is gone. */
  readonly violation: (ruleId: string) => Violation | undefined
  readonly hasPermits: boolean
  readonly hasShadow: boolean
}

export function readActiveRules(limiter: Limiter): ActiveRules {
  const enabled = limiter.rules.filter((rule) => rule.enabled)
  const violations = new Map<string, Violation>()
  const violation = (ruleId: string) => {
    const known = violations.get(ruleId)
    if (known !== undefined) return known
    const rule = limiter.rule(ruleId)
    if (rule === undefined) return undefined
    const violation = violationOf(rule)
    violations.set(ruleId, violation)
    return violation
  }
  return {
    violation,
    hasPermits: enabled.some(hasPermits),
    hasShadow: enabled.some(({ mode }) => mode === 'shadow'),
  }
}

function violationOf(rule: Rule): Violation {
  const { scope } = plainRule(rule)
  const tier = Array.isArray(scope) ? scope.join('+') : String(scope)
  const fields = { rule_id: rule.rule_id, violated_rule: rule.name ?? rule.rule_id, violated_tier: tier }
  return { ...fields, text: `,${JSON.stringify(fields).slice(1, -1)}` }
}

/** `id`: id of the request for refunds and logs, if the answer has one. `retryAfter`: whole seconds, with jitter. */
export type AnswerText = (
  decision: Decision,
  nowUs: number,
  active: ActiveRules,
  id: string | undefined,
  retryAfter?: number | null,
) => string

/** Reuses the text of limit and reset between answers: most requests of one second share both. */
export function createAnswerText(): AnswerText {
  let cachedLimit: number | null = null
  let cachedResetAt: number | null = null
  let cached = ',"limit":null,"reset_at":null'
  return (decision, nowUs, active, id, retryAfter = retryAfterSeconds(decision)) => {
    const { allowed, remaining, limit, delayMs } = decision
    const resetAt = resetAtSeconds(decision, nowUs)
    if (resetAt !== cachedResetAt || limit !== cachedLimit) {
      cachedLimit = limit
      cachedResetAt = resetAt
      cached = `,"limit":${limit},"reset_at":${resetAt}`
    }
    let text = `{"allowed":${allowed},"remaining":${remaining}${cached}`
    if (!allowed) text += refusalText(decision, active, retryAfter)
    if (delayMs > 0) text += `,"delay_ms":${delayMs}`
    if (decision.source !== 'store' && limit !== null) text += `,"source":"${decision.source}"`
    if (decision.stale) text += ',"stale":true'
    if (id !== undefined) text += `,"request_id":${JSON.stringify(id)}`
    return `${text}}`
  }
}

/** Refused: when the same request passes; null if waiting will not help. Allowed: when the limit is full again. */
export function resetAtSeconds({ resetAfterMs, resetAtMs }: Decision, nowUs: number): number | null {
  return epochSeconds(resetAfterMs, resetAtMs, nowUs)
}

/** When the limit is full again, whether the request was refused or allowed. */
export function fullAtSeconds({ fullAfterMs, fullAtMs }: Decision, nowUs: number): number | null {
  return epochSeconds(fullAfterMs, fullAtMs, nowUs)
}

/** Rounds up. `atMs` is by the clock of the store, and null if the decision did not need the store. */
function epochSeconds(afterMs: number | null, atMs: number | null, nowUs: number): number | null {
  return afterMs === null ? null : Math.ceil((atMs ?? nowUs / 1000 + afterMs) / 1000)
}

function refusalText(decision: Decision, { violation }: ActiveRules, retryAfter: number | null): string {
  const wait = `,"retry_after":${retryAfter},"retry_after_ms":${decision.retryAfterMs}`
  const limitName = bucketOf(decision)?.name // only a-z, 0-9, "_", "." and "-": needs no escaping
  const limit = limitName === undefined ? '' : `,"violated_limit":"${limitName}"`
  return wait + (violation(decision.ruleId ?? '')?.text ?? '') + limit + banText(decision)
}

/** Empty unless a ban refused the request. */
function banText(decision: Decision): string {
  const ban = banOf(decision)
  if (ban === undefined) return ''
  const { status } = decision
  return `${status === undefined ? '' : `,"status":${status}`},"override_id":${JSON.stringify(ban.id)}`
}

/** The override that bans the key of this request. */
export function banOf({ exceptions }: Decision): Decision['exceptions'][number] | undefined {
  return exceptions.length === 0 ? undefined : exceptions.find(({ effect }) => 'ban' in effect)
}

/** Adds source, version, all outcomes and the response headers to an answer. */
export function withDetail(
  answer: string,
  decision: Decision,
  nowUs: number,
  options: HeaderOptions = {},
  retryAfter: number | null = retryAfterSeconds(decision, options),
): string {
  const { source, version } = decision
  const headers = clientHeaders(decision, nowUs, options, retryAfter)
  const hasSource = source !== 'store' && decision.limit !== null
  const exceptions = decision.exceptions.length === 0 ? {} : { exceptions: decision.exceptions.map(plainException) }
  const rules = decision.outcomes.map(plainOutcome)
  const full_at = fullAtSeconds(decision, nowUs)
  const more = { ...(hasSource ? {} : { source }), version, full_at, rules, ...exceptions, headers }
  return `${answer.slice(0, -1)},${JSON.stringify(more).slice(1)}`
}

/** Status of the response that middlewares and the gateway build: 200, 429, or 403 for some bans. */
export function statusOf({ allowed, status }: Decision): number {
  return allowed ? 200 : (status ?? 429)
}

/** Rate limit headers for the client. A ban is not a quota, so a 403 has none. */
export function clientHeaders(
  decision: Decision,
  nowUs: number,
  options: HeaderOptions,
  retryAfter: number | null = retryAfterSeconds(decision, options),
): Record<string, string> {
  return statusOf(decision) === 403 ? {} : rateLimitHeaders(decision, nowUs, options, retryAfter)
}

export function plainOutcome(outcome: Outcome): PlainOutcome {
  const entries = Object.entries(outcome)
  const plain = entries.map(([name, value]) => [name.replace(/[A-Z]/g, (c) => `_${c.toLowerCase()}`), value])
  return Object.fromEntries(plain) as PlainOutcome
}
