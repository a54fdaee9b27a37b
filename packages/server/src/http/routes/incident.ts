// /api/v1/rate-limit/incident: freezes rule changes, and multiplies all limits by a global factor.

import type { FastifyInstance } from 'fastify'
import { expiryIn } from '../../exceptions/lifetime.ts'
import type { ListedFactor } from '../../incident/factor-table.ts'
import type { IncidentState, IncidentTable } from '../../incident/incident-table.ts'
import {
  APPROVAL_ANSWER,
  approvalAnswer,
  lifetimeField,
  noDatabase,
  REASON_QUERY,
  REQUIRED_REASON,
  STATE,
} from '../bodies/exception-fields.ts'
import { answers, problemAnswers, REASON } from '../bodies/schemas.ts'

export const INCIDENT_PATH = '/api/v1/rate-limit/incident'
const FACTOR_PATH = `${INCIDENT_PATH}/factor`
const FACTOR_MAX = 1000

const FACTOR = {
  type: ['object', 'null'],
  properties: {
    factor_id: { type: 'string' },
    state: STATE,
    factor: { type: 'number' },
    reason: { type: 'string' },
    by: { type: 'string', description: 'The id of a token, or admin-token.' },
    by_name: { type: ['string', 'null'], description: 'The name of that token.' },
    created_at: { type: 'string' },
    expires_at: { type: 'string' },
    approvals: { type: 'integer', description: 'Approvals given, if it is pending.' },
  },
}
const ANSWER = {
  type: 'object',
  required: ['frozen', 'freeze', 'factor', 'pending_factor'],
  properties: {
    frozen: { type: 'boolean' },
    freeze: {
      type: ['object', 'null'],
      properties: {
        since: { type: 'string' },
        by: { type: 'string', description: 'The id of a token, or admin-token.' },
        by_name: { type: ['string', 'null'], description: 'The name of that token.' },
        reason: { type: ['string', 'null'] },
      },
    },
    factor: { ...FACTOR, description: 'Global factor in force; null: none.' },
    pending_factor: { ...FACTOR, description: 'Global factor that waits for approvals; null: none.' },
  },
}
const FREEZE_BODY = {
  type: 'object',
  additionalProperties: false,
  required: ['reason'],
  properties: { reason: REQUIRED_REASON },
  'x-fix': 'send a JSON object with a reason',
  examples: [{ reason: 'incident 42: no rule changes until it is over' }],
}
const UNFREEZE_BODY = {
  type: 'object',
  additionalProperties: false,
  properties: { reason: REASON },
  'x-fix': 'send a JSON object',
  examples: [{ reason: 'incident 42 is over' }],
}
const FACTOR_BODY = {
  type: 'object',
  additionalProperties: false,
  required: ['factor', 'expires_in', 'reason'],
  properties: {
    factor: {
      type: 'number',
      description: 'Multiplies every limit of every rule: 0.5 halves it; the result is at least 1.',
      examples: [0.5],
      exclusiveMinimum: 0,
      maximum: FACTOR_MAX,
      'x-fix': `give a number above 0 and at most ${FACTOR_MAX}`,
    },
    expires_in: lifetimeField('When it ends: a duration such as 30m or 12h, or seconds.'),
    reason: REQUIRED_REASON,
  },
  'x-fix': 'send a JSON object with factor, expires_in and reason',
  examples: [{ factor: 0.5, expires_in: '30m', reason: 'database overload' }],
}

const APPROVE_BODY = {
  type: 'object',
  additionalProperties: false,
  required: ['factor_id'],
  properties: {
    factor_id: {
      type: 'string',
      description: 'Id of the pending factor.',
      examples: ['fac_018bcfe568a1b2c3d4e5f607'],
      pattern: '^fac_[0-9a-z]{1,96}$',
      'x-fix': `give the factor_id of pending_factor: GET ${INCIDENT_PATH} shows it`,
    },
  },
  'x-fix': 'send a JSON object with factor_id',
  examples: [{ factor_id: 'fac_018bcfe568a1b2c3d4e5f607' }],
}

export type PlainFactor = {
  readonly factor_id: string
  readonly state: 'active' | 'pending'
  readonly factor: number
  readonly reason: string
  readonly by: string
  readonly by_name: string | null
  readonly created_at: string
  readonly expires_at: string
  readonly approvals?: number
}

export type IncidentAnswer = {
  readonly frozen: boolean
  readonly freeze: NonNullable<IncidentState['freeze']> | null
  readonly factor: PlainFactor | null
  readonly pending_factor: PlainFactor | null
}

export type IncidentRouteDeps = {
  /** Undefined on a node without a database. */
  readonly incident: IncidentTable | undefined
  readonly nowMs: () => number
}

type FactorBody = { readonly factor: number; readonly expires_in: string | number; readonly reason: string }

export function incidentRoutes(app: FastifyInstance, deps: IncidentRouteDeps): void {
  const about = { operationId: 'readIncident', summary: 'Freeze and global factor', tags: ['admin'] }
  const schema = { ...about, response: answers(ANSWER, 409, 503) }
  app.get(INCIDENT_PATH, { schema, config: { access: 'viewer' } }, () => stateOf(tableOf(deps)))
  freezeRoutes(app, deps)
  factorRoutes(app, deps)
}

function tableOf({ incident }: IncidentRouteDeps): IncidentTable {
  if (incident === undefined) throw noDatabase('the state of incidents')
  return incident
}

async function stateOf(table: IncidentTable): Promise<IncidentAnswer> {
  const { freeze, factors } = await table.read()
  const plain = (wanted: 'active' | 'pending') => {
    const found = factors.find(({ state }) => state === wanted)
    return found === undefined ? null : plainFactor(found)
  }
  return {
    frozen: freeze !== undefined,
    freeze: freeze ?? null,
    factor: plain('active'),
    pending_factor: plain('pending'),
  }
}

function freezeRoutes(app: FastifyInstance, deps: IncidentRouteDeps): void {
  const config = { access: 'approver' as const }
  const freeze = {
    operationId: 'freezeRules',
    summary: 'Freeze rule changes',
    description:
      'Only a rollback to the predecessor can then change rules. Kill switch, overrides and global factor still work.',
    tags: ['admin'],
    body: FREEZE_BODY,
    response: answers(ANSWER, 400, 409, 503),
  }
  const path = `${INCIDENT_PATH}/freeze`
  app.post<{ Body: { reason: string } }>(path, { schema: freeze, config }, async ({ body, caller }) => {
    const table = tableOf(deps)
    await table.freeze(body.reason, caller.id)
    return stateOf(table)
  })
  const unfreeze = {
    operationId: 'unfreezeRules',
    summary: 'Allow rule changes again',
    tags: ['admin'],
    body: UNFREEZE_BODY,
    response: answers(ANSWER, 400, 409, 503),
  }
  const options = { schema: unfreeze, config }
  app.post<{ Body: { reason?: string } }>(`${INCIDENT_PATH}/unfreeze`, options, async ({ body, caller }) => {
    const table = tableOf(deps)
    await table.unfreeze(body.reason, caller.id)
    return stateOf(table)
  })
}

function factorRoutes(app: FastifyInstance, deps: IncidentRouteDeps): void {
  const config = { access: 'approver' as const }
  const set = {
    operationId: 'setGlobalFactor',
    summary: 'Multiply all limits',
    description: 'Replaces the current factor. A factor above 1 waits for approvals if changes need them.',
    tags: ['admin'],
    body: FACTOR_BODY,
    response: answers(ANSWER, 400, 409, 503),
  }
  app.post<{ Body: FactorBody }>(FACTOR_PATH, { schema: set, config }, async ({ body, caller }) => {
    const table = tableOf(deps)
    const expiresAt = expiryIn('expires_in', body.expires_in, deps.nowMs())
    await table.setFactor({ factor: body.factor, reason: body.reason, expiresAt }, caller.id)
    return stateOf(table)
  })
  const approve = {
    operationId: 'approveGlobalFactor',
    summary: 'Approve the pending global factor',
    description:
      'A newer factor replaces the pending one: the id ensures that you approve the factor that you have read.',
    tags: ['admin'],
    body: APPROVE_BODY,
    response: answers(APPROVAL_ANSWER, 400, 403, 409, 503),
  }
  type Approve = { Body: { factor_id: string } }
  app.post<Approve>(`${FACTOR_PATH}/approve`, { schema: approve, config }, async ({ body, caller }) =>
    approvalAnswer(await tableOf(deps).approveFactor(body.factor_id, caller)),
  )
  const end = {
    operationId: 'endGlobalFactor',
    summary: 'End the global factor',
    tags: ['admin'],
    querystring: REASON_QUERY,
    response: { 204: { type: 'null', description: 'Ended.' }, ...problemAnswers(400, 404, 409, 503) },
  }
  type End = { Querystring: { reason?: string } }
  app.delete<End>(FACTOR_PATH, { schema: end, config }, async ({ query, caller }, reply) => {
    await tableOf(deps).endFactor(query.reason, caller.id)
    return reply.code(204).send()
  })
}

function plainFactor(factor: ListedFactor): PlainFactor {
  return {
    factor_id: factor.factorId,
    state: factor.state,
    factor: factor.factor,
    reason: factor.reason,
    by: factor.actor,
    by_name: factor.actorName,
    created_at: factor.createdAt.toISOString(),
    expires_at: factor.expiresAt.toISOString(),
    ...(factor.state === 'pending' ? { approvals: factor.approvals } : {}),
  }
}
