// Anything thrown → the problem that the client is told. What nobody foresaw is a 500 without its stack: the stack goes
// to the log.

import { type Fault, LimiterError } from 'sluice'
import { DatabaseUnavailable } from '../db/database.ts'
import { type SchemaError, schemaFaults } from '../http/bodies/schema-faults.ts'
import { invalidRequest, type Problem, type ProblemCode, ProblemError, problem } from './problem.ts'

type Headers = Readonly<Record<string, string | string[] | undefined>>

/** How Fastify's own errors are told. */
const FASTIFY_PROBLEMS: Readonly<Record<string, (headers: Headers) => Problem>> = {
  FST_ERR_CTP_INVALID_MEDIA_TYPE: ({ 'content-type': value }) =>
    told('MEDIA_TYPE_UNSUPPORTED', 'Content-Type', value, 'send JSON with the header Content-Type: application/json'),
  FST_ERR_CTP_BODY_TOO_LARGE: ({ 'content-length': value }) =>
    told(
      'BODY_TOO_LARGE',
      'body',
      value && `${value} bytes`,
      'send at most 64 KiB, 2 MiB to check/batch, or 8 MiB to rule-set',
    ),
  FST_ERR_CTP_INVALID_CONTENT_LENGTH: ({ 'content-length': value }) =>
    told('REQUEST_INVALID', 'Content-Length', value, 'give the number of bytes of the body'),
  FST_ERR_BAD_URL: () => told('REQUEST_INVALID', 'path', undefined, 'check its percent escapes'),
}

export function problemOf(error: unknown, headers: Headers = {}): Problem {
  if (error instanceof ProblemError) return error.problem
  if (error instanceof LimiterError) return limiterProblem(error)
  if (error instanceof DatabaseUnavailable) {
    return problem('DATABASE_UNAVAILABLE', `The database cannot be asked at the moment: ${error.message}`)
  }
  const { validation, code, statusCode } = (error ?? {}) as {
    validation?: readonly SchemaError[]
    code?: string
    statusCode?: number
  }
  if (validation !== undefined) return invalidRequest(schemaFaults(validation))
  const known = FASTIFY_PROBLEMS[code ?? '']
  if (known !== undefined) return known(headers)
  if (statusCode !== undefined && statusCode >= 400 && statusCode < 500)
    return problem('REQUEST_INVALID', String(error))
  return problem('INTERNAL', 'Something unforeseen went wrong; the log of this node says more.')
}

function told(code: ProblemCode, field: string, value: unknown, fix: string): Problem {
  return problem(code, `${field}: ${fix}`, [{ field, value, fix }])
}

const STORE_UNAVAILABLE =
  'The store did not answer in time. Nothing was decided; a reset or refund may or may not have happened, so repeat it.'

function limiterProblem(error: LimiterError): Problem {
  switch (error.code) {
    case 'SUBJECT_INVALID':
    case 'OPTION_INVALID':
      return invalidRequest(error.faults.map(inOurWords))
    case 'STORE_UNAVAILABLE':
      return problem('STORE_UNAVAILABLE', STORE_UNAVAILABLE)
    case 'STORE_FULL':
      return problem('STORE_FULL', 'Redis is out of memory, and this client has no bucket yet; nothing was decided.')
    case 'STORE_CORRUPT':
    case 'STORE_CROWDED':
      // Names a key of Redis, and with it the client: fit for whoever named that client, but not for a log.
      return problem(error.code, error.message)
    case 'CLOSED':
      return problem('CLOSED', 'This node is shutting down: ask another one.')
    case 'RULE_INVALID':
      return problem('INTERNAL', 'The rules of this node are wrong; its log says more.')
  }
}

/** What the library calls a fact, and what the field of the request is called. */
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

function inOurWords({ field, value, fix }: Fault): Fault {
  return { field: FIELDS[field] ?? field, value, fix }
}
