// GET /api/v1/rate-limit/decisions/{request_id}: explains a past decision. Finds the newest refusals of all nodes,
// their admissions whose answer had an id, and sampled admissions of this process. Clients appear as keyed hashes.

import type { FastifyInstance } from 'fastify'
import type { HeaderOptions } from 'sluice/http'
import type { DecisionHistory } from '../../checks/decision-history.ts'
import { type PlainDecision, plainDecision } from '../../checks/plain-decision.ts'
import { plainId } from '../../checks/receipt-ids.ts'
import type { SharedDecisions } from '../../checks/shared-decisions.ts'
import type { KeyHash } from '../../log.ts'
import { ProblemError, problem } from '../../problems/problem.ts'
import type { NodeWorkers } from '../../workers/node-workers.ts'
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
    version: { type: 'integer', description: 'Version of the rules.' },
    source: { type: 'string', description: 'Source of the decision: store, lease, local or policy.' },
    key_hash: { type: ['string', 'null'], description: 'Hash of the bucket key, as in the log.' },
    method: { type: ['string', 'null'] },
    endpoint: { type: ['string', 'null'], description: 'First 256 characters of the path.' },
    limit: count,
    remaining: count,
    reset_after_ms: {
      ...count,
      description: 'Refused: time until the same request passes. Allowed: time until the limit is full again.',
    },
    full_after_ms: { ...count, description: 'Time until the limit is full again.' },
    retry_after_ms: count,
    limits: { type: 'array', items: { type: 'object', additionalProperties: true } },
    exceptions: {
      type: 'array',
      description: 'Overrides, signals, global factor and bypass that changed the decision.',
      items: { type: 'object', additionalProperties: true },
    },
    status: { type: 'integer', description: 'Status for the client: 200, 429, or 403 for a ban with that status.' },
    headers: {
      type: 'object',
      description: 'Response headers for the client, without the jitter of Retry-After.',
      additionalProperties: { type: 'string' },
    },
  },
}

export type DecisionsDeps = {
  readonly history: DecisionHistory
  /** Undefined on a node that does not share its counters. */
  readonly sharedDecisions: SharedDecisions | undefined
  readonly keyHash: KeyHash
  readonly headers: HeaderOptions
  readonly workers: NodeWorkers
}

const TOPIC = 'decisions'

export function decisionsRoutes(app: FastifyInstance, deps: DecisionsDeps): void {
  const { history, sharedDecisions, keyHash, headers, workers } = deps
  const config = { access: 'viewer' as const }
  const one = {
    operationId: 'explainDecision',
    summary: 'Why a request was refused or admitted',
    description:
      'Finds refusals, and admissions with a request_id, of all nodes that share the counters, for one hour.',
    tags: ['insight'],
    params: { type: 'object', properties: { request_id: { type: 'string', maxLength: 1024 } } },
    response: answers(DECISION, 404, 503),
  }
  const path = `${DECISIONS_PATH}/:request_id`
  app.get<{ Params: { request_id: string } }>(path, { schema: one, config }, async ({ params }) => {
    const { request_id: sent } = params
    for (const id of new Set([plainId(sent), sent])) {
      const recorded = history.find(id)
      const own = recorded && plainDecision(recorded, keyHash, headers)
      const shared = await sharedDecisions?.find(id).catch((error: unknown) => {
        if (own === undefined) throw error
        return undefined
      })
      // A reused id refers to its newest decision.
      if (shared !== undefined && (own === undefined || shared.at > own.at)) return shared
      if (own !== undefined) return own
    }
    throw unknownDecision(sent)
  })

  const list = {
    operationId: 'listDecisions',
    summary: 'Newest decisions of this node',
    tags: ['insight'],
    querystring: limitQuery(LISTED),
    response: answers({ type: 'object', properties: { decisions: { type: 'array', items: DECISION } } }, 400),
  }
  workers.answer(TOPIC, (count: number) =>
    history.newest(count).map((recorded) => plainDecision(recorded, keyHash, headers)),
  )
  app.get<{ Querystring: { limit?: string } }>(DECISIONS_PATH, { schema: list, config }, async ({ query }) => {
    const count = Number(query.limit ?? LISTED.default)
    const { answers: known } = await workers.gather<readonly PlainDecision[]>(TOPIC, count)
    const newestFirst = known.flat().sort((one, other) => (one.at < other.at ? 1 : one.at > other.at ? -1 : 0))
    return { decisions: newestFirst.slice(0, count) }
  })
}

function unknownDecision(requestId: string): ProblemError {
  const fix = 'it may be too old, dropped under load, or an admission without a request_id'
  const fieldError = { field: 'request_id', value: requestId, fix }
  return new ProblemError(problem('DECISION_UNKNOWN', `No decision has this id: ${fix}.`, [fieldError]))
}
