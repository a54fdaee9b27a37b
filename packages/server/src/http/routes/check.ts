// POST /api/v1/rate-limit/check: may this request pass? Answers 200 both ways; only trouble has another status.

import type { FastifyInstance } from 'fastify'
import type { Decide } from '../bodies/decide.ts'
import { answers, CHECK_BODY, CHECK_BYTES_MAX, type CheckBody } from '../bodies/schemas.ts'

export const CHECK_PATH = '/api/v1/rate-limit/check'
export const JSON_TYPE = 'application/json; charset=utf-8'

const EXAMPLE = {
  client_id: 'user_12345',
  endpoint: '/api/v1/messages',
  method: 'POST',
  ip_address: '203.0.113.42',
}

export function checkRoute(app: FastifyInstance, decide: Decide): void {
  const schema = {
    operationId: 'check',
    summary: 'May this request pass?',
    description: 'Counts the request against every rule it matches: all of them, or none when one refuses it.',
    tags: ['checks'],
    body: { ...CHECK_BODY, examples: [EXAMPLE] },
    response: answers({ $ref: 'CheckAnswer#' }, 400, 413, 415, 503),
  }
  const config = { access: 'check' as const }
  app.post<{ Body: CheckBody }>(CHECK_PATH, { schema, config, bodyLimit: CHECK_BYTES_MAX }, (request, reply) => {
    reply.header('content-type', JSON_TYPE)
    const answer = decide(request.body, request.caller)
    if (typeof answer !== 'string') return answer
    reply.send(answer)
  })
}
