// /api/v1/rate-limit/bypass-tokens: creates, rotates, lists and revokes bypass tokens. A token is shown once, in the
// response that creates it.

import type { FastifyInstance } from 'fastify'
import { type FieldError, type Limiter, LimiterError, parseRules, suggestion } from 'sluice'
import {
  BYPASS_MAX,
  type BypassRequest,
  type BypassTable,
  bypassUnknown,
  type ListedBypass,
} from '../../exceptions/bypass-table.ts'
import { expiryIn, lifetimeSeconds } from '../../exceptions/lifetime.ts'
import { invalidField, invalidRequest, ProblemError } from '../../problems/problem.ts'
import {
  APPROVAL_ANSWER,
  approvalAnswer,
  isExceptionId,
  lifetimeField,
  noDatabase,
  REASON_QUERY,
  STATE,
} from '../bodies/exception-fields.ts'
import { answers, problemAnswers, REASON, text } from '../bodies/schemas.ts'

export const BYPASS_PATH = '/api/v1/rate-limit/bypass-tokens'
const TOKEN_PATH = `${BYPASS_PATH}/:bypass_id`
const SCOPE_MAX = 100
const PER_MINUTE_MAX = 60_000_000
const GRACE_FIX = 'give a duration such as "1h", or 0 to end the previous secret at once; at most 30d'
const GRACE_SECONDS_MAX = 30 * 86_400

type CreateBody = {
  readonly name: string
  readonly rules?: readonly string[]
  readonly paths?: readonly string[]
  readonly expires_in: string | number
  readonly limit_per_minute: number
  readonly reason?: string
}

const BODY = {
  type: 'object',
  additionalProperties: false,
  required: ['name', 'expires_in', 'limit_per_minute'],
  properties: {
    name: text('Who or what uses it.', 'nightly load test', 100),
    rules: {
      type: 'array',
      description: 'Ids of the rules that it bypasses. Default: all.',
      items: text('A rule.', 'demo', 64),
      minItems: 1,
      maxItems: SCOPE_MAX,
      'x-fix': `give 1 to ${SCOPE_MAX} ids of rules, or omit it for all`,
    },
    paths: {
      type: 'array',
      description: 'Patterns of the paths that it is valid for, as in endpoint_pattern. Default: all.',
      items: text('A pattern.', '/api/v1/**', 1024),
      minItems: 1,
      maxItems: SCOPE_MAX,
      'x-fix': `give 1 to ${SCOPE_MAX} patterns such as /api/v1/**, or omit it for all`,
    },
    expires_in: lifetimeField('Lifetime: a duration such as 12h or 90d, or seconds.'),
    limit_per_minute: {
      type: 'integer',
      description: 'Units per minute, over all nodes; a request of cost n takes n. Above it, the rules apply.',
      examples: [600],
      minimum: 1,
      maximum: PER_MINUTE_MAX,
      'x-fix': `give a whole number from 1 to ${PER_MINUTE_MAX}`,
    },
    reason: REASON,
  },
  'x-fix': 'send a JSON object with name, expires_in and limit_per_minute',
  examples: [{ name: 'nightly load test', paths: ['/api/v1/**'], expires_in: '90d', limit_per_minute: 600 }],
}

const ROTATE_BODY = {
  type: 'object',
  additionalProperties: false,
  properties: {
    grace: {
      type: ['string', 'integer'],
      description: 'How long the previous secret stays valid. Default: 1h.',
      maxLength: 10,
      'x-fix': GRACE_FIX,
    },
  },
  'x-fix': 'send a JSON object',
  examples: [{ grace: '1h' }],
}

const time = { type: ['string', 'null'] }
const FIELDS = {
  bypass_id: { type: 'string' },
  name: { type: 'string' },
  state: STATE,
  rules: { type: ['array', 'null'], items: { type: 'string' }, description: 'null: all rules.' },
  paths: { type: ['array', 'null'], items: { type: 'string' }, description: 'null: all paths.' },
  limit_per_minute: { type: 'integer' },
  reason: { type: ['string', 'null'] },
  by: { type: 'string', description: 'The id of an API token, or admin-token.' },
  by_name: { type: ['string', 'null'], description: 'The name of that token.' },
  created_at: { type: 'string' },
  expires_at: { type: 'string' },
  revoked_at: time,
  uses: { type: 'integer', description: 'Requests that used it, to within a few seconds.' },
  last_used_at: time,
  previous_secret_ends_at: { ...time, description: 'While the previous secret is still valid after a rotation.' },
  approvals: { type: 'integer', description: 'Approvals given, if it is pending.' },
}
const LIST = {
  type: 'object',
  required: ['bypass_tokens'],
  properties: { bypass_tokens: { type: 'array', items: { type: 'object', properties: FIELDS } } },
}
const CREATED = {
  type: 'object',
  description: 'The token, shown only once.',
  required: ['token', 'bypass_id'],
  properties: {
    token: { type: 'string', description: 'The token itself.' },
    ...FIELDS,
    approvals_required: { type: 'integer', description: 'Approvals by others that it needs, if it is pending.' },
  },
}
const PARAMS = { type: 'object', properties: { bypass_id: { type: 'string' } } }

/** Bypass token with the field names of the API. */
export type PlainBypass = {
  readonly bypass_id: string
  readonly name: string
  readonly state: 'active' | 'pending'
  readonly rules: readonly string[] | null
  readonly paths: readonly string[] | null
  readonly limit_per_minute: number
  readonly reason: string | null
  readonly by: string
  readonly by_name: string | null
  readonly created_at: string
  readonly expires_at: string
  readonly revoked_at: string | null
  readonly uses: number
  readonly last_used_at: string | null
  readonly previous_secret_ends_at: string | null
  readonly approvals?: number
}

export type BypassDeps = {
  readonly limiter: Limiter
  /** Undefined on a node without a database. */
  readonly bypassTokens: BypassTable | undefined
  readonly nowMs: () => number
}

type OneToken = { Params: { bypass_id: string } }

export function bypassRoutes(app: FastifyInstance, deps: BypassDeps): void {
  listAndCreateRoutes(app, deps)
  rotateRoute(app, deps)
  approveRoute(app, deps)
  revokeRoute(app, deps)
}

function tableOf({ bypassTokens }: BypassDeps): BypassTable {
  if (bypassTokens === undefined) throw noDatabase('bypass tokens')
  return bypassTokens
}

function listAndCreateRoutes(app: FastifyInstance, deps: BypassDeps): void {
  const list = { operationId: 'listBypassTokens', summary: 'All bypass tokens, without secrets', tags: ['exceptions'] }
  const options = { schema: { ...list, response: answers(LIST, 409, 503) }, config: { access: 'viewer' as const } }
  app.get(BYPASS_PATH, options, async () => ({ bypass_tokens: (await tableOf(deps).list()).map(plainBypass) }))
  const create = {
    operationId: 'createBypassToken',
    summary: 'Create a bypass token',
    description:
      `A request with the token skips rules, but never a ban. At most ${BYPASS_MAX}. It waits for approvals if ` +
      'changes need them.',
    tags: ['exceptions'],
    body: BODY,
    response: { 201: CREATED, ...problemAnswers(400, 409, 503) },
  }
  const config = { access: 'approver' as const }
  app.post<{ Body: CreateBody }>(BYPASS_PATH, { schema: create, config }, async ({ body, caller }, reply) => {
    const table = tableOf(deps)
    const { secret, approvalsRequired, token } = await table.create(requestOf(body, deps), caller.id)
    reply.code(201).header('cache-control', 'no-store')
    const waits = token.state === 'pending' ? { approvals_required: approvalsRequired } : {}
    return { token: secret, ...plainBypass(token), ...waits }
  })
}

function rotateRoute(app: FastifyInstance, deps: BypassDeps): void {
  const schema = {
    operationId: 'rotateBypassToken',
    summary: 'Create a new secret for a bypass token',
    description: 'Both secrets are valid during the grace period.',
    tags: ['exceptions'],
    params: PARAMS,
    body: ROTATE_BODY,
    response: { 201: CREATED, ...problemAnswers(400, 404, 409, 503) },
  }
  const options = { schema, config: { access: 'approver' as const } }
  type Rotate = OneToken & { Body: { grace?: string | number } }
  app.post<Rotate>(`${TOKEN_PATH}/rotate`, options, async ({ params: { bypass_id: id }, body, caller }, reply) => {
    const table = tableOf(deps)
    const graceMs = graceSeconds(body.grace ?? '1h') * 1000
    if (!isExceptionId(id)) throw bypassUnknown(id)
    const { secret, token } = await table.rotate(id, graceMs, caller.id)
    reply.code(201).header('cache-control', 'no-store')
    return { token: secret, ...plainBypass(token) }
  })
}

function approveRoute(app: FastifyInstance, deps: BypassDeps): void {
  const schema = {
    operationId: 'approveBypassToken',
    summary: 'Approve a pending bypass token',
    tags: ['exceptions'],
    params: PARAMS,
    response: answers(APPROVAL_ANSWER, 403, 404, 409, 503),
  }
  const options = { schema, config: { access: 'approver' as const } }
  app.post<OneToken>(`${TOKEN_PATH}/approve`, options, async ({ params: { bypass_id: id }, caller }) => {
    const table = tableOf(deps)
    if (!isExceptionId(id)) throw bypassUnknown(id)
    return approvalAnswer(await table.approve(id, caller))
  })
}

function revokeRoute(app: FastifyInstance, deps: BypassDeps): void {
  const schema = {
    operationId: 'revokeBypassToken',
    summary: 'Revoke a bypass token',
    tags: ['exceptions'],
    params: PARAMS,
    querystring: REASON_QUERY,
    response: { 204: { type: 'null', description: 'Revoked.' }, ...problemAnswers(400, 404, 409, 503) },
  }
  const options = { schema, config: { access: 'approver' as const } }
  type Revoke = OneToken & { Querystring: { reason?: string } }
  app.delete<Revoke>(TOKEN_PATH, options, async ({ params: { bypass_id: id }, query, caller }, reply) => {
    const table = tableOf(deps)
    if (!isExceptionId(id) || !(await table.revoke(id, caller.id, query.reason))) throw bypassUnknown(id)
    return reply.code(204).send()
  })
}

/** Throws a problem that names every invalid field. */
function requestOf(body: CreateBody, { limiter, nowMs }: BypassDeps): BypassRequest {
  const { name, rules = null, paths = null, limit_per_minute: limitPerMinute, reason } = body
  const errors = [...ruleErrors(rules ?? [], limiter), ...(paths ?? []).flatMap(pathErrors)]
  if (errors.length > 0) throw new ProblemError(invalidRequest(errors))
  return { name, rules, paths, limitPerMinute, reason, expiresAt: expiryIn('expires_in', body.expires_in, nowMs()) }
}

function ruleErrors(ruleIds: readonly string[], limiter: Limiter): FieldError[] {
  return ruleIds.flatMap((id, index) => {
    if (limiter.rule(id) !== undefined) return []
    const known = limiter.rules.map(({ rule_id }) => rule_id)
    return [{ field: `rules.${index}`, value: id, fix: `give the id of a rule${suggestion(id, known)}` }]
  })
}

/** Patterns are those of rules: the parser of rules validates them. */
function pathErrors(pattern: string, index: number): FieldError[] {
  try {
    parseRules([{ rule_id: 'path', endpoint_pattern: pattern, limit: 1, window_seconds: 1 }])
    return []
  } catch (error) {
    if (!(error instanceof LimiterError)) throw error
    return error.fieldErrors.map(({ fix }) => ({ field: `paths.${index}`, value: pattern, fix }))
  }
}

function graceSeconds(value: string | number): number {
  const seconds = value === 0 || value === '0' || value === '0s' ? 0 : lifetimeSeconds(value)
  if (seconds === undefined || seconds > GRACE_SECONDS_MAX) throw invalidField('grace', value, GRACE_FIX)
  return seconds
}

function plainBypass(token: ListedBypass): PlainBypass {
  return {
    bypass_id: token.bypassId,
    name: token.name,
    state: token.state,
    rules: token.rules,
    paths: token.paths,
    limit_per_minute: token.limitPerMinute,
    reason: token.reason,
    by: token.actor,
    by_name: token.actorName,
    created_at: token.createdAt.toISOString(),
    expires_at: token.expiresAt.toISOString(),
    revoked_at: token.revokedAt?.toISOString() ?? null,
    uses: token.uses,
    last_used_at: token.lastUsedAt?.toISOString() ?? null,
    previous_secret_ends_at: token.previousSecretEndsAt?.toISOString() ?? null,
    ...(token.state === 'pending' ? { approvals: token.approvals } : {}),
  }
}
