// POST /api/v1/rate-limit/check/batch: many checks in one request, answered in order. They are independent: an invalid
// or failed check gets a problem at its index.

import type { FastifyInstance, FastifyRequest } from 'fastify'
import { inSlices, isPromise, type MaybePromise, mapped } from 'sluice'
import type { CheckBody } from '../../checks/check-body.ts'
import type { AnswerCheck } from '../../checks/check-controller.ts'
import { invalidRequest, type Problem } from '../../problems/problem.ts'
import { problemOf } from '../../problems/problem-of.ts'
import { type SchemaError, schemaFieldErrors } from '../../problems/schema-errors.ts'
import {
  answers,
  BATCH_BODY,
  BATCH_BYTES_MAX,
  BATCH_SLICE_MS,
  BATCH_TOGETHER,
  CHECK_BODY,
  CHECKS_MAX,
} from '../bodies/schemas.ts'
import { CHECK_PATH, JSON_TYPE } from './check.ts'

export const BATCH_PATH: string = `${CHECK_PATH}/batch`

type Validate = ReturnType<FastifyRequest['compileValidationSchema']>
type Requester = Pick<FastifyRequest, 'caller' | 'span'>

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

export function batchRoute(app: FastifyInstance, answer: AnswerCheck): void {
  const example = { checks: [{ client_id: 'user_1', endpoint: '/api/v1/messages', method: 'POST' }] }
  const schema = {
    operationId: 'checkBatch',
    summary: `Up to ${CHECKS_MAX} checks in one request`,
    description:
      'Each item of `checks` is a body of POST /check. They are decided in order, independently of each other.',
    tags: ['checks'],
    body: { ...BATCH_BODY, examples: [example] },
    response: answers(ANSWER, 400, 413, 415),
  }
  app.post<{ Body: { checks: unknown[] } }>(
    BATCH_PATH,
    { schema, config: { access: 'check' }, bodyLimit: BATCH_BYTES_MAX },
    async (request, reply) => {
      const validate = request.getValidationFunction(CHECK_BODY) ?? request.compileValidationSchema(CHECK_BODY)
      // Checks start before the first one is awaited, so that those of a slice share round trips to a remote store.
      const begin = (check: unknown) => resultOf(check, request, validate, answer)
      const start = mapped(request.body.checks, begin, BATCH_TOGETHER)
      const results = await inSlices(start, BATCH_SLICE_MS)
      reply.header('content-type', JSON_TYPE)
      return `{"results":[${(await Promise.all(results)).join(',')}]}`
    },
  )
}

function resultOf(
  check: unknown,
  { caller, span }: Requester,
  validate: Validate,
  answer: AnswerCheck,
): MaybePromise<string> {
  try {
    if (!validate(check)) return errorText(invalidRequest(schemaFieldErrors(validate.errors as SchemaError[])))
    const text = answer(check as CheckBody, caller, span) // validated above
    return isPromise(text) ? text.catch((error) => errorText(problemOf(error))) : text
  } catch (error) {
    return errorText(problemOf(error))
  }
}

function errorText(error: Problem): string {
  return JSON.stringify({ error })
}
