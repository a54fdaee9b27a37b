// /api/v1/admin/tokens: creates, approves, lists and revokes tokens. A token is shown once, in the response that
// creates it.

import type { FastifyInstance } from 'fastify'
import { ROLES, type Role } from '../../access/roles.ts'
import type { ListedToken } from '../../access/token-table.ts'
import type { TokenStore } from '../../approvals/token-store.ts'
import { ProblemError, problem } from '../../problems/problem.ts'
import { APPROVAL_ANSWER, approvalAnswer, STATE } from '../bodies/exception-fields.ts'
import { answers, problemAnswers, text } from '../bodies/schemas.ts'

export const TOKENS_PATH = '/api/v1/admin/tokens'
const TOKEN_ID = /^[\w-]{1,64}$/
export const TTL_SECONDS: { readonly min: number; readonly max: number } = { min: 60, max: 10 * 366 * 86_400 }

type TokenBody = { readonly name: string; readonly role: Role; readonly ttl_seconds?: number }

const BODY = {
  type: 'object',
  additionalProperties: false,
  required: ['name', 'role'],
  properties: {
    name: text('Who or what uses it.', 'gateway', 100),
    role: { type: 'string', enum: ROLES, description: 'What it may do.', 'x-fix': `use one of ${ROLES.join(', ')}` },
    ttl_seconds: {
      type: 'integer',
      description: 'Lifetime; default: until it is revoked.',
      minimum: TTL_SECONDS.min,
      maximum: TTL_SECONDS.max,
      'x-fix': `give a whole number from ${TTL_SECONDS.min} to ${TTL_SECONDS.max}`,
    },
  },
  'x-fix': 'send a JSON object with name and role',
  examples: [{ name: 'gateway', role: 'check', ttl_seconds: 7_776_000 }],
}

const time = { type: ['string', 'null'] }
const FIELDS = {
  token_id: { type: 'string' },
  name: { type: 'string' },
  role: { type: 'string', enum: ROLES },
  created_at: { type: 'string' },
  expires_at: time,
  revoked_at: time,
  last_used_at: { ...time, description: 'To the nearest few seconds.' },
  state: STATE,
}
const PENDING_FIELDS = {
  approvals: { type: 'integer', description: 'Approvals given, if it is pending.' },
  approvals_required: { type: 'integer', description: 'Approvals by others that it needs, if it is pending.' },
  waits_until: { type: 'string', description: 'Time at which it is deleted, if it is still pending.' },
}
const LIST = {
  type: 'object',
  required: ['tokens'],
  properties: { tokens: { type: 'array', items: { type: 'object', properties: { ...FIELDS, ...PENDING_FIELDS } } } },
}
const CREATED = {
  type: 'object',
  description: 'The token, shown only once.',
  required: ['token', ...Object.keys(FIELDS)],
  properties: { token: { type: 'string', description: 'The token itself.' }, ...FIELDS, ...PENDING_FIELDS },
}

/** `store` is undefined on a node without a database. */
export function tokensRoutes(app: FastifyInstance, store: TokenStore | undefined, nowMs: () => number): void {
  const config = { access: 'admin' as const }
  const tokens = () => {
    if (store !== undefined) return store
    throw new ProblemError(problem('NO_DATABASE', 'This node has no database: its tokens come from --tokens-file.'))
  }
  const list = { operationId: 'listTokens', summary: 'All tokens', tags: ['admin'], response: answers(LIST, 409, 503) }
  app.get(TOKENS_PATH, { schema: list, config }, async () => ({ tokens: (await tokens().list()).map(plainToken) }))

  const response = { 201: CREATED, ...problemAnswers(400, 409, 503) }
  const description =
    'If changes need approval, a token of the role editor or above is pending: nodes reject it until others approve it.'
  const about = { operationId: 'createToken', summary: 'Create a token', description, tags: ['admin'] }
  const create = { ...about, body: BODY, response }
  app.post<{ Body: TokenBody }>(TOKENS_PATH, { schema: create, config }, async ({ body, caller }, reply) => {
    const { name, role, ttl_seconds: ttl } = body
    const expiresAt = ttl === undefined ? null : new Date(nowMs() + ttl * 1000)
    const created = await tokens().create({ name, role, expiresAt }, caller.id)
    if (created === undefined) throw new ProblemError(problem('TOO_MANY_TOKENS', 'Too many tokens: revoke some first.'))
    reply.code(201).header('cache-control', 'no-store')
    return { token: created.secret, ...plainToken(created.token) }
  })

  const gone = { 204: { type: 'null', description: 'Revoked.' }, ...problemAnswers(404, 409, 503) }
  const params = { type: 'object', properties: { token_id: { type: 'string' } } }
  const path = `${TOKENS_PATH}/:token_id`
  type One = { Params: { token_id: string } }
  const approve = {
    operationId: 'approveToken',
    summary: 'Approve a pending token',
    tags: ['admin'],
    params,
    response: answers(APPROVAL_ANSWER, 403, 409, 503),
  }
  const approving = { schema: approve, config: { access: 'approver' as const } }
  app.post<One>(`${path}/approve`, approving, async ({ params, caller }) =>
    approvalAnswer(await tokens().approve(TOKEN_ID.test(params.token_id) ? params.token_id : '', caller)),
  )
  const revoke = { operationId: 'revokeToken', summary: 'Revoke a token', tags: ['admin'], params, response: gone }
  app.delete<One>(path, { schema: revoke, config }, async ({ params, caller }, reply) => {
    const { revoke } = tokens()
    const isId = TOKEN_ID.test(params.token_id) // databases reject some characters
    if (isId && (await revoke(params.token_id, caller.id))) return reply.code(204).send()
    const fieldError = { field: 'token_id', value: params.token_id, fix: `GET ${TOKENS_PATH} lists all tokens` }
    throw new ProblemError(problem('TOKEN_UNKNOWN', 'There is no token with this id.', [fieldError]))
  })
}

/** Token with the field names of the API. */
export type PlainToken = {
  readonly token_id: string
  readonly name: string
  readonly role: Role
  readonly created_at: string
  readonly expires_at: string | null
  readonly revoked_at: string | null
  readonly last_used_at: string | null
  readonly state: 'active' | 'pending'
  readonly approvals?: number
  readonly approvals_required?: number
  /** Time at which it is deleted. */
  readonly waits_until?: string
}

export function plainToken(token: ListedToken): PlainToken {
  const { pending } = token
  return {
    token_id: token.tokenId,
    name: token.name,
    role: token.role,
    created_at: token.createdAt,
    expires_at: token.expiresAt,
    revoked_at: token.revokedAt,
    last_used_at: token.lastUsedAt,
    ...(pending === undefined
      ? { state: 'active' }
      : {
          state: 'pending',
          approvals: pending.approvals,
          approvals_required: pending.approvalsRequired,
          waits_until: pending.until,
        }),
  }
}
