// Anything thrown → the problem that the client is told. What nobody foresaw is a 500 without its stack: the stack goes
// to the log.

import { type Fault, LimiterError } from 'sluice'
import { invalidRequest, type Problem, ProblemError, problem } from './problem.ts'
import { type SchemaError, schemaFaults } from './schema-faults.ts'

/** How Fastify's own errors are told. */
const FASTIFY_PROBLEMS: Readonly<Record<string, () => Problem>> = {
  FST_ERR_CTP_INVALID_MEDIA_TYPE: () =>
    problem('MEDIA_TYPE_UNSUPPORTED', 'The body has to be JSON: send the header Content-Type: application/json.'),
  FST_ERR_CTP_BODY_TOO_LARGE: () =>
    problem('BODY_TOO_LARGE', 'The body is too large: a check has at most 64 KiB, a batch 2 MiB.'),
  FST_ERR_CTP_INVALID_CONTENT_LENGTH: () =>
    problem('REQUEST_INVALID', 'The body is not as long as the header Content-Length says.'),
  FST_ERR_BAD_URL: () => problem('REQUEST_INVALID', 'The path is not valid: check its percent escapes.'),
}

export function problemOf(error: unknown): Problem {
  if (error instanceof ProblemError) return error.problem
  if (error instanceof LimiterError) return limiterProblem(error)
  const { validation, code, statusCode } = (error ?? {}) as {
    validation?: readonly SchemaError[]
    code?: string
    statusCode?: number
  }
  if (validation !== undefined) return invalidRequest(schemaFaults(validation))
  const known = FASTIFY_PROBLEMS[code ?? '']
  if (known !== undefined) return known()
  if (statusCode !== undefined && statusCode >= 400 && statusCode < 500) return problem('REQUEST_INVALID', String(error))
  return problem('INTERNAL', 'Something unforeseen went wrong; the log of this node says more.')
}

function limiterProblem(error: LimiterError): Problem {
  switch (error.code) {
    case 'SUBJECT_INVALID':
    case 'OPTION_INVALID':
      return invalidRequest(error.faults.map(inOurWords))
    case 'STORE_UNAVAILABLE':
      return problem('STORE_UNAVAILABLE', 'The counters cannot be reached at the moment; nothing was decided.')
    case 'STORE_CORRUPT':
      return problem('STORE_CORRUPT', 'A counter of this client cannot be read; the log of this node names it.')
    case 'CLOSED':
      return problem('CLOSED', 'This node is shutting down: ask another one.')
    case 'RULE_INVALID':
      return problem('INTERNAL', 'The rules of this node are wrong; its log says more.')
  }
}

/** What the library calls a fact, and what the field of the request is called. */
const FIELDS: Readonly<Record<string, string>> = {
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
