// GET /api/v1/rate-limit/decisions/{request_id}: why a request was refused or admitted, after the fact. Known are the
// newest refusals and named or sampled admissions of this process; clients appear by their keyed hashes.

import type { FastifyInstance } from 'fastify'
import { bucketOf } from 'sluice'
import type { DecisionTrail, Traced } from '../../checks/decision-trail.ts'
import { bucketHash, type KeyHash } from '../../log.ts'
import { ProblemError, problem } from '../../problems/problem.ts'
import type { NodeWorkers } from '../../workers/node-workers.ts'
import { plainOutcome } from '../bodies/answer.ts'
import { answers, limitQuery } from '../bodies/schemas.ts'

export const DECISIONS_PATH = '/api/v1/rate-limit/decisions'
const LISTED = { default: 20, max: 1000 } as const

const count = { type: ['integer', 'null'] }

const DECISION = {
  type: 'object',
  properties: {
    request_id: { type: 'string' },
    at: { type: 'string', description: 'When it was decided.' },
    allowed: { type: 'boolean' },
    rule_id: { type: ['string', 'null'], description: 'The rule whose limit decided; null when none matched.' },
    version: { type: 'integer', description: 'Of the rules that decided.' },
    source: { type: 'string', description: 'Who decided: store, lease, local or policy.' },
    key_hash: { type: ['string', 'null'], description: 'Whose bucket it was, as the log names it.' },
    method: { type: ['string', 'null'] },
    endpoint: { type: ['string', 'null'], description: 'Its first 256 characters.' },
    limit: count,
    remaining: count,
    reset_after_ms: count,
    retry_after_ms: count,
    limits: { type: 'array', items: { type: 'object', additionalProperties: true } },
  },
}

export type DecisionsParts = {
  readonly trail: DecisionTrail
  readonly keyHash: KeyHash
  readonly workers: NodeWorkers
}

const TOPIC = 'decisions'

export function decisionsRoutes(app: FastifyInstance, { trail, keyHash, workers }: DecisionsParts): void {
  const config = { access: 'viewer' as const }
  const one = {
    operationId: 'explainDecision',
    summary: 'Why a request was refused or admitted',
    description: 'Of this process: its newest 10,000 refusals, and 10,000 admissions that have a name or were sampled.',
    tags: ['insight'],
    params: { type: 'object', properties: { request_id: { type: 'string', maxLength: 1024 } } },
    response: answers(DECISION, 404),
  }
  const path = `${DECISIONS_PATH}/:request_id`
  app.get<{ Params: { request_id: string } }>(path, { schema: one, config }, ({ params }) => {
    const traced = trail.find(params.request_id)
    if (traced === undefined) throw unknownDecision(params.request_id)
    return plainDecision(traced, keyHash)
  })

  const list = {
    operationId: 'listDecisions',
    summary: 'The newest decisions that are remembered',
    tags: ['insight'],
    querystring: limitQuery(LISTED),
    response: answers({ type: 'object', properties: { decisions: { type: 'array', items: DECISION } } }, 400),
  }
  workers.answer(TOPIC, (count: number) => trail.newest(count).map((traced) => plainDecision(traced, keyHash)))
  app.get<{ Querystring: { limit?: string } }>(DECISIONS_PATH, { schema: list, config }, async ({ query }) => {
    const count = Number(query.limit ?? LISTED.default)
    const { answers: known } = await workers.gather<readonly PlainDecision[]>(TOPIC, count)
    const newestFirst = known.flat().sort((one, other) => (one.at < other.at ? 1 : one.at > other.at ? -1 : 0))
    return { decisions: newestFirst.slice(0, count) }
  })
}

type PlainDecision = { readonly at: string } & Readonly<Record<string, unknown>>

function plainDecision({ decision, atUs, method, endpoint }: Traced, keyHash: KeyHash): PlainDecision {
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
    retry_after_ms: decision.retryAfterMs,
    limits: decision.outcomes.map(plainOutcome),
  }
}

function unknownDecision(requestId: string): ProblemError {
  const fix = 'perhaps it went to another node or worker, is too long ago, or was admitted without a name'
  const fault = { field: 'request_id', value: requestId, fix }
  return new ProblemError(problem('DECISION_UNKNOWN', `No decision is known by this id: ${fix}.`, [fault]))
}
