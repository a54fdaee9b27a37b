// GET /api/v1/rate-limit/violations: who was refused, when and by what. The newest first, page by page.

import type { FastifyInstance } from 'fastify'
import { canonicalAddress } from 'sluice/http'
import { invalidRequest, ProblemError, problem } from '../../problems/problem.ts'
import type { StoredViolation, ViolationPlace, ViolationQuery } from '../../violations/violation-table.ts'
import { ADDRESS_FIX, answers, limitQuery, text } from '../bodies/schemas.ts'

export const VIOLATIONS_PATH = '/api/v1/rate-limit/violations'
const LISTED = { default: 100, max: 1000 } as const
const ADDRESS_BITS = 128
/** The last time that every database understands: no violation is later. */
const LATEST_MS = Date.UTC(9999, 11, 31)
const SINCE_FIX = 'give a time such as 2030-01-31T12:00:00Z'

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
    user_id: text('Violations of this user: the client_id of checks.', 'user_12345', 1024),
    ip_address: { type: 'string', description: 'Violations from this address.', maxLength: 64, 'x-fix': ADDRESS_FIX },
    rule_id: text('Violations of this rule.', 'messages_per_min', 64),
    since: { type: 'string', description: 'Not older than this (RFC 3339).', maxLength: 40, 'x-fix': SINCE_FIX },
    after: {
      type: 'string',
      description: 'The `next` of the page before.',
      pattern: '^[0-9]{1,16}-[0-9]{1,16}$',
      'x-fix': 'give the `next` of the page before',
    },
    ...(LIMIT as object),
  },
}

const nullable = { type: ['string', 'null'] }
const HASHED = 'With --violations-keys hmac: hmac: and the keyed hash.'
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
          tokens_at_time: { type: 'number', description: 'Units that were left.' },
          rule_id: nullable,
        },
      },
    },
    next: { ...nullable, description: 'What to send as `after` for the next page; null: this was the last.' },
  },
}

export type FindViolations = (query: ViolationQuery) => Promise<StoredViolation[]>

/** `find` is undefined on a node without a database. */
export function violationsRoute(app: FastifyInstance, find: FindViolations | undefined): void {
  const schema = {
    operationId: 'listViolations',
    summary: 'Who was refused, when and by what',
    description: 'Of all nodes, about a second after the fact.',
    tags: ['insight'],
    querystring: QUERY,
    response: answers(ANSWER, 400, 409, 503),
  }
  app.get<{ Querystring: Query }>(VIOLATIONS_PATH, { schema, config: { access: 'viewer' } }, async ({ query }) => {
    const filter = filterOf(query)
    const limit = Number(query.limit ?? LISTED.default)
    if (find === undefined)
      throw new ProblemError(problem('NO_DATABASE', 'Violations are kept in a database, and this node has none.'))
    const found = await find({ ...filter, limit: limit + 1 })
    const page = found.slice(0, limit)
    const last = page.at(-1)
    return { violations: page, next: found.length > limit && last !== undefined ? placeText(last) : null }
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
  if (ip_address !== undefined && ipAddress === undefined) throw refusal('ip_address', ip_address, ADDRESS_FIX)
  const before = after === undefined ? undefined : placeOf(after)
  return { userId, ipAddress, ruleId, since: since === undefined ? undefined : timeOf(since), before }
}

/** Nothing is older than 1970, and years before the first are written differently by every database. */
function timeOf(since: string): Date {
  const ms = Date.parse(since)
  if (Number.isNaN(ms) || !/^\d{4}-\d\d-\d\d/.test(since)) throw refusal('since', since, SINCE_FIX)
  return new Date(Math.max(0, ms))
}

function placeText({ requested_at, violation_id }: StoredViolation): string {
  return `${requested_at.getTime()}-${violation_id}`
}

function placeOf(place: string): ViolationPlace {
  const [ms = 0, violationId = 0] = place.split('-').map(Number)
  return { requestedAt: new Date(Math.min(ms, LATEST_MS)), violationId }
}

function refusal(field: string, value: unknown, fix: string): ProblemError {
  return new ProblemError(invalidRequest([{ field, value, fix }]))
}
