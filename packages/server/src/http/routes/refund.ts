// POST /api/v1/rate-limit/refund: returns the units of an admitted request, once, on any node. Until the store confirms
// it, the answer is 503 and a retry is safe.

import type { FastifyInstance } from 'fastify'
import type { Refund, RefundBody } from '../../checks/refund.ts'
import { answers, CHECK_BYTES_MAX, REFUND_BODY } from '../bodies/schemas.ts'

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

export function refundRoute(app: FastifyInstance, refund: Refund): void {
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
  app.post<{ Body: RefundBody }>(REFUND_PATH, options, ({ body, caller }) => refund(body, caller))
}
