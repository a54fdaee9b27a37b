// Converts errors of handlers to gRPC statuses: the problems of the HTTP API with field, value and fix.

import type { Problem } from '../problems/problem.ts'
import { problemOf } from '../problems/problem-of.ts'
import { GrpcError, type GrpcStatus } from './method.ts'
import { ProtobufError } from './protobuf.ts'

const STATUS_OF_HTTP: Readonly<Record<number, GrpcStatus>> = {
  400: 'invalid_argument',
  401: 'unauthenticated',
  403: 'permission_denied',
  404: 'not_found',
  409: 'failed_precondition',
  412: 'failed_precondition',
  413: 'resource_exhausted',
  429: 'resource_exhausted',
  503: 'unavailable',
  504: 'deadline_exceeded',
}

/** Undefined for a defect: the stack reports it, and the client gets `internal` without the message. */
export function grpcErrorOf(error: unknown): GrpcError | undefined {
  if (error instanceof GrpcError) return error
  if (error instanceof ProtobufError) return new GrpcError('invalid_argument', `malformed message: ${error.message}`)
  const problem = problemOf(error)
  const status = statusOf(problem)
  return status === undefined ? undefined : new GrpcError(status, problemText(problem))
}

/** Undefined for a defect. */
export function statusOf({ status }: Problem): GrpcStatus | undefined {
  return STATUS_OF_HTTP[status]
}

/** `REQUEST_INVALID: method: unknown method (got "GTE")`. */
export function problemText({ code, detail, errors = [] }: Problem): string {
  const mistakes = errors.map(({ field, value, fix }) => {
    return `${field}: ${fix}${value === undefined ? '' : ` (got ${JSON.stringify(value)})`}`
  })
  return `${code}: ${mistakes.length === 0 ? detail : mistakes.join('; ')}`
}
