// POST /api/v1/rate-limit/check/batch: many checks in one request, answered in order. Each stands alone: one that is
// wrong or cannot be decided gets a problem in its place, and the others do not notice.

import type { FastifyInstance, FastifyRequest } from 'fastify'
import { invalidRequest, type Problem } from '../../problems/problem.ts'
import { problemOf } from '../../problems/problem-of.ts'
import type { Decide } from '../bodies/decide.ts'
import { type SchemaError, schemaFaults } from '../bodies/schema-faults.ts'
import { answers, BATCH_BODY, BATCH_BYTES_MAX, CHECK_BODY, CHECKS_MAX, type CheckBody } from '../bodies/schemas.ts'
import { CHECK_PATH, JSON_TYPE } from './check.ts'

export const BATCH_PATH: string = `${CHECK_PATH}/batch`

type Validate = ReturnType<FastifyRequest['compileValidationSchema']>

const ANSWER = {
  type: 'object',
  required: ['results'],
  properties: {
    results: {
      type: 'array',
      description: 'One answer per check, in the same order.',
      items: {
        anyOf: [
          { $ref: 'CheckAnswer#' },
          { type: 'object', required: ['error'], properties: { error: { $ref: 'Problem#' } } },
        ],
      },
    },
  },
}

export function batchRoute(app: FastifyInstance, decide: Decide): void {
  const example = { checks: [{ client_id: 'user_1', endpoint: '/api/v1/messages', method: 'POST' }] }
  const schema = {
    operationId: 'checkBatch',
    summary: `Up to ${CHECKS_MAX} checks at once`,
    description:
      'Each item of `checks` is a body of POST /check. They are decided in order and do not affect each other.',
    tags: ['checks'],
    body: { ...BATCH_BODY, examples: [example] },
    response: answers(ANSWER, 400, 413, 415),
  }
  app.post<{ Body: { checks: unknown[] } }>(
    BATCH_PATH,
    { schema, config: { access: 'check' }, bodyLimit: BATCH_BYTES_MAX },
    async (request, reply) => {
      const validate = request.getValidationFunction(CHECK_BODY) ?? request.compileValidationSchema(CHECK_BODY)
      // All are asked for before any is waited for, so that they reach a remote store together.
      const results = request.body.checks.map((check) =>
        resultOf(check, validate, (body) => decide(body, request.caller)),
      )
      reply.header('content-type', JSON_TYPE)
      return `{"results":[${(await Promise.all(results)).join(',')}]}`
    },
  )
}

function resultOf(
  check: unknown,
  validate: Validate,
  decide: (body: CheckBody) => ReturnType<Decide>,
): string | Promise<string> {
  try {
    if (!validate(check)) return errorText(invalidRequest(schemaFaults(validate.errors as SchemaError[])))
    const answer = decide(check as CheckBody) // the schema has let it pass
    return typeof answer === 'string' ? answer : answer.catch((error) => errorText(problemOf(error)))
  } catch (error) {
    return errorText(problemOf(error))
  }
}

function errorText(error: Problem): string {
  return JSON.stringify({ error })
}
