// sluice.v1.RateLimiter: translates messages to calls of the check controller and back. The messages are described in
// proto/sluice/v1/rate_limiter.proto.

import { andThen, type Clock, inSlices, isPromise, type Limiter, type MaybePromise, mapped, type Sliced } from 'sluice'
import type { HeaderOptions } from 'sluice/http'
import type { Caller } from '../../access/roles.ts'
import { readActiveRules } from '../../checks/answer.ts'
import type { CheckController } from '../../checks/check-controller.ts'
import type { Refund } from '../../checks/refund.ts'
import { BATCH_SLICE_MS, BATCH_TOGETHER, CHECKS_MAX } from '../../http/bodies/schemas.ts'
import { explainBody, type FindKey } from '../../http/routes/explain.ts'
import { invalidField } from '../../problems/problem.ts'
import { problemOf } from '../../problems/problem-of.ts'
import { followRules } from '../../rules/follow-rules.ts'
import type { GrpcAccess } from '../access.ts'
import { type Call, GRPC_STATUS, GrpcError, type Method } from '../method.ts'
import { ProtobufReader, ProtobufWriter } from '../protobuf.ts'
import { problemText, statusOf } from '../status-of.ts'
import { bodyOf, type CheckFields, readCheck, readRefund } from './check-request.ts'
import { createCheckWriter, writeExplainResponse } from './check-response.ts'
import { CheckStream } from './check-stream.ts'

export const RATE_LIMITER_SERVICE = 'sluice.v1.RateLimiter'

/** Round trip to a client that is not measured yet. */
const ROUND_TRIP_MS = 2.5
/** Time in which the answer is written, and read by the client. */
const ANSWER_MS = 0.5

export type RateLimiterDeps = {
  readonly access: GrpcAccess
  readonly limiter: Limiter
  readonly checks: Pick<CheckController, 'checkBody'>
  readonly refund: Refund
  /** Undefined: this node records no events. */
  readonly knownKeys: FindKey | undefined
  readonly headers: HeaderOptions
  readonly clock: Clock
  /** Called with defects in one check of many. */
  onError(error: unknown, path: string): void
}

export type RateLimiterService = {
  readonly methods: readonly Method[]
  /** Ends all streams once their pending checks are answered. */
  close(): void
}

export function rateLimiterService(deps: RateLimiterDeps): RateLimiterService {
  const streams = new Set<CheckStream>()
  const methods = [checkMethod(deps), checkManyMethod(deps), streamMethod(deps, streams), ...otherMethods(deps)]
  const close = () => {
    for (const stream of streams) stream.close(new GrpcError('unavailable', 'this node is shutting down: reconnect'))
  }
  return { methods, close }
}

function pathOf(name: string): string {
  return `/${RATE_LIMITER_SERVICE}/${name}`
}

/**
 * Latest time for the store's reply, so that the answer reaches the client in time: the call and its answer take a
 * round trip of the client's timeout, but the store gets at least half of it. Undefined: no deadline.
 */
export function expiresMsOf({ timeoutMs, peer }: Call, nowMs: number = performance.now()): number | undefined {
  if (timeoutMs === undefined) return undefined
  return nowMs + timeoutMs - Math.min(timeoutMs / 2, (peer.roundTripMs ?? ROUND_TRIP_MS) + ANSWER_MS)
}

function checkMethod({ access, checks, headers }: RateLimiterDeps): Method {
  const writeTo = createCheckWriter(headers)
  return {
    kind: 'unary',
    path: pathOf('Check'),
    admit: (call) => access.require(call, 'check'),
    handle: (message, call, caller) => {
      const body = bodyOf(readCheck(new ProtobufReader(message)))
      const writer = new ProtobufWriter()
      const written = checks.checkBody(body, caller, writeTo(writer), undefined, expiresMsOf(call))
      return andThen(written, () => writer.finish())
    },
  }
}

/** Field numbers of the answer and the error in CheckResult and CheckStreamResponse. */
type ResultFields = { readonly response: number; readonly error: number }

/** Writes the answer of a check, or the error that prevented it. Never throws. */
type WriteResult = (
  fields: CheckFields,
  caller: Caller,
  writer: ProtobufWriter,
  expiresMs?: number,
) => MaybePromise<void>

function createWriteResult(
  { checks, headers, onError }: RateLimiterDeps,
  path: string,
  numbers: ResultFields,
): WriteResult {
  const writeTo = createCheckWriter(headers)
  return (fields, caller, writer, expiresMs) => {
    const { length } = writer
    const failed = (error: unknown) => {
      writer.truncate(length) // the answer may be half written
      writeError(writer, numbers.error, error, (defect) => onError(defect, path))
    }
    try {
      const written = checks.checkBody(
        bodyOf(fields),
        caller,
        (...answer) => void writer.message(numbers.response, (nested) => writeTo(nested)(...answer)),
        undefined,
        expiresMs,
      )
      return isPromise(written) ? written.catch(failed) : written
    } catch (error) {
      return failed(error)
    }
  }
}

function writeError(writer: ProtobufWriter, field: number, error: unknown, onDefect: (error: unknown) => void): void {
  const problem = problemOf(error)
  const status = statusOf(problem)
  if (status === undefined) onDefect(error)
  writer.message(field, (nested) => {
    nested
      .string(1, problem.code)
      .string(2, problemText(problem))
      .uint(3, GRPC_STATUS[status ?? 'internal'])
  })
}

function checkManyMethod(deps: RateLimiterDeps): Method {
  const path = pathOf('CheckMany')
  const writeResult = createWriteResult(deps, path, { response: 1, error: 2 })
  return {
    kind: 'unary',
    path,
    admit: (call) => deps.access.require(call, 'check'),
    handle: async (message, call, caller) => {
      const expiresMs = expiresMsOf(call)
      const checks = await inSlices(readChecks(Buffer.from(message)), BATCH_SLICE_MS)
      // Checks start before the first one is awaited, so that those of a slice share round trips to a remote store.
      const start = mapped(
        checks,
        (fields) => {
          const writer = new ProtobufWriter()
          const written = writeResult(fields, caller, writer, expiresMs)
          return andThen(written, () => writer)
        },
        BATCH_TOGETHER,
      )
      return joined(await Promise.all(await inSlices(start, BATCH_SLICE_MS)))
    },
  }
}

/** The message must stay as it is until the work is done. */
function* readChecks(message: Uint8Array): Sliced<CheckFields[]> {
  const reader = new ProtobufReader(message)
  const checks: CheckFields[] = []
  for (let field = reader.next(); field !== 0; field = reader.next()) {
    if (field !== 1) reader.skip()
    else if (checks.push(readCheck(reader.item())) > CHECKS_MAX)
      throw invalidField('checks', `more than ${CHECKS_MAX}`, `give a list of at most ${CHECKS_MAX} checks`)
    yield
  }
  return checks
}

function joined(results: readonly ProtobufWriter[]): Uint8Array {
  const answer = new ProtobufWriter()
  for (const result of results) answer.bytes(1, result.finish(), true)
  return answer.finish()
}

function streamMethod(deps: RateLimiterDeps, streams: Set<CheckStream>): Method {
  const path = pathOf('CheckStream')
  const check = createWriteResult(deps, path, { response: 2, error: 3 })
  const { access } = deps
  return {
    kind: 'stream',
    path,
    open: (call, output) => {
      const caller = access.require(call, 'check')
      const isStillValid = () => access.isStillValid(caller)
      const stream = new CheckStream({ caller, isStillValid, check }, output, (over) => streams.delete(over))
      streams.add(stream)
      return stream
    },
  }
}

function otherMethods({ access, limiter, refund, knownKeys, clock }: RateLimiterDeps): Method[] {
  const activeRules = followRules(limiter, () => readActiveRules(limiter))
  return [
    {
      kind: 'unary',
      path: pathOf('Refund'),
      admit: (call) => access.require(call, 'check'),
      handle: async (message, _call, caller) => {
        const { left_out: leftOut = [] } = await refund(readRefund(new ProtobufReader(message)), caller)
        const writer = new ProtobufWriter().bool(1, true)
        for (const limit of leftOut) writer.string(2, limit, true)
        return writer.finish()
      },
    },
    {
      kind: 'unary',
      path: pathOf('Explain'),
      admit: (call) => access.require(call, 'viewer'),
      handle: async (message) => {
        const explained = await explainBody(limiter, bodyOf(readCheck(new ProtobufReader(message))), knownKeys)
        const writer = new ProtobufWriter()
        writeExplainResponse(writer, explained, clock.nowUs(), activeRules())
        return writer.finish()
      },
    },
  ]
}
