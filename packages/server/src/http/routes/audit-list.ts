// GET /api/v1/admin/audit: entries of the audit log, newest first, filtered and paginated.

import type { FastifyInstance } from 'fastify'
import { ACTION_FILTER, ACTION_FIX, type AuditQuery, type ListAudit } from '../../audit/audit-list.ts'
import { invalidField, ProblemError, problem } from '../../problems/problem.ts'
import { answers, limitQuery, text } from '../bodies/schemas.ts'
import { timeField, timeIn } from '../bodies/time-field.ts'

export const AUDIT_PATH = '/api/v1/admin/audit'
const LISTED = { default: 100, max: 1000 } as const

type Query = {
  readonly actor?: string
  readonly action?: string
  readonly target?: string
  readonly since?: string
  readonly until?: string
  readonly after?: string
  readonly limit?: string
}

const { properties: LIMIT, ...OBJECT } = limitQuery(LISTED)
const QUERY = {
  ...OBJECT,
  properties: {
    actor: text('Changes by this actor: the id of a token, or admin-token.', 'tok_9f86d081884c7d65', 256),
    action: {
      type: 'string',
      description: 'This action, or with `.*` all actions of a group.',
      examples: ['rule.*'],
      pattern: ACTION_FILTER.source,
      'x-fix': ACTION_FIX,
    },
    target: text(
      'Changes of this target, such as the id of a rule or token. A rule: also changes of several rules.',
      'messages_per_min',
      256,
    ),
    since: timeField('Earliest time (RFC 3339).'),
    until: timeField('Only entries before this time (RFC 3339).'),
    after: {
      type: 'string',
      description: 'The `next` of the previous page.',
      pattern: '^[0-9]{1,15}$',
      'x-fix': 'give the `next` of the previous page',
    },
    ...(LIMIT as object),
  },
}

const nullable = { type: ['string', 'null'] }
const ANSWER = {
  type: 'object',
  required: ['entries', 'next'],
  properties: {
    entries: {
      type: 'array',
      items: {
        type: 'object',
        properties: {
          seq: { type: 'integer', description: 'Position in the log, from 1.' },
          at: { type: 'string' },
          actor: { type: 'string', description: 'The id of a token, admin-token, or a program.' },
          actor_name: { ...nullable, description: 'The name of that token.' },
          action: { type: 'string' },
          target: { type: 'string' },
          diff: { description: 'The change, without secrets.' },
          reason: nullable,
          hash: { type: 'string', description: 'Hash of this entry and the hash of the previous one.' },
        },
      },
    },
    next: { ...nullable, description: '`after` for the next page; null on the last page.' },
  },
}

/** `list` is undefined on a node without a database. */
export function auditListRoute(app: FastifyInstance, list: ListAudit | undefined): void {
  const schema = {
    operationId: 'listAudit',
    summary: 'Entries of the audit log',
    description: 'Newest first. A page has fewer entries than `limit` if their diffs are large.',
    tags: ['admin'],
    querystring: QUERY,
    response: answers(ANSWER, 400, 409, 503),
  }
  app.get<{ Querystring: Query }>(AUDIT_PATH, { schema, config: { access: 'viewer' } }, ({ query }) => {
    const wanted = queryOf(query)
    if (list !== undefined) return list(wanted)
    throw new ProblemError(problem('NO_DATABASE', 'This node has no database, and therefore no audit log.'))
  })
}

function queryOf({ actor, action, target, after, limit = String(LISTED.default), ...times }: Query): AuditQuery {
  const [since, until] = [timeIn('since', times.since), timeIn('until', times.until)]
  if (since !== undefined && until !== undefined && until <= since)
    throw invalidField('until', times.until, 'give a time after since')
  const beforeSeq = after === undefined ? undefined : Number(after)
  return { actor, action, target, since, until, beforeSeq, limit: Number(limit) }
}
