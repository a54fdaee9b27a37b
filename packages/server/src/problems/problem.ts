// Errors reported to clients as RFC 9457 problem documents: one shape, closed codes, and for bad input each mistake
// with field, value and fix.

import { STATUS_CODES } from 'node:http'
import type { FieldError } from 'sluice'
import { shown } from './shown.ts'

/** code → HTTP status. docs/reference/http-api.md has one line per code; a test keeps the two equal. */
export const PROBLEMS = {
  REQUEST_INVALID: 400,
  JSON_MALFORMED: 400,
  RULE_INVALID: 400,
  UNAUTHORIZED: 401,
  FORBIDDEN: 403,
  APPROVAL_FORBIDDEN: 403,
  NOT_FOUND: 404,
  ROUTE_UNKNOWN: 404,
  DECISION_UNKNOWN: 404,
  KEY_UNKNOWN: 404,
  TOKEN_UNKNOWN: 404,
  REFUND_UNKNOWN: 404,
  RULE_UNKNOWN: 404,
  VERSION_UNKNOWN: 404,
  PROPOSAL_UNKNOWN: 404,
  OVERRIDE_UNKNOWN: 404,
  BYPASS_UNKNOWN: 404,
  SIGNAL_UNKNOWN: 404,
  FACTOR_UNKNOWN: 404,
  METHOD_NOT_ALLOWED: 405,
  RULE_EXISTS: 409,
  RULES_FROM_FILE: 409,
  RULES_FROM_ETCD: 409,
  APPROVAL_REQUIRED: 409,
  PROPOSAL_CONFLICT: 409,
  PROPOSAL_STATE: 409,
  ROLLOUT_ACTIVE: 409,
  NODES_OUTDATED: 409,
  FROZEN: 409,
  NOT_FROZEN: 409,
  NOT_PENDING: 409,
  NOT_COMPARABLE: 409,
  TOO_MANY_OVERRIDES: 409,
  TOO_MANY_SIGNALS: 409,
  NOTHING_TO_DRILL: 409,
  DEMO_UNSAFE: 409,
  NO_DATABASE: 409,
  NO_ANALYTICS: 409,
  TOO_MANY_TOKENS: 409,
  TOO_MANY_PROPOSALS: 409,
  REFUND_REPEATED: 409,
  REFUND_EXPIRED: 409,
  REFUND_OUTDATED: 409,
  VERSION_CONFLICT: 412,
  BODY_TOO_LARGE: 413,
  MEDIA_TYPE_UNSUPPORTED: 415,
  TOO_MANY_REQUESTS: 429,
  TOO_MANY_STREAMS_OF_TOKEN: 429,
  TOO_MANY_SIMULATIONS_OF_TOKEN: 429,
  TOO_MANY_TEXTS_OF_TOKEN: 429,
  INTERNAL: 500,
  PEER_UNTRUSTED: 500,
  UPSTREAM_UNREACHABLE: 502,
  STORE_UNAVAILABLE: 503,
  STORE_FULL: 503,
  STORE_CORRUPT: 503,
  STORE_CROWDED: 503,
  DATABASE_UNAVAILABLE: 503,
  ANALYTICS_UNAVAILABLE: 503,
  TOO_MANY_STREAMS: 503,
  TOO_MANY_SIMULATIONS: 503,
  TOO_MANY_TEXTS: 503,
  SIMULATION_TOO_SLOW: 503,
  CLOSED: 503,
  GATEWAY_BUSY: 503,
  DEADLINE_EXCEEDED: 504,
  UPSTREAM_SLOW: 504,
} as const

export type ProblemCode = keyof typeof PROBLEMS

export type Problem = {
  readonly type: 'about:blank'
  readonly title: string
  readonly status: number
  readonly code: ProblemCode
  readonly detail: string
  /** One per mistake. */
  readonly errors?: readonly LocatedFieldError[]
}

/** A field error with its line in a text. */
export type LocatedFieldError = FieldError & { readonly line?: number | undefined }

export function problem(code: ProblemCode, detail: string, fieldErrors: readonly LocatedFieldError[] = []): Problem {
  const status = PROBLEMS[code]
  const errors = fieldErrors.map(({ field, value, fix, line }) => {
    return { field, value: shown(value), fix, ...(line === undefined ? {} : { line }) }
  })
  const title = STATUS_CODES[status] ?? code
  return { type: 'about:blank', title, status, code, detail, ...(errors.length === 0 ? {} : { errors }) }
}

/** Cap on reported errors: a body can have thousands. */
const FIELD_ERRORS_MAX = 100

/** Problem for bad input: `detail` for people, `errors` for programs. */
export function invalidRequest(found: readonly FieldError[]): Problem {
  const fieldErrors = found.slice(0, FIELD_ERRORS_MAX)
  return problem('REQUEST_INVALID', fieldErrors.map(({ field, fix }) => `${field}: ${fix}`).join('; '), fieldErrors)
}

/** Throws a problem to the error handler. */
export class ProblemError extends Error {
  override readonly name = 'ProblemError'
  readonly problem: Problem
  readonly headers: Readonly<Record<string, string>>

  constructor(found: Problem, headers: Readonly<Record<string, string>> = {}) {
    super(found.detail)
    this.problem = found
    this.headers = headers
  }
}

/** One invalid field of a request. */
export function invalidField(field: string, value: unknown, fix: string): ProblemError {
  return new ProblemError(invalidRequest([{ field, value, fix }]))
}
