// The way of a check through the service: body → subject → decision → count → text. Synchronous whenever the store is,
// so that a check in memory costs no promise.

import { type Clock, type Decision, type Limiter, type Subject, systemClock } from 'sluice'
import { holdsPermit } from 'sluice/http'
import type { KeyHash, Log } from '../log.ts'
import type { Metrics } from '../metrics.ts'
import type { ViolationLog } from '../violations/violation-log.ts'
import type { Admissions } from './admissions.ts'
import { createAnswerText, noteRules, type RuleNotes, withDetail } from './answer.ts'
import type { DecisionTrail } from './decision-trail.ts'
import type { CheckBody } from './schemas.ts'
import { subjectOf } from './subject.ts'

export type DeciderParts = {
  readonly limiter: Limiter
  readonly metrics: Metrics
  readonly admissions: Admissions
  readonly trail: DecisionTrail
  /** Undefined: nobody writes them down. */
  readonly violations: ViolationLog | undefined
  readonly log: Log
  readonly keyHash: KeyHash
  /** Whether the store can answer at once. */
  readonly answersSync: boolean
  readonly clock?: Clock | undefined
}

export type Decide = (body: CheckBody) => string | Promise<string>

export function createDecide(parts: DeciderParts): Decide {
  const { limiter, metrics, answersSync, clock = systemClock } = parts
  const record = createRecord(parts)
  const notes = notesOf(limiter)
  const answerText = createAnswerText()

  const tell = (body: CheckBody, decision: Decision, tellId: boolean) => {
    const nowUs = clock.nowUs()
    const text = answerText(decision, nowUs, notes(), tellId)
    return body.detail ? withDetail(text, decision, nowUs) : text
  }
  const finish = (body: CheckBody, subject: Subject, decision: Decision, startedMs: number) => {
    metrics.decided(decision.ruleId, decision.allowed, decision.source, (performance.now() - startedMs) / 1000)
    return tell(body, decision, record(body, subject, decision, notes()))
  }

  return (body) => {
    const subject = subjectOf(body)
    // A dry run is not counted, cannot be refunded and has no id: nothing happened.
    if (body.dry_run) return limiter.peek(subject).then((decision) => tell(body, decision, false))
    const startedMs = performance.now()
    const decision = answersSync ? limiter.checkSync(subject, body.request_id) : undefined
    if (decision !== undefined) return finish(body, subject, decision, startedMs)
    return limiter.check(subject, body.request_id).then((later) => finish(body, subject, later, startedMs))
  }
}

/** Reads the rules again only when they have changed. */
function notesOf(limiter: Limiter): () => RuleNotes {
  let notes = noteRules(limiter)
  return () => {
    if (notes.version !== limiter.version) notes = noteRules(limiter)
    return notes
  }
}

/** What is kept of a decision besides its count. Returns whether the client should be told the request id. */
function createRecord({ metrics, admissions, trail, violations, log, keyHash }: DeciderParts) {
  const logsRefusals = log.isLevelEnabled('debug')
  return (body: CheckBody, subject: Subject, decision: Decision, notes: RuleNotes): boolean => {
    if (notes.hasShadow) countShadows(decision, metrics)
    if (!decision.allowed) {
      trail.refused(decision, body)
      violations?.refused(decision, body)
      if (logsRefusals) logRefusal(subject, decision, log, keyHash)
      return true
    }
    // Whoever holds a permit has to learn its name, or could not release it.
    const named = body.request_id !== undefined || body.detail === true || (notes.hasPermits && holdsPermit(decision))
    if (named) admissions.remember(decision)
    trail.admitted(decision, body, named)
    return named
  }
}

function countShadows({ outcomes }: Decision, metrics: Metrics): void {
  for (const { mode, allowed, ruleId } of outcomes) if (mode === 'shadow' && !allowed) metrics.shadowRefused(ruleId)
}

function logRefusal({ ip, user, apiKey, tenant }: Subject, decision: Decision, log: Log, keyHash: KeyHash): void {
  const keys = Object.entries({ ip, user, api_key: apiKey, tenant }).flatMap(([fact, value]) => {
    return value === undefined ? [] : [[fact, keyHash(fact, value)]]
  })
  const { requestId: request_id, ruleId: rule_id, limit, version } = decision
  log.debug({ request_id, rule_id, limit, version, keys: Object.fromEntries(keys) }, 'refused')
}
