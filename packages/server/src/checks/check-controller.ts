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
import { followRules } from '../rules/follow-rules.ts'
import type { RequestSpan } from '../telemetry/request-span.ts'
import { type ActiveRules, createAnswerText, readActiveRules, withDetail } from './answer.ts'
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
  readonly events: Pick<EventPipeline, 'record' | 'positionOf'> | undefined
  /** Counts requests to rules under rollout. Undefined: no rule can roll out. */
  readonly rollouts?: { observe(decision: Decision, ms: number): void } | undefined
  readonly headers: HeaderOptions
  /** Default: bypass tokens are not throttled, and nothing is counted. */
  readonly exceptions?: ExceptionHooks | undefined
  readonly clock?: Clock | undefined
}

/** Hooks for exceptions: throttling guesses and counting. */
export type ExceptionHooks = {
  /** Called with a bypass token. Returns a refusal if its client has guessed too often; never for a valid token. */
  refuseGuess(subject: Subject): Decision | undefined
  /** Called for each decision. */
  decided(subject: Subject, decision: Decision): void
}

/** Replaces the limiter's decision before it is recorded. */
type ReplaceDecision = (decision: Decision) => Decision

/** Decides about a subject and records the decision: metrics, shadow refusals, events, history, log. */
export type Check = (
  subject: Subject,
  requestId?: string,
  replace?: ReplaceDecision,
  span?: RequestSpan,
  /** Time at which the caller gives up, on the clock of `performance.now()`. */
  expiresMs?: number,
) => MaybePromise<Decision>

/** Returns the JSON answer to the body of a check. */
export type AnswerCheck = (body: CheckBody, caller: Caller, span?: RequestSpan) => MaybePromise<string>

/** Records a decision that was made elsewhere: by counters of an Envoy configuration, or about several subjects. */
export type RecordDecision = (subject: Subject, decision: Decision, startedMs: number) => void

/** Facts from which an answer is written, in any format. `id`: id of the request, if the answer has one. */
export type WriteAnswer<T> = (
  body: CheckBody,
  decision: Decision,
  id: string | undefined,
  nowUs: number,
  retryAfter: number | null,
  active: ActiveRules,
) => T

/** Checks a body and writes the answer in the caller's format. */
export type CheckBodyWith = <T>(
  body: CheckBody,
  caller: Caller,
  write: WriteAnswer<T>,
  span?: RequestSpan,
  expiresMs?: number,
) => MaybePromise<T>

export type CheckController = {
  readonly check: Check
  readonly record: RecordDecision
  readonly answer: AnswerCheck
  readonly checkBody: CheckBodyWith
}

export function createCheckController(deps: CheckControllerDeps): CheckController {
  const activeRules = followRules(deps.limiter, () => readActiveRules(deps.limiter))
  const record = createRecord(deps, activeRules)
  const check = createCheck(deps, record)
  const checkBody = createCheckBody(deps, check, activeRules)
  const answerText = createAnswerText()
  const write: WriteAnswer<string> = (body, decision, id, nowUs, retryAfter, active) => {
    const text = answerText(decision, nowUs, active, id, retryAfter)
    return body.detail ? withDetail(text, decision, nowUs, deps.headers, retryAfter) : text
  }
  return {
    check,
    record: (subject, decision, startedMs) => {
      record(subject, decision, undefined, startedMs)
    },
    checkBody,
    answer: (body, caller, span) => checkBody(body, caller, write, span),
  }
}

/** Returns the recorded decision: the limiter's, or the one that `replace` returned. */
type Recorder = (
  subject: Subject,
  decided: Decision,
  replace: ReplaceDecision | undefined,
  startedMs: number,
) => Decision

function createRecord(deps: CheckControllerDeps, activeRules: () => ActiveRules): Recorder {
  const { limiter, metrics, log, keyHash, history, events, rollouts, exceptions } = deps
  const endpointPattern = createEndpointPattern(limiter)
  const logsRefusals = log.isLevelEnabled('debug')
  return (subject, decided, replace, startedMs) => {
    const decision = replace === undefined ? decided : replace(decided)
    const ms = performance.now() - startedMs
    const { ruleId, allowed, source, policyReason } = decision
    metrics.decided(ruleId, allowed, source, ms / 1000, policyReason)
    events?.record(subject, decision, decided, ms * 1000)
    rollouts?.observe(decided, ms)
    exceptions?.decided(subject, decided)
    if (activeRules().hasShadow) countShadows(decision, metrics)
    if (decision.allowed) return decision
    metrics.refused(decision.ruleId, bucketOf(decided)?.name, endpointPattern(decided))
    history.refused(decision, subject)
    if (logsRefusals) logRefusal(subject, decision, log, keyHash)
    return decision
  }
}

function createCheck({ limiter, exceptions }: CheckControllerDeps, record: Recorder): Check {
  return (subject, requestId, replace, span, expiresMs) => {
    const startedMs = performance.now()
    const refusal = subject.bypassToken === undefined ? undefined : exceptions?.refuseGuess(subject)
    const decided = refusal ?? limiter.decide(subject, requestId, expiresMs)
    if (span === undefined) return andThen(decided, (known) => record(subject, known, replace, startedMs))
    return andThen(span.storeCall(decided), (known) => {
      const decision = record(subject, known, replace, startedMs)
      span.decided(decision)
      return decision
    })
  }
}

function createCheckBody(deps: CheckControllerDeps, check: Check, activeRules: () => ActiveRules): CheckBodyWith {
  const { limiter, receipts, history, events, headers, exceptions, clock = wallClock } = deps
  const written = <T>(write: WriteAnswer<T>, body: CheckBody, decision: Decision, id: string | undefined) =>
    write(body, decision, id, clock.nowUs(), retryAfterSeconds(decision, headers), activeRules())
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
    return returnsId ? receipts.admitted(decision, chosenId, caller, events?.positionOf(subject)) : undefined
  }
  return (body, caller, write, span, expiresMs) => {
    const subject = subjectFromBody(body)
    // A dry run changes nothing: it is not counted, cannot be refunded and has no id.
    if (body.dry_run) {
      const refusal = subject.bypassToken === undefined ? undefined : exceptions?.refuseGuess(subject)
      if (refusal !== undefined) return written(write, body, refusal, undefined)
      return limiter.peek(subject, expiresMs).then((decision) => written(write, body, decision, undefined))
    }
    const sent = body.request_id
    const renewed = sent === undefined ? undefined : receipts.renewed(sent, caller)
    const chosenId = renewed === undefined ? sent : undefined
    return andThen(check(subject, renewed ?? sent, undefined, span, expiresMs), (decision) =>
      andThen(admit(body, subject, decision, chosenId, caller), (id) => written(write, body, decision, id)),
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
