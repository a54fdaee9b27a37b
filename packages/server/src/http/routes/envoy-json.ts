// POST /json: Envoy's rate limit service over HTTP, as envoyproxy/ratelimit offers it: 200 for OK, 429 for OVER_LIMIT.
// A request that cannot be decided gets a problem document.

import type { FastifyInstance } from 'fastify'
import { LimiterError } from 'sluice'
import { rateLimitRequestFromJson, rateLimitResponseToJson } from '../../envoy/rate-limit-json.ts'
import { type RateLimitRequest, requireComplete } from '../../envoy/rate-limit-request.ts'
import { CODE, type RateLimitResponse } from '../../envoy/rate-limit-response.ts'
import type { DecideRateLimit } from '../../envoy/rate-limit-service.ts'
import { ProblemError, problem } from '../../problems/problem.ts'
import { jsonBodyParser } from '../bodies/json-body.ts'
import { problemAnswers } from '../bodies/schemas.ts'
import { JSON_TYPE } from './check.ts'

const BYTES_MAX = 65_536

const EXAMPLE = { domain: 'edge', descriptors: [{ entries: [{ key: 'remote_address', value: '203.0.113.42' }] }] }

export async function envoyJsonRoute(app: FastifyInstance, decide: DecideRateLimit): Promise<void> {
  const answer = { description: 'RateLimitResponse as JSON.', type: 'object', additionalProperties: true }
  const schema = {
    operationId: 'envoyJson',
    summary: "Envoy's rate limit service as JSON",
    description: 'The body is a RateLimitRequest of envoy.service.ratelimit.v3. The status is 429 for OVER_LIMIT.',
    tags: ['checks'],
    body: { type: 'object', examples: [EXAMPLE] },
    response: { ...problemAnswers(400, 413, 503), 200: answer, 429: answer },
  }
  await app.register(async (scope) => {
    parseAnyType(scope)
    const config = { access: 'check' as const }
    scope.post('/json', { schema, config, bodyLimit: BYTES_MAX }, async (request, reply) => {
      const parsed = rateLimitRequestFromJson(request.body)
      requireComplete(parsed)
      const response = await decided(decide, parsed)
      reply.code(response.code === CODE.ok ? 200 : 429).header('content-type', JSON_TYPE)
      return JSON.stringify(rateLimitResponseToJson(response))
    })
  })
}

async function decided(decide: DecideRateLimit, request: RateLimitRequest): Promise<RateLimitResponse> {
  try {
    return await decide(request)
  } catch (error) {
    if (!(error instanceof LimiterError && error.code === 'STORE_UNAVAILABLE')) throw error
    const detail = 'The store did not answer in time. The request was not decided; its hits may or may not be counted.'
    throw new ProblemError(problem('STORE_UNAVAILABLE', detail))
  }
}

/** envoyproxy/ratelimit ignores the media type. */
function parseAnyType(scope: FastifyInstance): void {
  scope.removeAllContentTypeParsers()
  scope.addContentTypeParser('*', { parseAs: 'string' }, jsonBodyParser)
}
