// Check controller: every entry point (HTTP check and batch, forward auth, gateway) decides and records here.
// Synchronous whenever the store is, so a check in memory creates no promise.

import {
  andThen,
  bucketOf,
  type Clock,
  type Decision,
  type Limiter,
  type MaybePromise,
  type Subject,
  wallClock,
} from 'sluice'
import { type HeaderOptions, holdsPermit, retryAfterSeconds } from 'sluice/http'
import type { Caller } from '../access/roles.ts'
import type { EventPipeline } from '../events/pipeline.ts'
import type { KeyHash, Log } from '../log.ts'
import type { Metrics } from '../metrics/metrics.ts'
import type { RequestSpan } from '../telemetry/request-span.ts'
import { type ActiveRules, createAnswerText, followActiveRules, withDetail } from './answer.ts'
import { type CheckBody, subjectFromBody } from './check-body.ts'
import type { DecisionHistory } from './decision-history.ts'
import { createEndpointPattern } from './endpoint-pattern.ts'
import type { Receipts } from './receipts.ts'

export type CheckControllerDeps = {
  readonly limiter: Limiter
  readonly metrics: Metrics
  readonly log: Log
  readonly keyHash: KeyHash
  readonly history: DecisionHistory
  readonly receipts: Receipts
  /** Undefined: no sink is configured. */
  readonly events: Pick<EventPipeline, 'record'> | undefined
  readonly headers: HeaderOptions
  readonly clock?: Clock | undefined
}

/** Replaces the limiter's decision before it is recorded. */
type Revise = (decision: Decision) => Decision

/** Decides about a subject and records the decision: metrics, shadow refusals, events, history, log. */
export type Check = (
  subject: Subject,
  requestId?: string,
  revise?: Revise,
  span?: RequestSpan,
) => MaybePromise<Decision>

/** Returns the JSON answer to the body of a check. */
export type AnswerCheck = (body: CheckBody, caller: Caller, span?: RequestSpan) => MaybePromise<string>

export type CheckController = { readonly check: Check; readonly answer: AnswerCheck }

export function createCheckController(deps: CheckControllerDeps): CheckController {
  const activeRules = followActiveRules(deps.limiter)
  const check = createCheck(deps, activeRules)
  return { check, answer: createAnswer(deps, check, activeRules) }
}

function createCheck(deps: CheckControllerDeps, activeRules: () => ActiveRules): Check {
  const { limiter, metrics, log, keyHash, history, events } = deps
  const endpointPattern = createEndpointPattern(limiter)
  const logsRefusals = log.isLevelEnabled('debug')
  const record = (subject: Subject, decided: Decision, revise: Revise | undefined, startedMs: number) => {
    const decision = revise === undefined ? decided : revise(decided)
    const ms = performance.now() - startedMs
    metrics.decided(decision.ruleId, decision.allowed, decision.source, ms / 1000)
    events?.record(subject, decision, decided, ms * 1000)
    if (activeRules().hasShadow) countShadows(decision, metrics)
    if (decision.allowed) return decision
    metrics.refused(decision.ruleId, bucketOf(decided)?.name, endpointPattern(decided))
    history.refused(decision, subject)
    if (logsRefusals) logRefusal(subject, decision, log, keyHash)
    return decision
  }
  return (subject, requestId, revise, span) => {
    const startedMs = performance.now()
    const decided = limiter.decide(subject, requestId)
    if (span === undefined) return andThen(decided, (known) => record(subject, known, revise, startedMs))
    return andThen(span.storeCall(decided), (known) => {
      const decision = record(subject, known, revise, startedMs)
      span.decided(decision)
      return decision
    })
  }
}

function createAnswer(deps: CheckControllerDeps, check: Check, activeRules: () => ActiveRules): AnswerCheck {
  const { limiter, receipts, history, headers, clock = wallClock } = deps
  const answerText = createAnswerText()
  const write = (body: CheckBody, decision: Decision, id: string | undefined) => {
    const nowUs = clock.nowUs()
    const retryAfter = retryAfterSeconds(decision, headers)
    const text = answerText(decision, nowUs, activeRules(), id, retryAfter)
    return body.detail ? withDetail(text, decision, nowUs, headers, retryAfter) : text
  }
  /** Returns the id for the answer, if it has one. Stores the receipt of an admission whose answer has an id. */
  const admit = (
    body: CheckBody,
    subject: Subject,
    decision: Decision,
    chosenId: string | undefined,
    caller: Caller,
  ) => {
    const { request_id: sent } = body
    if (!decision.allowed) return sent ?? decision.requestId
    // The client needs the id to release its permit.
    const returnsId = sent !== undefined || body.detail === true || (activeRules().hasPermits && holdsPermit(decision))
    history.admitted(decision, subject, returnsId)
    return returnsId ? receipts.admitted(decision, chosenId, caller) : undefined
  }
  return (body, caller, span) => {
    const subject = subjectFromBody(body)
    // A dry run changes nothing: it is not counted, cannot be refunded and has no id.
    if (body.dry_run) return limiter.peek(subject).then((decision) => write(body, decision, undefined))
    const sent = body.request_id
    const renewed = sent === undefined ? undefined : receipts.renewed(sent, caller)
    const chosenId = renewed === undefined ? sent : undefined
    return andThen(check(subject, renewed ?? sent, undefined, span), (decision) =>
      andThen(admit(body, subject, decision, chosenId, caller), (id) => write(body, decision, id)),
    )
  }
}

function countShadows({ outcomes }: Decision, metrics: Metrics): void {
  for (const { mode, allowed, ruleId } of outcomes) if (mode === 'shadow' && !allowed) metrics.shadowRefused(ruleId)
}

/** Logs client keys as keyed hashes. */
function logRefusal({ ip, user, apiKey, tenant }: Subject, decision: Decision, log: Log, keyHash: KeyHash): void {
  const keys = Object.entries({ ip, user, api_key: apiKey, tenant }).flatMap(([fact, value]) => {
    return value === undefined ? [] : [[fact, keyHash(fact, value)]]
  })
  const { requestId: request_id, ruleId: rule_id, limit, version } = decision
  log.event('check_refused', { request_id, rule_id, limit, version, keys: Object.fromEntries(keys) })
}
