// POST /api/v1/rate-limit/check: decides about one request. Answers 200 for admissions and refusals alike.

import type { FastifyInstance } from 'fastify'
import type { CheckBody } from '../../checks/check-body.ts'
import type { AnswerCheck } from '../../checks/check-controller.ts'
import { answers, CHECK_BODY, CHECK_BYTES_MAX } from '../bodies/schemas.ts'

export const CHECK_PATH = '/api/v1/rate-limit/check'
export const JSON_TYPE = 'application/json; charset=utf-8'

const EXAMPLE = {
  client_id: 'user_12345',
  endpoint: '/api/v1/messages',
  method: 'POST',
  ip_address: '203.0.113.42',
}

export function checkRoute(app: FastifyInstance, answer: AnswerCheck): void {
  const schema = {
    operationId: 'check',
    summary: 'Check a request',
    description: 'Charges every matching rule, or none of them if one refuses the request.',
    tags: ['checks'],
    body: { ...CHECK_BODY, examples: [EXAMPLE] },
    response: answers({ $ref: 'CheckAnswer#' }, 400, 413, 415, 503),
  }
  const config = { access: 'check' as const }
  app.post<{ Body: CheckBody }>(CHECK_PATH, { schema, config, bodyLimit: CHECK_BYTES_MAX }, (request, reply) => {
    reply.header('content-type', JSON_TYPE)
    return answer(request.body, request.caller, request.span)
  })
}
