// Wraps a method with what every method needs, on both stacks: deadlines, errors as statuses, and counts.

import { isPromise, type MaybePromise } from 'sluice'
import {
  admitted,
  type Call,
  type Caller,
  GRPC_STATUS,
  GrpcError,
  type GrpcStatus,
  type Method,
  type StreamInput,
  type StreamMethod,
  type StreamOutput,
  type UnaryMethod,
} from './method.ts'
import { grpcErrorOf } from './status-of.ts'

/** Counts of all methods, for metrics. */
export class CallCounts {
  readonly #ended = new Map<string, Record<GrpcStatus, number>>()
  readonly messages = { received: 0, sent: 0 }

  /** Counts of one method by status, to be incremented in place. */
  of(path: string): Record<GrpcStatus, number> {
    const known = this.#ended.get(path)
    if (known !== undefined) return known
    const statuses = Object.keys(GRPC_STATUS) as GrpcStatus[]
    const fresh = Object.fromEntries(statuses.map((status) => [status, 0])) as Record<GrpcStatus, number>
    this.#ended.set(path, fresh)
    return fresh
  }

  /** Method, status and count of all calls that have ended. */
  list(): [method: string, status: string, count: number][] {
    return [...this.#ended].flatMap(([path, counts]) => {
      const some = Object.entries(counts).filter(([, count]) => count > 0)
      return some.map(([status, count]): [string, string, number] => [path.slice(1), status, count])
    })
  }
}

export function servedMethod(method: Method, counts: CallCounts): Method {
  return method.kind === 'unary' ? servedUnary(method, counts) : servedStream(method, counts)
}

function servedUnary(method: UnaryMethod, counts: CallCounts): UnaryMethod {
  const ended = counts.of(method.path)
  const failed = (error: unknown): never => {
    const known = grpcErrorOf(error)
    ended[known?.status ?? 'internal'] += 1
    throw known ?? error
  }
  return {
    ...method,
    admit: (call) => {
      try {
        return admitted(method, call)
      } catch (error) {
        return failed(error)
      }
    },
    handle: (message, call, caller) => handle(method, message, call, caller, ended, failed),
  }
}

function handle(
  method: UnaryMethod,
  message: Uint8Array,
  call: Call,
  caller: Caller,
  ended: Record<GrpcStatus, number>,
  failed: (error: unknown) => never,
): MaybePromise<Uint8Array> {
  const answered = (answer: Uint8Array) => {
    ended.ok += 1
    return answer
  }
  try {
    const answer = method.handle(message, call, caller)
    if (isPromise(answer)) return withinTimeout(answer, call).then(answered, failed)
    return answered(answer)
  } catch (error) {
    return failed(error)
  }
}

/** Rejects with `deadline_exceeded` when the client gives up. A synchronous answer needs no timer. */
function withinTimeout<T>(work: Promise<T>, { timeoutMs }: Call): Promise<T> {
  if (timeoutMs === undefined) return work
  return new Promise((resolve, reject) => {
    const timer = startTimer(timeoutMs, () => reject(deadlineExceeded(timeoutMs)))
    const settled = () => clearTimeout(timer)
    work.then(resolve, reject).finally(settled)
  })
}

const TIMER_MS_MAX = 2 ** 31 - 1

/** After a stall of this process, an answer that became known in time wins: its callbacks run first. */
function startTimer(ms: number, expired: () => void): NodeJS.Timeout {
  const later = () => setImmediate(() => setImmediate(expired))
  return setTimeout(later, Math.min(Math.ceil(ms), TIMER_MS_MAX)).unref()
}

function deadlineExceeded(timeoutMs: number): GrpcError {
  return new GrpcError('deadline_exceeded', `no answer within the grpc-timeout of ${timeoutMs} ms`)
}

function servedStream(method: StreamMethod, counts: CallCounts): StreamMethod {
  const ended = counts.of(method.path)
  return { ...method, open: (call, output) => openStream(method, call, output, counts.messages, ended) }
}

/** Opens one call of a stream method: counts its messages, and its end once. */
function openStream(
  method: StreamMethod,
  call: Call,
  output: StreamOutput,
  messages: CallCounts['messages'],
  ended: Record<GrpcStatus, number>,
): StreamInput {
  let isOver = false
  let timer: NodeJS.Timeout | undefined
  const over = (status: GrpcStatus): boolean => {
    if (isOver) return false
    isOver = true
    clearTimeout(timer)
    ended[status] += 1
    return true
  }
  const failed = (error: unknown): never => {
    const known = grpcErrorOf(error)
    over(known?.status ?? 'internal')
    throw known ?? error
  }
  const counted: StreamOutput = {
    write: (message) => {
      if (!isOver) messages.sent += 1
      return output.write(message)
    },
    drained: () => output.drained(),
    end: () => over('ok') && output.end(),
    fail: (error) => over(error.status) && output.fail(error),
  }
  const input = attempt(() => method.open(call, counted), failed)
  if (call.timeoutMs !== undefined && !isOver) {
    const { timeoutMs } = call
    timer = startTimer(timeoutMs, () => {
      counted.fail(deadlineExceeded(timeoutMs))
      input.cancel()
    })
  }
  return {
    message: (message) => {
      messages.received += 1
      const pending = attempt(() => input.message(message), failed)
      return isPromise(pending) ? pending.catch(failed) : undefined
    },
    end: () => attempt(() => input.end(), failed),
    cancel: () => over('cancelled') && input.cancel(),
  }
}

function attempt<T>(work: () => T, failed: (error: unknown) => never): T {
  try {
    return work()
  } catch (error) {
    return failed(error)
  }
}
