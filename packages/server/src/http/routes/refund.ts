// POST /api/v1/rate-limit/refund: an admitted request that came to nothing gives back what it took, once. Known are the
// newest admitted requests of this node whose id the client knows: it sent one, or was told one.

import type { FastifyInstance } from 'fastify'
import type { Limiter } from 'sluice'
import type { Admissions } from '../../checks/admissions.ts'
import { ProblemError, problem } from '../../problems/problem.ts'
import { answers, CHECK_BYTES_MAX, REFUND_BODY, type RefundBody } from '../bodies/schemas.ts'

export const REFUND_PATH = '/api/v1/rate-limit/refund'

const ANSWER = { type: 'object', required: ['refunded'], properties: { refunded: { type: 'boolean' } } }

export function refundRoute(app: FastifyInstance, limiter: Limiter, admissions: Admissions): void {
  const schema = {
    operationId: 'refund',
    summary: 'Give back what an admitted request took',
    description: 'Works once per request, on the node that admitted it. `units: 0` only releases concurrency permits.',
    tags: ['checks'],
    body: { ...REFUND_BODY, examples: [{ request_id: 'req-8f14e' }] },
    response: answers(ANSWER, 400, 404, 409, 503),
  }
  const config = { access: 'check' as const }
  app.post<{ Body: RefundBody }>(REFUND_PATH, { schema, config, bodyLimit: CHECK_BYTES_MAX }, async ({ body }) => {
    const { request_id: requestId, units } = body
    const admission = admissions.find(requestId)
    if (admission === undefined) throw unknownRequest(requestId)
    if (units === 0) {
      await limiter.release(admission.decision)
      return { refunded: true }
    }
    if (admission.refunded) throw repeatedRefund(requestId)
    admission.refunded = true // before waiting: a second request that comes meanwhile is refused
    await limiter.give(admission.decision, units)
    return { refunded: true }
  })
}

const REASONS =
  'was refused, was a dry run, went to another node, is too long ago, or was checked with neither request_id nor detail'

function unknownRequest(requestId: string): ProblemError {
  const fix = `use the id of a request that this node admitted; perhaps it ${REASONS}`
  const fault = { field: 'request_id', value: requestId, fix }
  return new ProblemError(problem('REFUND_UNKNOWN', `No admitted request is known by this id: ${fix}.`, [fault]))
}

function repeatedRefund(requestId: string): ProblemError {
  const fault = { field: 'request_id', value: requestId, fix: 'refund a request once only' }
  return new ProblemError(problem('REFUND_REPEATED', 'This request has been refunded already.', [fault]))
}
