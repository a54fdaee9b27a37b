// A recorded decision as the API shows it. Clients appear as keyed hashes.

import { bucketOf } from 'sluice'
import type { HeaderOptions } from 'sluice/http'
import { bucketHash, type KeyHash } from '../log.ts'
import { clientHeaders, type PlainOutcome, plainOutcome, statusOf } from './answer.ts'
import type { RecordedDecision } from './decision-history.ts'
import { plainException } from './plain-exception.ts'

export type PlainDecision = {
  readonly request_id: string
  readonly at: string
  readonly limits: readonly PlainOutcome[]
} & Readonly<Record<string, unknown>>

/** Computes the headers without jitter, which is random and not recorded. */
export function plainDecision(
  { decision, atUs, method, endpoint }: RecordedDecision,
  keyHash: KeyHash,
  { style }: HeaderOptions,
): PlainDecision {
  const bucket = bucketOf(decision)
  return {
    request_id: decision.requestId,
    at: new Date(atUs / 1000).toISOString(),
    allowed: decision.allowed,
    rule_id: decision.ruleId,
    version: decision.version,
    source: decision.source,
    key_hash: bucket === undefined ? null : bucketHash(keyHash, bucket),
    method: method ?? null,
    endpoint: endpoint ?? null,
    limit: decision.limit,
    remaining: decision.remaining,
    reset_after_ms: decision.resetAfterMs,
    full_after_ms: decision.fullAfterMs,
    retry_after_ms: decision.retryAfterMs,
    limits: decision.outcomes.map(plainOutcome),
    exceptions: decision.exceptions.map(plainException),
    status: statusOf(decision),
    headers: clientHeaders(decision, atUs, style === undefined ? {} : { style }),
  }
}
