// GET /api/v1/rate-limit/violations: recorded refusals, newest first, paginated.

import type { FastifyInstance } from 'fastify'
import { canonicalAddress } from 'sluice/http'
import { ADDRESS_FIX } from '../../checks/check-body.ts'
import type { FindViolations, StoredViolation, ViolationCursor, ViolationQuery } from '../../events/violations.ts'
import { invalidField, ProblemError, problem } from '../../problems/problem.ts'
import { answers, fact, limitQuery, text } from '../bodies/schemas.ts'
import { timeField, timeIn } from '../bodies/time-field.ts'

export const VIOLATIONS_PATH = '/api/v1/rate-limit/violations'
const LISTED = { default: 100, max: 1000 } as const
const ADDRESS_BITS = 128
/** Latest time that every database accepts. */
const LATEST_MS = Date.UTC(9999, 11, 31)

type Query = {
  readonly user_id?: string
  readonly ip_address?: string
  readonly rule_id?: string
  readonly since?: string
  readonly after?: string
  readonly limit?: string
}

const { properties: LIMIT, ...OBJECT } = limitQuery(LISTED)
const QUERY = {
  ...OBJECT,
  properties: {
    user_id: fact('Violations of this user: the client_id of checks.', 'user_12345', 1024),
    ip_address: { type: 'string', description: 'Violations from this address.', maxLength: 64, 'x-fix': ADDRESS_FIX },
    rule_id: text('Violations of this rule.', 'messages_per_min', 64),
    since: timeField('Earliest time (RFC 3339).'),
    after: {
      type: 'string',
      description: 'The `next` of the previous page.',
      pattern: '^[0-9]{1,16}-[0-9]{1,16}$',
      'x-fix': 'give the `next` of the previous page',
    },
    ...(LIMIT as object),
  },
}

const nullable = { type: ['string', 'null'] }
const HASHED = 'With --events-keys hmac: `hmac:` followed by the keyed hash.'
const ANSWER = {
  type: 'object',
  required: ['violations', 'next'],
  properties: {
    violations: {
      type: 'array',
      items: {
        type: 'object',
        properties: {
          violation_id: { type: 'integer' },
          bucket_key: { type: 'string', description: 'Rule, limit, fact and key, separated by colons.' },
          user_id: { ...nullable, description: HASHED },
          ip_address: { ...nullable, description: HASHED },
          endpoint: nullable,
          requested_at: { type: 'string' },
          tokens_at_time: { type: 'number', description: 'Remaining units.' },
          rule_id: nullable,
        },
      },
    },
    next: { ...nullable, description: '`after` for the next page; null on the last page.' },
  },
}

/** `find` is undefined on a node without a database. */
export function violationsRoute(app: FastifyInstance, find: FindViolations | undefined): void {
  const schema = {
    operationId: 'listViolations',
    summary: 'Recorded refusals',
    description: 'Violations of all nodes, with a delay of about two seconds.',
    tags: ['insight'],
    querystring: QUERY,
    response: answers(ANSWER, 400, 409, 503),
  }
  app.get<{ Querystring: Query }>(VIOLATIONS_PATH, { schema, config: { access: 'viewer' } }, async ({ query }) => {
    const filter = filterOf(query)
    const limit = Number(query.limit ?? LISTED.default)
    if (find === undefined)
      throw new ProblemError(problem('NO_DATABASE', 'This node has no database, so no violations are recorded.'))
    const found = await find({ ...filter, limit: limit + 1 })
    const page = found.slice(0, limit)
    const last = page.at(-1)
    return { violations: page, next: found.length > limit && last !== undefined ? cursorText(last) : null }
  })
}

function filterOf({
  user_id: userId,
  ip_address,
  rule_id: ruleId,
  since,
  after,
}: Query): Omit<ViolationQuery, 'limit'> {
  const ipAddress = ip_address === undefined ? undefined : canonicalAddress(ip_address, ADDRESS_BITS)
  if (ip_address !== undefined && ipAddress === undefined) throw invalidField('ip_address', ip_address, ADDRESS_FIX)
  const before = after === undefined ? undefined : cursorOf(after)
  return { userId, ipAddress, ruleId, since: timeIn('since', since), before }
}

function cursorText({ requested_at, violation_id }: StoredViolation): string {
  return `${requested_at.getTime()}-${violation_id}`
}

function cursorOf(cursor: string): ViolationCursor {
  const [ms = 0, violationId = 0] = cursor.split('-').map(Number)
  return { requestedAt: new Date(Math.min(ms, LATEST_MS)), violationId }
}
