// The way of a check through the service: body → subject → decision → text. Synchronous whenever the store is, so that
// a check in memory costs no promise.

import { type Clock, type Decision, type Limiter, type Subject, wallClock } from 'sluice'
import { type HeaderOptions, holdsPermit, retryAfterSeconds } from 'sluice/http'
import type { Admissions } from '../../checks/admissions.ts'
import type { Check } from '../../checks/checking.ts'
import type { DecisionTrail } from '../../checks/decision-trail.ts'
import { createAnswerText, noteRules, type RuleNotes, withDetail } from './answer.ts'
import type { CheckBody } from './schemas.ts'
import { subjectOf } from './subject.ts'

export type DeciderParts = {
  readonly limiter: Limiter
  readonly check: Check
  readonly admissions: Admissions
  readonly trail: DecisionTrail
  readonly headers: HeaderOptions
  readonly clock?: Clock | undefined
}

export type Decide = (body: CheckBody) => string | Promise<string>

export function createDecide(parts: DeciderParts): Decide {
  const { limiter, check, headers, clock = wallClock } = parts
  const record = createRecord(parts)
  const notes = notesOf(limiter)
  const answerText = createAnswerText()

  const tell = (body: CheckBody, decision: Decision, tellId: boolean) => {
    const nowUs = clock.nowUs()
    const retryAfter = retryAfterSeconds(decision, headers)
    const text = answerText(decision, nowUs, notes(), tellId, retryAfter)
    return body.detail ? withDetail(text, decision, nowUs, headers, retryAfter) : text
  }
  const finish = (body: CheckBody, subject: Subject, decision: Decision) => {
    return tell(body, decision, record(body, subject, decision, notes()))
  }

  return (body) => {
    const subject = subjectOf(body)
    // A dry run is not counted, cannot be refunded and has no id: nothing happened.
    if (body.dry_run) return limiter.peek(subject).then((decision) => tell(body, decision, false))
    const decision = check(subject, body.request_id)
    if (decision instanceof Promise) return decision.then((later) => finish(body, subject, later))
    return finish(body, subject, decision)
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

/** What is kept of an admission besides its count. Returns whether the client should be told the request id. */
function createRecord({ admissions, trail }: DeciderParts) {
  return (body: CheckBody, subject: Subject, decision: Decision, notes: RuleNotes): boolean => {
    if (!decision.allowed) return true
    // Whoever holds a permit has to learn its name, or could not release it.
    const named = body.request_id !== undefined || body.detail === true || (notes.hasPermits && holdsPermit(decision))
    if (named) admissions.remember(decision)
    trail.admitted(decision, subject, named)
    return named
  }
}
