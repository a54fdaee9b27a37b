// /api/v1/rate-limit/overrides: raises or lowers limits of one key, exempts it or bans it.

import type { FastifyInstance } from 'fastify'
import type { Limiter } from 'sluice'
import { keyText, parseKey } from '../../exceptions/key.ts'
import {
  EFFECT_FIX,
  EXPIRY_FIX,
  type OverrideBody,
  overrideWarnings,
  parseOverride,
  type StoredOverride,
} from '../../exceptions/override.ts'
import { OVERRIDES_MAX, type OverrideTable, overrideUnknown } from '../../exceptions/override-table.ts'
import {
  APPROVAL_ANSWER,
  approvalAnswer,
  isExceptionId,
  keyField,
  lifetimeField,
  noDatabase,
  REASON_QUERY,
  REQUIRED_REASON,
  STATE,
} from '../bodies/exception-fields.ts'
import { answers, problemAnswers, text } from '../bodies/schemas.ts'

export const OVERRIDES_PATH = '/api/v1/rate-limit/overrides'
const OVERRIDE_PATH = `${OVERRIDES_PATH}/:override_id`
const LIMIT_MAX = 1_000_000_000_000
const FACTOR_MAX = 1000
const LISTED = { default: 100, max: 1000 } as const

const BODY = {
  type: 'object',
  additionalProperties: false,
  required: ['key', 'reason'],
  properties: {
    rule_id: text('Rule to override. Default: every rule whose key starts with the fact of `key`.', 'demo', 64),
    key: keyField(
      'With rule_id: value of the first fact of its scope. Without: fact and value, such as user:alice.',
      0,
    ),
    limit: {
      type: 'integer',
      description: 'Replaces the limit. Windows stay as they are.',
      examples: [500],
      minimum: 1,
      maximum: LIMIT_MAX,
      'x-fix': `give a whole number from 1 to ${LIMIT_MAX}; to refuse every request, use ban`,
    },
    limit_name: text('Limit that `limit` replaces, if the rule has several.', '1m', 64),
    factor: {
      type: 'number',
      description: 'Multiplies every limit: 2 doubles it, 0.5 halves it.',
      examples: [2],
      exclusiveMinimum: 0,
      maximum: FACTOR_MAX,
      'x-fix': `give a number above 0 and at most ${FACTOR_MAX}; to refuse every request, use ban`,
    },
    ban: {
      type: ['boolean', 'object'],
      description: 'Refuses every request of the key: true (429), or an object with the status 429 or 403.',
      examples: [true, { status: 403 }],
      additionalProperties: false,
      properties: { status: { type: 'integer', enum: [403, 429], 'x-fix': 'use 403 or 429' } },
      not: { const: false },
      'x-fix': 'use true, { "status": 403 } or { "status": 429 }',
    },
    exempt: { type: 'boolean', const: true, description: 'The rule does not apply to the key.', 'x-fix': 'use true' },
    expires_in: lifetimeField('When it ends: a duration such as 30m, 12h or 7d, or seconds.'),
    forever: {
      type: 'boolean',
      const: true,
      description: 'Instead of expires_in: until it is removed.',
      'x-fix': `use true; ${EXPIRY_FIX}`,
    },
    reason: REQUIRED_REASON,
  },
  'x-fix': `send a JSON object with key, reason, and expires_in or "forever": true; ${EFFECT_FIX}`,
  examples: [
    { rule_id: 'demo', key: '203.0.113.42', limit: 500, expires_in: '1h', reason: 'load test until noon' },
    { key: 'user:alice', ban: { status: 403 }, forever: true, reason: 'fraud case 4711' },
  ],
}

const OVERRIDE = {
  type: 'object',
  properties: {
    override_id: { type: 'string' },
    state: STATE,
    rule_id: { type: ['string', 'null'], description: 'null: every rule.' },
    key: { type: 'string', description: 'Fact and value, such as user:alice.' },
    limit: { type: 'integer' },
    limit_name: { type: 'string' },
    factor: { type: 'number' },
    ban: { type: 'object', properties: { status: { type: 'integer' } } },
    exempt: { type: 'boolean' },
    reason: { type: 'string' },
    by: { type: 'string', description: 'The id of a token, or admin-token.' },
    by_name: { type: ['string', 'null'], description: 'The name of that token.' },
    created_at: { type: 'string' },
    expires_at: { type: ['string', 'null'], description: 'null: never.' },
    approvals: { type: 'integer', description: 'Approvals given, if it is pending.' },
  },
}
const LIST = {
  type: 'object',
  required: ['overrides', 'next'],
  properties: {
    overrides: { type: 'array', items: OVERRIDE },
    next: { type: ['string', 'null'], description: '`after` for the next page; null on the last.' },
  },
}
const CREATED = {
  type: 'object',
  description: 'Created.',
  required: ['override_id', 'state'],
  properties: {
    override_id: { type: 'string' },
    state: STATE,
    expires_at: { type: ['string', 'null'] },
    approvals_required: { type: 'integer', description: 'Approvals by others that it needs, if it is pending.' },
    replaced: { type: 'array', items: { type: 'string' }, description: 'Earlier overrides of the same key and limit.' },
    warnings: { type: 'array', items: { type: 'string' }, description: 'Why it may have no effect.' },
  },
}
const QUERY = {
  type: 'object',
  additionalProperties: false,
  properties: {
    rule_id: text('Only overrides of this rule.', 'demo', 64),
    key: keyField('Only overrides of this key, such as user:alice.', 1),
    limit: {
      type: 'string',
      description: `Maximum number, from 1 to ${LISTED.max}. Default: ${LISTED.default}.`,
      pattern: '^([1-9][0-9]{0,2}|1000)$',
      'x-fix': `give a whole number from 1 to ${LISTED.max}`,
    },
    after: {
      type: 'string',
      description: '`next` of the previous page.',
      pattern: '^ovr_[0-9a-f]{8,32}$',
      'x-fix': 'give the `next` of the previous page',
    },
  },
}
const PARAMS = { type: 'object', properties: { override_id: { type: 'string' } } }

export type PlainOverride = {
  readonly override_id: string
  readonly state: 'active' | 'pending'
  readonly rule_id: string | null
  readonly key: string
  readonly limit?: number
  readonly limit_name?: string
  readonly factor?: number
  readonly ban?: { readonly status: number }
  readonly exempt?: true
  readonly reason: string
  readonly by: string
  readonly by_name: string | null
  readonly created_at: string
  readonly expires_at: string | null
  readonly approvals?: number
}

export type OverrideList = { readonly overrides: readonly PlainOverride[]; readonly next: string | null }

export type OverrideCreated = {
  readonly override_id: string
  readonly state: 'active' | 'pending'
  readonly expires_at: string | null
  readonly approvals_required?: number
  readonly replaced?: readonly string[]
  readonly warnings?: readonly string[]
}

export type OverridesDeps = {
  readonly limiter: Limiter
  /** Undefined on a node without a database. */
  readonly overrides: OverrideTable | undefined
  readonly ipv6Prefix: number
  readonly nowMs: () => number
}

type OneOverride = { Params: { override_id: string } }

export function overridesRoutes(app: FastifyInstance, deps: OverridesDeps): void {
  listRoutes(app, deps)
  createRoute(app, deps)
  approveRoute(app, deps)
  removeRoute(app, deps)
}

function tableOf({ overrides }: OverridesDeps): OverrideTable {
  if (overrides === undefined) throw noDatabase('overrides')
  return overrides
}

function listRoutes(app: FastifyInstance, deps: OverridesDeps): void {
  const config = { access: 'viewer' as const }
  const response = answers(LIST, 400, 409, 503)
  const about = { operationId: 'listOverrides', summary: 'Overrides, newest first', tags: ['exceptions'] }
  type Query = { rule_id?: string; key?: string; limit?: string; after?: string }
  const schema = { ...about, querystring: QUERY, response }
  app.get<{ Querystring: Query }>(OVERRIDES_PATH, { schema, config }, async ({ query }): Promise<OverrideList> => {
    const table = tableOf(deps)
    const limit = Number(query.limit ?? LISTED.default)
    const key = query.key === undefined ? undefined : parseKey(query.key, deps.ipv6Prefix)
    const found = await table.list({ ruleId: query.rule_id, ...key, before: query.after, limit: limit + 1 })
    const page = found.slice(0, limit)
    const next = found.length > limit ? (page.at(-1)?.overrideId ?? null) : null
    return { overrides: page.map(plainOverride), next }
  })
  const one = { operationId: 'getOverride', summary: 'One override', tags: ['exceptions'], params: PARAMS }
  const options = { schema: { ...one, response: answers(OVERRIDE, 404, 409, 503) }, config }
  app.get<OneOverride>(OVERRIDE_PATH, options, async ({ params: { override_id: id } }) => {
    const table = tableOf(deps)
    const found = isExceptionId(id) ? await table.find(id) : undefined
    if (found === undefined) throw overrideUnknown(id)
    return plainOverride(found)
  })
}

function createRoute(app: FastifyInstance, deps: OverridesDeps): void {
  const { limiter, ipv6Prefix, nowMs } = deps
  const schema = {
    operationId: 'createOverride',
    summary: 'Raise or lower the limits of one key, exempt it, or ban it',
    description:
      `Takes effect on all nodes within a second; at most ${OVERRIDES_MAX}. It replaces an earlier override of the ` +
      'same rule, key and limit. One that raises or exempts waits for approvals if changes need them.',
    tags: ['exceptions'],
    body: BODY,
    response: { 201: CREATED, ...problemAnswers(400, 409, 503) },
  }
  const options = { schema, config: { access: 'editor' as const } }
  app.post<{ Body: OverrideBody }>(OVERRIDES_PATH, options, async ({ body, caller }, reply) => {
    const table = tableOf(deps)
    const request = parseOverride(body, limiter, { nowMs: nowMs(), ipv6Prefix })
    const { overrideId, state, approvalsRequired, replaced } = await table.create(request, caller.id)
    const warnings = overrideWarnings(request, body.key, limiter)
    reply.code(201)
    return {
      override_id: overrideId,
      state,
      expires_at: request.expiresAt?.toISOString() ?? null,
      ...(state === 'pending' ? { approvals_required: approvalsRequired } : {}),
      ...(replaced.length === 0 ? {} : { replaced }),
      ...(warnings.length === 0 ? {} : { warnings }),
    }
  })
}

function approveRoute(app: FastifyInstance, deps: OverridesDeps): void {
  const schema = {
    operationId: 'approveOverride',
    summary: 'Approve a pending override',
    tags: ['exceptions'],
    params: PARAMS,
    response: answers(APPROVAL_ANSWER, 403, 404, 409, 503),
  }
  const options = { schema, config: { access: 'approver' as const } }
  app.post<OneOverride>(`${OVERRIDE_PATH}/approve`, options, async ({ params: { override_id: id }, caller }) => {
    const table = tableOf(deps)
    if (!isExceptionId(id)) throw overrideUnknown(id)
    return approvalAnswer(await table.approve(id, caller))
  })
}

function removeRoute(app: FastifyInstance, deps: OverridesDeps): void {
  const schema = {
    operationId: 'removeOverride',
    summary: 'Remove an override',
    tags: ['exceptions'],
    params: PARAMS,
    querystring: REASON_QUERY,
    response: { 204: { type: 'null', description: 'Removed.' }, ...problemAnswers(400, 404, 409, 503) },
  }
  const options = { schema, config: { access: 'editor' as const } }
  type Remove = OneOverride & { Querystring: { reason?: string } }
  app.delete<Remove>(OVERRIDE_PATH, options, async ({ params: { override_id: id }, query, caller }, reply) => {
    const table = tableOf(deps)
    if (!isExceptionId(id) || !(await table.remove(id, caller.id, query.reason))) throw overrideUnknown(id)
    return reply.code(204).send()
  })
}

function plainOverride(override: StoredOverride): PlainOverride {
  const { effect, state, approvals } = override
  return {
    override_id: override.overrideId,
    state: state === 'pending' ? 'pending' : 'active',
    rule_id: override.ruleId,
    key: keyText(override.key),
    ...('ban' in effect ? { ban: { status: effect.ban } } : effect),
    reason: override.reason,
    by: override.actor,
    by_name: override.actorName,
    created_at: override.createdAt.toISOString(),
    expires_at: override.expiresAt?.toISOString() ?? null,
    ...(state === 'pending' ? { approvals } : {}),
  }
}
