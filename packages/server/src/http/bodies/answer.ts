// A decision → the text of its answer. Written by hand because it is the hot path: a handful of numbers and constants,
// none of which needs escaping, put together with no object in between.

import type { Decision, Limiter, Outcome, Rule } from 'sluice'
import { bucketOf, plainRule } from 'sluice'
import { type HeaderOptions, rateLimitHeaders, retryAfterSeconds } from 'sluice/http'

/** An answer as its readers see it; CHECK_ANSWER describes it to programs. */
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
  /** With detail: every limit that was looked at. */
  readonly rules?: readonly PlainOutcome[]
}

/** One limit as answers tell of it: an Outcome in the spelling of the API. */
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

/** What one version of the rules means for answers: worked out at most once, read for each request. */
export type RuleNotes = {
  readonly version: number
  /** The JSON that a refusal by a rule adds. */
  readonly violation: (ruleId: string) => string
  readonly hasPermits: boolean
}

export function noteRules(limiter: Limiter): RuleNotes {
  const { version, rules } = limiter
  const enabled = rules.filter((rule) => rule.enabled)
  const violations = new Map<string, string>()
  const violation = (ruleId: string) => {
    const known = violations.get(ruleId)
    if (known !== undefined) return known
    const rule = limiter.rule(ruleId)
    const text = rule === undefined ? '' : violationOf(rule)
    violations.set(ruleId, text)
    return text
  }
  return {
    version,
    violation,
    hasPermits: enabled.some(({ algorithm }) => algorithm === 'concurrency'),
  }
}

function violationOf(rule: Rule): string {
  const { scope } = plainRule(rule)
  const tier = Array.isArray(scope) ? scope.join('+') : scope
  const fields = { rule_id: rule.rule_id, violated_rule: rule.name ?? rule.rule_id, violated_tier: tier }
  return `,${JSON.stringify(fields).slice(1, -1)}`
}

/**
 * `id`: under which the request can be refunded or found in the log, if that is to be told. `retryAfter`: whole
 * seconds, with jitter, as in the header.
 */
export type AnswerText = (
  decision: Decision,
  nowUs: number,
  notes: RuleNotes,
  id: string | undefined,
  retryAfter?: number | null,
) => string

/** Most requests of one second share limit and reset, so that part is kept from one answer to the next. */
export function createAnswerText(): AnswerText {
  let keptLimit: number | null = null
  let keptResetAt: number | null = null
  let kept = ',"limit":null,"reset_at":null'
  return (decision, nowUs, notes, id, retryAfter = retryAfterSeconds(decision)) => {
    const { allowed, remaining, limit, resetAfterMs, resetAtMs, delayMs } = decision
    const resetAt = resetAfterMs === null ? null : Math.ceil((resetAtMs ?? nowUs / 1000 + resetAfterMs) / 1000)
    if (resetAt !== keptResetAt || limit !== keptLimit) {
      keptLimit = limit
      keptResetAt = resetAt
      kept = `,"limit":${limit},"reset_at":${resetAt}`
    }
    let text = `{"allowed":${allowed},"remaining":${remaining}${kept}`
    if (!allowed) text += refusalText(decision, notes, retryAfter)
    if (delayMs > 0) text += `,"delay_ms":${delayMs}`
    if (decision.source !== 'store' && limit !== null) text += `,"source":"${decision.source}"`
    if (decision.stale) text += ',"stale":true'
    if (id !== undefined) text += `,"request_id":${JSON.stringify(id)}`
    return `${text}}`
  }
}

function refusalText(decision: Decision, { violation }: RuleNotes, retryAfter: number | null): string {
  const wait = `,"retry_after":${retryAfter},"retry_after_ms":${decision.retryAfterMs}`
  const limitName = bucketOf(decision)?.name // of a-z, 0-9, "_", "." and "-": nothing to escape
  const limit = limitName === undefined ? '' : `,"violated_limit":"${limitName}"`
  return wait + violation(decision.ruleId ?? '') + limit
}

/** The answer, and everything else there is to know. */
export function withDetail(
  answer: string,
  decision: Decision,
  nowUs: number,
  options: HeaderOptions = {},
  retryAfter: number | null = retryAfterSeconds(decision, options),
): string {
  const { source, version } = decision
  const headers = rateLimitHeaders(decision, nowUs, options, retryAfter)
  const told = source !== 'store' && decision.limit !== null
  const more = { ...(told ? {} : { source }), version, rules: decision.outcomes.map(plainOutcome), headers }
  return `${answer.slice(0, -1)},${JSON.stringify(more).slice(1)}`
}

export function plainOutcome(outcome: Outcome): PlainOutcome {
  const entries = Object.entries(outcome)
  const plain = entries.map(([name, value]) => [name.replace(/[A-Z]/g, (c) => `_${c.toLowerCase()}`), value])
  return Object.fromEntries(plain) as PlainOutcome
}
