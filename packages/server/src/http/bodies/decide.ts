// The way of a check through the service: body → subject → decision → text. Synchronous whenever the store is, so that
// a check in memory costs no promise.

import { type Clock, type Decision, type Limiter, type Subject, wallClock } from 'sluice'
import { type HeaderOptions, holdsPermit, retryAfterSeconds } from 'sluice/http'
import type { Caller } from '../../access/guard.ts'
import type { Check } from '../../checks/checking.ts'
import type { DecisionTrail } from '../../checks/decision-trail.ts'
import type { Receipts } from '../../checks/receipts.ts'
import { createAnswerText, noteRules, type RuleNotes, withDetail } from './answer.ts'
import type { CheckBody } from './schemas.ts'
import { subjectOf } from './subject.ts'

export type DeciderParts = {
  readonly limiter: Limiter
  readonly check: Check
  readonly receipts: Receipts
  readonly trail: DecisionTrail
  readonly headers: HeaderOptions
  readonly clock?: Clock | undefined
}

export type Decide = (body: CheckBody, caller: Caller) => string | Promise<string>

export function createDecide(parts: DeciderParts): Decide {
  const { limiter, check, receipts, headers, clock = wallClock } = parts
  const record = createRecord(parts)
  const notes = notesOf(limiter)
  const answerText = createAnswerText()

  const tell = (body: CheckBody, decision: Decision, id: string | undefined) => {
    const nowUs = clock.nowUs()
    const retryAfter = retryAfterSeconds(decision, headers)
    const text = answerText(decision, nowUs, notes(), id, retryAfter)
    return body.detail ? withDetail(text, decision, nowUs, headers, retryAfter) : text
  }
  const finish = (body: CheckBody, subject: Subject, decision: Decision, name: string | undefined, caller: Caller) => {
    const id = record(body, subject, decision, notes(), name, caller)
    return id instanceof Promise ? id.then((later) => tell(body, decision, later)) : tell(body, decision, id)
  }

  return (body, caller) => {
    const subject = subjectOf(body)
    // A dry run is not counted, cannot be refunded and has no id: nothing happened.
    if (body.dry_run) return limiter.peek(subject).then((decision) => tell(body, decision, undefined))
    const sent = body.request_id
    const renewed = sent === undefined ? undefined : receipts.renewed(sent, caller)
    const name = renewed === undefined ? sent : undefined
    const decision = check(subject, renewed ?? sent)
    if (decision instanceof Promise) return decision.then((later) => finish(body, subject, later, name, caller))
    return finish(body, subject, decision, name, caller)
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

type Id = string | undefined | Promise<string>

/** What is kept of a decision besides its count. Returns the id that the client should be told. */
function createRecord({ receipts, trail }: DeciderParts) {
  return (
    body: CheckBody,
    subject: Subject,
    decision: Decision,
    notes: RuleNotes,
    name: string | undefined,
    caller: Caller,
  ): Id => {
    const { request_id: sent } = body
    if (!decision.allowed) return sent ?? decision.requestId
    // Whoever holds a permit has to learn its name, or could not release it.
    const named = sent !== undefined || body.detail === true || (notes.hasPermits && holdsPermit(decision))
    trail.admitted(decision, subject, named)
    return named ? receipts.admitted(decision, name, caller) : undefined
  }
}
