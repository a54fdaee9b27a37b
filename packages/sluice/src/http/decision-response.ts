// Turns a decision into the response to write: status, headers, body, and the release of what the request holds.

import { hasPermits } from '../algorithms/traits.ts'
import { type Clock, systemTimers, type Timers, wallClock } from '../clock.ts'
import type { Decision } from '../decision.ts'
import type { Limiter } from '../limiter-api.ts'
import type { Subject } from '../subject.ts'
import { prefersText } from './accept.ts'
import { type HeaderOptions, type HeaderRecord, rateLimitHeaders, retryAfterSeconds } from './headers.ts'
import { type Banned, banned, PROBLEM_TYPE, type QuotaExceeded, quotaExceeded } from './problem.ts'

export type DecisionResponse = {
  readonly allowed: boolean
  /** 200: continue; the client sees the status of the application. 403: refused by a ban with that status. */
  readonly status: 200 | 429 | 403
  readonly headers: Readonly<HeaderRecord>
  /** Body of a refusal; the headers have its media type. */
  readonly body: string | undefined
  /** The problem document of a refusal, also if the client prefers text. */
  readonly problem: QuotaExceeded | Banned | undefined
  readonly decision: Decision
  /** Whether `done` must be called. If not, an adapter need not watch the response. */
  readonly settles: boolean
  /**
   * Call it with the status when the response has ended: releases permits, and refunds the request if `refunds` says
   * so for its status. Never throws; only the first call counts.
   */
  done(status?: number): void
}

export type DecisionResponseOptions = {
  readonly headers?: HeaderOptions | undefined
  /** Whether a response with this status refunds its request. */
  readonly refunds?: ((status: number) => boolean) | undefined
  readonly clock?: Clock | undefined
  readonly timers?: Timers | undefined
}

/** Renewals per TTL of a permit: two may fail. */
const RENEWALS = 3

/** Checks a subject. The Accept header of the client chooses between a problem document and text. */
export async function checkToResponse(
  limiter: Limiter,
  subject: Subject,
  options: DecisionResponseOptions = {},
  accept?: string | undefined,
): Promise<DecisionResponse> {
  return responseFromDecision(limiter, await limiter.check(subject), options, accept)
}

/** Translates a decision of this limiter into HTTP. */
export function responseFromDecision(
  limiter: Limiter,
  decision: Decision,
  options: DecisionResponseOptions,
  accept: string | undefined,
): DecisionResponse {
  const { headers: headerOptions, clock = wallClock } = options
  if (decision.allowed) {
    const headers = rateLimitHeaders(decision, clock.nowUs(), headerOptions, null)
    const settles = options.refunds !== undefined || holdsPermit(decision)
    const done = settles ? settlement(limiter, decision, options) : nothing
    return { allowed: true, status: 200, headers, body: undefined, problem: undefined, decision, settles, done }
  }
  const retryAfter = retryAfterSeconds(decision, headerOptions)
  const { status = 429 } = decision
  // A ban is not a quota, so a 403 has no rate limit headers.
  const headers = status === 403 ? {} : rateLimitHeaders(decision, clock.nowUs(), headerOptions, retryAfter)
  const name = decision.ruleId === null ? null : (limiter.rule(decision.ruleId)?.name ?? decision.ruleId)
  const problem = status === 403 ? banned(decision) : quotaExceeded(decision, retryAfter, name)
  const text = prefersText(accept)
  headers['Content-Type'] = text ? 'text/plain; charset=utf-8' : PROBLEM_TYPE
  const body = text ? `${problem.title}. ${problem.detail}\n` : JSON.stringify(problem)
  return { allowed: false, status, headers, body, problem, decision, settles: false, done: nothing }
}

/** Whether the request holds a permit until the response has ended. */
export function holdsPermit(decision: Decision): boolean {
  return decision.allowed && decision.outcomes.some(hasPermits)
}

/** Renews the permits of a request until the returned function is called. */
function settlement(limiter: Limiter, decision: Decision, options: DecisionResponseOptions): DecisionResponse['done'] {
  const { refunds, timers = systemTimers } = options
  const stopRenewing = renewing(limiter, decision, timers)
  let settled = false
  return (status) => {
    if (settled) return
    settled = true
    stopRenewing()
    const refunded = status !== undefined && refunds?.(status) === true
    // Best effort, without retry or report: a permit expires by itself, and a refund is optional.
    ;(refunded ? limiter.give(decision) : limiter.release(decision)).catch(nothing)
  }
}

function renewing(limiter: Limiter, decision: Decision, timers: Timers): () => void {
  const permits = decision.outcomes.filter(hasPermits)
  if (permits.length === 0) return nothing
  const lifeMs = Math.min(...permits.map(({ windowMs }) => windowMs))
  return timers.every(Math.ceil(lifeMs / RENEWALS), () => void limiter.renew(decision).catch(nothing))
}

function nothing(): void {}
