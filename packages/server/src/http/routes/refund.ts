// POST /api/v1/rate-limit/refund: an admitted request that came to nothing gives back what it took, once, on any node.
// Until the counters have confirmed it, the answer is 503, and to send it again is safe.

import type { FastifyInstance } from 'fastify'
import { type Limiter, LimiterError } from 'sluice'
import type { Found, Receipts } from '../../checks/receipts.ts'
import { ProblemError, problem } from '../../problems/problem.ts'
import { answers, CHECK_BYTES_MAX, REFUND_BODY, type RefundBody } from '../bodies/schemas.ts'

export const REFUND_PATH = '/api/v1/rate-limit/refund'

const ANSWER = {
  type: 'object',
  required: ['refunded'],
  properties: {
    refunded: { type: 'boolean' },
    left_out: {
      type: 'array',
      items: { type: 'string' },
      description: 'Limits that got nothing back: edited or removed since, or counted by another node alone.',
    },
  },
}

export function refundRoute(app: FastifyInstance, limiter: Limiter, receipts: Receipts): void {
  const schema = {
    operationId: 'refund',
    summary: 'Give back what an admitted request took',
    description:
      'Works once per request, on any node that shares the counters. `units: 0` only releases concurrency permits. ' +
      'After a 503 it is safe to send it again.',
    tags: ['checks'],
    body: { ...REFUND_BODY, examples: [{ request_id: 'req-8f14e' }] },
    response: answers(ANSWER, 400, 403, 404, 409, 503),
  }
  const config = { access: 'check' as const }
  const options = { schema, config, bodyLimit: CHECK_BYTES_MAX }
  app.post<{ Body: RefundBody }>(REFUND_PATH, options, async ({ body, caller }) => {
    const { request_id: requestId, units } = body
    const found = await receipts.find(requestId, caller).catch(unconfirmed)
    if (typeof found === 'string') throw notRefundable(requestId, found)
    const { outcome, leftOut } = await limiter.redeem(found.receipt, units).catch(unconfirmed)
    if (outcome !== 'given') throw notRefundable(requestId, outcome)
    return { refunded: true, ...(leftOut.length === 0 ? {} : { left_out: leftOut.map(readable) }) }
  })
}

type Trouble = Extract<Found, string> | 'repeated' | 'expired' | 'outdated'

const NOT_OURS = 'send the id as the check answered it; this one was changed on the way, or made in another region'
const REASONS =
  'was refused, was a dry run, was let pass while the counters were away, is too long ago, ' +
  'or was checked with neither request_id nor detail'

const TROUBLES = {
  unknown: ['REFUND_UNKNOWN', 'No admitted request is known by this id', `use the id of one; perhaps it ${REASONS}`],
  unreadable: ['REFUND_UNKNOWN', 'This id cannot be read', NOT_OURS],
  foreign: ['FORBIDDEN', 'This request was checked with another token', 'use that token, or one of the role admin'],
  repeated: ['REFUND_REPEATED', 'This request has been refunded already', 'refund a request once only'],
  expired: ['REFUND_EXPIRED', 'This request is too long ago', 'refund sooner, or start nodes with --refund-minutes'],
  outdated: [
    'REFUND_OUTDATED',
    'The limits that this request took from were edited or removed since, or are counted by another node alone',
    'nothing can be given back; if rules are being changed right now, try again in a second',
  ],
} as const

function notRefundable(requestId: string, trouble: Trouble): ProblemError {
  const [code, detail, fix] = TROUBLES[trouble]
  return new ProblemError(problem(code, `${detail}: ${fix}.`, [{ field: 'request_id', value: requestId, fix }]))
}

function unconfirmed(error: unknown): never {
  if (!(error instanceof LimiterError && error.code === 'STORE_UNAVAILABLE')) throw error
  const detail = 'The counters did not confirm the refund: send it again, it happens once at most.'
  throw new ProblemError(problem('STORE_UNAVAILABLE', detail))
}

/** Without what tells parts, shadows and permits apart. */
function readable(limitId: string): string {
  return limitId.replace(/^(\d+|pool)%/, '').replace(/^[~!]+/, '')
}
