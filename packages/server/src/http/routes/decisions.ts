// GET /api/v1/rate-limit/decisions/{request_id}: why a request was refused or admitted, after the fact. Known are the
// newest refusals and named admissions of all nodes, and some more of this process; clients appear by keyed hashes.

import type { FastifyInstance } from 'fastify'
import type { DecisionTrail } from '../../checks/decision-trail.ts'
import { plainId } from '../../checks/receipt-ids.ts'
import type { SharedDecisions } from '../../checks/shared-decisions.ts'
import type { KeyHash } from '../../log.ts'
import { ProblemError, problem } from '../../problems/problem.ts'
import type { NodeWorkers } from '../../workers/node-workers.ts'
import { type PlainDecision, plainDecision } from '../bodies/decision.ts'
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
  /** Undefined where no other process could have decided. */
  readonly sharedDecisions: SharedDecisions | undefined
  readonly keyHash: KeyHash
  readonly workers: NodeWorkers
}

const TOPIC = 'decisions'

export function decisionsRoutes(app: FastifyInstance, parts: DecisionsParts): void {
  const { trail, sharedDecisions, keyHash, workers } = parts
  const config = { access: 'viewer' as const }
  const one = {
    operationId: 'explainDecision',
    summary: 'Why a request was refused or admitted',
    description:
      'Of all nodes that share the counters: refusals, and admissions that have a name, of the last hour at most.',
    tags: ['insight'],
    params: { type: 'object', properties: { request_id: { type: 'string', maxLength: 1024 } } },
    response: answers(DECISION, 404, 503),
  }
  const path = `${DECISIONS_PATH}/:request_id`
  app.get<{ Params: { request_id: string } }>(path, { schema: one, config }, async ({ params }) => {
    const { request_id: sent } = params
    for (const id of new Set([plainId(sent), sent])) {
      const traced = trail.find(id)
      const own = traced && plainDecision(traced, keyHash)
      const shared = await sharedDecisions?.find(id).catch((error: unknown) => {
        if (own === undefined) throw error
        return undefined
      })
      // An id may have been used for several: the newest one is meant.
      if (shared !== undefined && (own === undefined || shared.at > own.at)) return shared
      if (own !== undefined) return own
    }
    throw unknownDecision(sent)
  })

  const list = {
    operationId: 'listDecisions',
    summary: 'The newest decisions that this node remembers',
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

function unknownDecision(requestId: string): ProblemError {
  const fix = 'perhaps it is too long ago, was admitted without a name, or was one of too many in a second'
  const fault = { field: 'request_id', value: requestId, fix }
  return new ProblemError(problem('DECISION_UNKNOWN', `No decision is known by this id: ${fix}.`, [fault]))
}
