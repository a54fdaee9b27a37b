// Writes CheckResponse and ExplainResponse: the fields of the JSON answer.

import type { Decision, Outcome } from 'sluice'
import { bucketOf } from 'sluice'
import { type HeaderOptions, rateLimitHeaders, retryAfterSeconds } from 'sluice/http'
import { type ActiveRules, banOf, fullAtSeconds, resetAtSeconds } from '../../checks/answer.ts'
import type { WriteAnswer } from '../../checks/check-controller.ts'
import { type PlainException, plainException } from '../../checks/plain-exception.ts'
import type { Explained } from '../../http/routes/explain.ts'
import type { ProtobufWriter } from '../protobuf.ts'

/** Writes the fields of CheckResponse to `writer`. */
export function writeCheckResponse(
  writer: ProtobufWriter,
  decision: Decision,
  id: string | undefined,
  nowUs: number,
  retryAfter: number | null,
  active: ActiveRules,
): void {
  const { allowed, remaining, limit, delayMs, source, stale } = decision
  writer.bool(1, allowed)
  optional(writer, 2, remaining)
  optional(writer, 3, limit)
  optional(writer, 4, resetAtSeconds(decision, nowUs))
  if (!allowed) writeRefusal(writer, decision, retryAfter, active)
  writer.uint(11, delayMs)
  if (id !== undefined) writer.string(12, id)
  if (source !== 'store' && limit !== null) writer.string(13, source)
  if (stale) writer.bool(14, true)
}

function writeRefusal(
  writer: ProtobufWriter,
  decision: Decision,
  retryAfter: number | null,
  { violation }: ActiveRules,
): void {
  optional(writer, 5, retryAfter)
  optional(writer, 6, decision.retryAfterMs)
  const violated = violation(decision.ruleId ?? '')
  if (violated !== undefined)
    writer.string(7, violated.rule_id).string(8, violated.violated_rule).string(9, violated.violated_tier)
  writer.string(10, bucketOf(decision)?.name ?? '')
  const ban = banOf(decision)
  if (ban !== undefined) writer.uint(15, decision.status ?? 0).string(16, ban.id)
}

/** Writes the answer of a check, with detail if the check asks for it. */
export function createCheckWriter(headers: HeaderOptions): (writer: ProtobufWriter) => WriteAnswer<void> {
  return (writer) => (body, decision, id, nowUs, retryAfter, active) => {
    writeCheckResponse(writer, decision, id, nowUs, retryAfter, active)
    if (body.detail) writer.message(17, (nested) => writeDetail(nested, decision, nowUs, headers, retryAfter))
  }
}

function writeDetail(
  writer: ProtobufWriter,
  decision: Decision,
  nowUs: number,
  options: HeaderOptions,
  retryAfter: number | null,
): void {
  writer.string(1, decision.source).uint(2, decision.version)
  for (const outcome of decision.outcomes) writer.message(3, (nested) => writeOutcome(nested, outcome))
  for (const applied of decision.exceptions) {
    writer.message(4, (nested) => writeException(nested, plainException(applied)))
  }
  for (const [name, value] of Object.entries(rateLimitHeaders(decision, nowUs, options, retryAfter))) {
    writer.message(5, (nested) => nested.string(1, name).string(2, value))
  }
  optional(writer, 6, fullAtSeconds(decision, nowUs))
}

function writeOutcome(writer: ProtobufWriter, outcome: Outcome): void {
  writer.string(1, outcome.ruleId).string(2, outcome.name).string(3, outcome.scope).string(4, outcome.algorithm)
  writer.string(5, outcome.mode).bool(6, outcome.allowed).uint(7, outcome.limit).uint(8, outcome.burst)
  writer.uint(9, outcome.remaining).uint(10, outcome.windowMs).uint(11, outcome.cost)
  optional(writer, 12, outcome.resetAfterMs)
  optional(writer, 13, outcome.retryAfterMs)
  writer.uint(14, outcome.delayMs).uint(15, outcome.fullAfterMs)
}

function writeException(writer: ProtobufWriter, exception: PlainException): void {
  const { kind, override_id, bypass_id, signal, rule_id, limit, limit_name = '', factor, ban, exempt } = exception
  writer
    .string(1, kind)
    .string(2, override_id ?? bypass_id ?? signal ?? '')
    .string(3, rule_id ?? '')
  optional(writer, 4, limit)
  if (factor !== undefined) writer.double(5, factor, true)
  if (ban !== undefined) writer.uint(6, ban.status, true)
  if (exempt) writer.bool(7, true)
  writer.string(8, limit_name)
}

/** Writes the fields of ExplainResponse. */
export function writeExplainResponse(
  writer: ProtobufWriter,
  { decision, rules, leftOut }: Explained,
  nowUs: number,
  active: ActiveRules,
): void {
  const retryAfter = retryAfterSeconds(decision)
  writer.message(1, (nested) => writeCheckResponse(nested, decision, undefined, nowUs, retryAfter, active))
  writer.string(2, decision.source).uint(3, decision.version)
  for (const { ruleId, reason, fact = '', detail } of rules) {
    writer.message(4, (nested) => {
      nested
        .string(1, ruleId)
        .bool(2, reason === null)
        .string(3, reason ?? '')
        .string(4, detail)
      const limits = reason === null ? decision.outcomes.filter((outcome) => outcome.ruleId === ruleId) : []
      for (const outcome of limits) nested.message(5, (deeper) => writeOutcome(deeper, outcome))
      nested.string(6, fact)
    })
  }
  for (const applied of decision.exceptions) {
    writer.message(5, (nested) => writeException(nested, plainException(applied)))
  }
  writer.uint(6, leftOut)
}

function optional(writer: ProtobufWriter, field: number, value: number | null | undefined): void {
  if (value !== null && value !== undefined) writer.uint(field, value, true)
}
