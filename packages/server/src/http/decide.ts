// The way of a check through the service: body → subject → decision → text. Synchronous whenever the store is, so that a
// check in memory costs no promise.

import { type Clock, type Decision, type Limiter, systemClock } from 'sluice'
import { holdsPermit } from 'sluice/http'
import type { Check } from '../checking.ts'
import type { Admissions } from './admissions.ts'
import { createAnswerText, noteRules, type RuleNotes, withDetail } from './answer.ts'
import type { CheckBody } from './schemas.ts'
import { subjectOf } from './subject.ts'

export type DeciderParts = {
  readonly limiter: Limiter
  readonly check: Check
  readonly admissions: Admissions
  readonly clock?: Clock | undefined
}

export type Decide = (body: CheckBody) => string | Promise<string>

export function createDecide({ limiter, check, admissions, clock = systemClock }: DeciderParts): Decide {
  const notes = notesOf(limiter)
  const answerText = createAnswerText()

  const tell = (body: CheckBody, decision: Decision, tellId: boolean) => {
    const nowUs = clock.nowUs()
    const text = answerText(decision, nowUs, notes(), tellId)
    return body.detail ? withDetail(text, decision, nowUs) : text
  }
  const finish = (body: CheckBody, decision: Decision) => {
    const named = isNamed(body, decision, notes())
    if (named && decision.allowed) admissions.remember(decision)
    return tell(body, decision, named)
  }

  return (body) => {
    const subject = subjectOf(body)
    // A dry run is not counted, cannot be refunded and has no id: nothing happened.
    if (body.dry_run) return limiter.peek(subject).then((decision) => tell(body, decision, false))
    const decision = check(subject, body.request_id)
    return decision instanceof Promise ? decision.then((later) => finish(body, later)) : finish(body, decision)
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

/** Whether the client should be told the request id. Whoever holds a permit has to, or could not release it. */
function isNamed(body: CheckBody, decision: Decision, notes: RuleNotes): boolean {
  if (!decision.allowed || body.request_id !== undefined || body.detail === true) return true
  return notes.hasPermits && holdsPermit(decision)
}
