// Converts any thrown error to a problem document. An unexpected error becomes a 500 without its stack, which is
// logged.

import { type FieldError, LimiterError } from 'sluice'
import { DatabaseUnavailable } from '../db/database.ts'
import { invalidRequest, type Problem, type ProblemCode, ProblemError, problem } from './problem.ts'
import { type SchemaError, schemaFieldErrors } from './schema-errors.ts'

type Headers = Readonly<Record<string, string | string[] | undefined>>

/** Problems for Fastify's own errors. */
const FASTIFY_PROBLEMS: Readonly<Record<string, (headers: Headers) => Problem>> = {
  FST_ERR_CTP_INVALID_MEDIA_TYPE: ({ 'content-type': value }) =>
    fieldProblem(
      'MEDIA_TYPE_UNSUPPORTED',
      'Content-Type',
      value,
      'send JSON with the header Content-Type: application/json',
    ),
  FST_ERR_CTP_BODY_TOO_LARGE: ({ 'content-length': value }) =>
    fieldProblem(
      'BODY_TOO_LARGE',
      'body',
      value && `${value} bytes`,
      'send at most 64 KiB, 1 MiB to proposals, 2 MiB to check/batch or simulate, or 8 MiB to rule-set',
    ),
  FST_ERR_CTP_INVALID_CONTENT_LENGTH: ({ 'content-length': value }) =>
    fieldProblem('REQUEST_INVALID', 'Content-Length', value, 'give the number of bytes of the body'),
  FST_ERR_BAD_URL: () => fieldProblem('REQUEST_INVALID', 'path', undefined, 'fix its percent-encoding'),
}

/** SQLSTATE of a text that is not valid in the encoding of the database. */
const UNSTORABLE = '22021'

export function problemOf(error: unknown, headers: Headers = {}): Problem {
  if (error instanceof ProblemError) return error.problem
  if (error instanceof LimiterError) return limiterProblem(error)
  if (error instanceof DatabaseUnavailable) {
    return problem('DATABASE_UNAVAILABLE', `The database is unavailable: ${error.message}`)
  }
  const { validation, code, statusCode } = (error ?? {}) as {
    validation?: readonly SchemaError[]
    code?: string
    statusCode?: number
  }
  if (validation !== undefined) return invalidRequest(schemaFieldErrors(validation))
  const known = FASTIFY_PROBLEMS[code ?? '']
  if (known !== undefined) return known(headers)
  if (code === UNSTORABLE) return problem('REQUEST_INVALID', 'A text has a character that cannot be stored: U+0000.')
  if (statusCode !== undefined && statusCode >= 400 && statusCode < 500)
    return problem('REQUEST_INVALID', String(error))
  return problem('INTERNAL', 'Internal error; see the log of this node.')
}

function fieldProblem(code: ProblemCode, field: string, value: unknown, fix: string): Problem {
  return problem(code, `${field}: ${fix}`, [{ field, value, fix }])
}

const STORE_UNAVAILABLE =
  'The store did not answer in time. Nothing was decided; a reset or refund may or may not have happened, so repeat it.'

/** Detail for refunds: checks of a full store are decided by on_fail. */
const STORE_FULL =
  'Redis is out of memory and cannot remember the refund: no units were given back. Retry when it has memory again.'

function limiterProblem(error: LimiterError): Problem {
  switch (error.code) {
    case 'SUBJECT_INVALID':
    case 'OPTION_INVALID':
      return invalidRequest(error.fieldErrors.map(withRequestFields))
    case 'STORE_UNAVAILABLE':
      return problem('STORE_UNAVAILABLE', STORE_UNAVAILABLE)
    case 'DEADLINE_EXCEEDED':
      return problem(
        'DEADLINE_EXCEEDED',
        'The deadline of the call ended before the store answered; nothing was decided.',
      )
    case 'STORE_FULL':
      return problem('STORE_FULL', STORE_FULL)
    case 'STORE_CORRUPT':
    case 'STORE_CROWDED':
      // The message contains a Redis key and thus the client: fine for the caller who named it, not for a log.
      return problem(error.code, error.message)
    case 'CLOSED':
      return problem('CLOSED', 'This node is shutting down: use another one.')
    case 'RULE_INVALID':
      return problem('INTERNAL', 'The rules of this node are invalid; see its log.')
  }
}

/** Fact of the library → field of the request. */
const FIELDS: Readonly<Record<string, string>> = {
  ruleId: 'rule_id',
  user: 'client_id',
  per_user: 'client_id',
  ip: 'ip_address',
  per_ip: 'ip_address',
  per_api_key: 'api_key',
  per_tenant: 'tenant',
  per_endpoint: 'endpoint',
}

function withRequestFields({ field, value, fix }: FieldError): FieldError {
  return { field: FIELDS[field] ?? field, value, fix }
}
