// POST /api/v1/rate-limit/refund: returns the units of an admitted request, once, on any node. Until the store confirms
// it, the answer is 503 and a retry is safe.

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
      description: 'Limits that were not refunded: edited or removed since, or counted by another node only.',
    },
  },
}

export function refundRoute(app: FastifyInstance, limiter: Limiter, receipts: Receipts): void {
  const schema = {
    operationId: 'refund',
    summary: 'Return the units of an admitted request',
    description:
      'Works once per request, on any node that shares the counters. `units: 0` only releases concurrency permits. ' +
      'It is safe to retry after a 503.',
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

type RefundError = Extract<Found, string> | 'repeated' | 'expired' | 'outdated'

const UNREADABLE_FIX = 'send the id exactly as the check returned it; it was altered, or comes from another region'
const UNKNOWN_FIX =
  'use the id of an admitted request; this one may have been refused, a dry run, admitted while Redis was ' +
  'unreachable, too old, or checked with neither request_id nor detail'

const REFUND_ERRORS = {
  unknown: ['REFUND_UNKNOWN', 'No admitted request has this id', UNKNOWN_FIX],
  unreadable: ['REFUND_UNKNOWN', 'This id cannot be decoded', UNREADABLE_FIX],
  foreign: ['FORBIDDEN', 'This request was checked with another token', 'use that token, or an admin token'],
  repeated: ['REFUND_REPEATED', 'This request was already refunded', 'refund each request once'],
  expired: ['REFUND_EXPIRED', 'This request is too old', 'refund sooner, or raise --refund-minutes'],
  outdated: [
    'REFUND_OUTDATED',
    'The limits that this request took from were edited or removed since, or are counted by another node only',
    'nothing can be refunded; if rules are being changed right now, retry in a second',
  ],
} as const

function notRefundable(requestId: string, error: RefundError): ProblemError {
  const [code, detail, fix] = REFUND_ERRORS[error]
  return new ProblemError(problem(code, `${detail}: ${fix}.`, [{ field: 'request_id', value: requestId, fix }]))
}

function unconfirmed(error: unknown): never {
  if (!(error instanceof LimiterError && error.code === 'STORE_UNAVAILABLE')) throw error
  const detail = 'The store did not confirm the refund: retry, it is applied at most once.'
  throw new ProblemError(problem('STORE_UNAVAILABLE', detail))
}

/** Strips the prefixes of sublimits, shadow limits and permits. */
function readable(limitId: string): string {
  return limitId.replace(/^(\d+|pool)%/, '').replace(/^[~!]+/, '')
}
