// A service behind the gateway. Requests and answers are streamed, neither is kept: a reader that is slow slows the
// writer down, whoever leaves ends the other side, and framing is written anew by undici, so that no two ends can
// disagree about where a request ends.

import type { Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import type { HeaderRecord } from 'sluice/http'
import { type Dispatcher, Pool } from 'undici'
import { type Problem, problem } from '../problems/problem.ts'
import { type AnswerHeaders, type GatewayRequest, headersForClient, trailersForClient } from './request-head.ts'
import { end, type GatewayResponse, hasLeft, sendProblem, writeHead } from './response.ts'
import { watchUpload } from './upload-watch.ts'

export type UpstreamTimeouts = { readonly upstreamTimeoutMs: number; readonly clientBodyTimeoutMs: number }

export type Failure = 'unreachable' | 'slow' | 'invalid' | 'late'

export type Passage = {
  readonly request: GatewayRequest
  readonly response: GatewayResponse
  readonly path: string
  readonly headers: string[]
  /** What the gateway adds to the answer. */
  readonly ours: Readonly<HeaderRecord>
  /** The service has agreed to another protocol. */
  readonly onUpgrade: ((list: readonly string[], behind: Socket) => void) | undefined
  /** Called when the service cannot be reached or does not answer. */
  readonly onFailure: (kind: Failure, error: Error) => void
}

const CONNECT_MS_MAX = 10_000
/** Few services close a connection that was used so lately. */
const WRITE_IDLE_MS_MAX = 1000

/** undici's codes for a service that is there and does not answer. */
const SLOW: ReadonlySet<string> = new Set([
  ...['UND_ERR_CONNECT_TIMEOUT', 'UND_ERR_HEADERS_TIMEOUT', 'UND_ERR_BODY_TIMEOUT'],
])
/** For a connection that broke off: most likely one that was kept, and closed by the service at the same moment. */
const BROKEN: ReadonlySet<string> = new Set(['UND_ERR_SOCKET', 'ECONNRESET', 'EPIPE'])
/** And for requests that cannot be written in HTTP/1.1. */
const UNWRITABLE: ReadonlySet<string> = new Set(['UND_ERR_INVALID_ARG', 'UND_ERR_REQ_CONTENT_LENGTH_MISMATCH'])
/** Nothing happens to a service that gets these twice (RFC 9110, 9.2.1). */
const REPEATABLE: ReadonlySet<string> = new Set(['GET', 'HEAD', 'OPTIONS'])

export class Upstream {
  /** `http://127.0.0.1:3000` */
  readonly origin: string
  /** Whether its last answer was none. */
  isFailing = false
  /** Connections are kept alive; there are as many as there are requests in flight. */
  readonly #reads: Pool
  /** What may not be sent twice gets no connection that the service may be closing at the same moment. */
  readonly #writes: Pool
  /** Certificates are checked for the host of the URL, whatever the client calls the service. */
  readonly #servername: string | undefined
  readonly #bodyMs: number

  constructor({ origin, protocol, hostname }: URL, { upstreamTimeoutMs, clientBodyTimeoutMs }: UpstreamTimeouts) {
    this.origin = origin
    this.#bodyMs = clientBodyTimeoutMs
    this.#servername = protocol === 'https:' ? hostname : undefined
    const options = {
      headersTimeout: upstreamTimeoutMs,
      bodyTimeout: upstreamTimeoutMs,
      connect: { timeout: Math.min(upstreamTimeoutMs, CONNECT_MS_MAX) },
    }
    this.#reads = new Pool(origin, options)
    const [keepAliveTimeout, keepAliveMaxTimeout] = [WRITE_IDLE_MS_MAX, WRITE_IDLE_MS_MAX]
    this.#writes = new Pool(origin, { ...options, keepAliveTimeout, keepAliveMaxTimeout })
  }

  /** Call what it returns when the client has left, or at any time after the answer. */
  pass(passage: Passage): Cancel {
    const { request, path, headers, onUpgrade } = passage
    const method = (request.method ?? 'GET') as Dispatcher.HttpMethod
    const body = hasBody(request) ? request : null
    const upgrade = onUpgrade === undefined ? null : 'websocket'
    const options = { path, method, headers, body, upgrade, servername: this.#servername }
    const isRepeatable = body === null && REPEATABLE.has(method)
    const pool = isRepeatable ? this.#reads : this.#writes
    const dispatch = () => void pool.dispatch(options, answer)
    const answer = new Answer(passage, isRepeatable ? dispatch : undefined, body === null ? undefined : this.#bodyMs)
    dispatch()
    return answer
  }

  async close(): Promise<void> {
    await Promise.all([this.#reads.destroy(), this.#writes.destroy()])
  }
}

export type Cancel = { cancel(): void }

export function hasBody(request: GatewayRequest): boolean {
  if (request.stream !== undefined) return !request.stream.endAfterHeaders
  const { 'content-length': length, 'transfer-encoding': coding } = request.headers
  return coding !== undefined || (length !== undefined && length !== '0')
}

const LEFT = new Error('the client has left')
const LATE = new Error('the client sends its body too slowly')

/** Writes an answer as it comes. */
class Answer implements Dispatcher.DispatchHandler, Cancel {
  readonly #passage: Passage
  readonly #response: GatewayResponse
  /** Sends the request again, which is done once. */
  #again: (() => void) | undefined
  #controller: Dispatcher.DispatchController | undefined
  /** Undefined where there is no body to watch. */
  readonly #bodyMs: number | undefined
  #isOver = false

  constructor(passage: Passage, again: (() => void) | undefined, bodyMs: number | undefined) {
    this.#passage = passage
    this.#bodyMs = bodyMs
    this.#response = passage.response
    this.#again = again
  }

  cancel(): void {
    if (this.#isOver) return
    this.#isOver = true
    this.#controller?.abort(LEFT)
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller
    if (this.#isOver)
      controller.abort(LEFT) // it waited for a connection meanwhile
    else if (this.#bodyMs !== undefined) process.nextTick(() => this.#watch(controller, this.#bodyMs ?? 0))
  }

  /** undici begins to read the body in the same turn. */
  #watch(controller: Dispatcher.DispatchController, bodyMs: number): void {
    const { request, response } = this.#passage
    if (this.#isOver || request.listenerCount('data') === 0) return
    watchUpload(request, bodyMs, () => {
      if (this.#isOver) return
      this.#isOver = true
      response.shouldKeepAlive = false
      response.once('close', () => controller.abort(LEFT))
      tell(this.#passage, 'late', LATE)
    })
  }

  onResponseStart(
    _controller: Dispatcher.DispatchController,
    status: number,
    headers: AnswerHeaders,
    statusMessage?: string,
  ): void {
    if (status < 200) return // meant for this connection, or a hint that can be done without
    const { request, ours } = this.#passage
    // RFC 9110, 8.6: a 204 has no length.
    const told = status === 204 ? { ...headers, 'content-length': [] } : headers
    writeHead(request, this.#response, status, statusMessage, headersForClient(told, ours))
    // Neither has a body, and undici takes it for missing if the length of another answer is told.
    if (status === 204 || status === 304) this.#end()
  }

  onRequestUpgrade(_controller: unknown, _status: number, headers: AnswerHeaders, behind: Duplex): void {
    const list = headersForClient(headers, this.#passage.ours)
    this.#passage.onUpgrade?.(list, behind as Socket) // the connection itself
  }

  onResponseData(controller: Dispatcher.DispatchController, chunk: Buffer): void {
    if (this.#response.write(chunk)) return
    controller.pause()
    this.#response.once('drain', () => controller.resume())
  }

  onResponseEnd(_controller: Dispatcher.DispatchController, trailers: AnswerHeaders): void {
    if (this.#isOver) return
    if (Object.keys(trailers).length > 0) this.#response.addTrailers(trailersForClient(trailers))
    this.#end()
  }

  #end(): void {
    this.#isOver = true
    end(this.#passage.request, this.#response)
  }

  /** Without a controller when the request could not even be written. */
  onResponseError(_controller: Dispatcher.DispatchController | undefined, error: Error): void {
    const again = this.#again
    this.#again = undefined
    if (this.#isOver || hasLeft(this.#response)) return
    const { code = '' } = error as NodeJS.ErrnoException
    if (again !== undefined && BROKEN.has(code) && !this.#response.headersSent) {
      again()
    } else {
      this.#isOver = true
      tell(this.#passage, kindOfFailure(code), error)
    }
  }
}

function kindOfFailure(code: string): Failure {
  return SLOW.has(code) ? 'slow' : UNWRITABLE.has(code) ? 'invalid' : 'unreachable'
}

function tell({ request, response, onFailure }: Passage, kind: Failure, error: Error): void {
  onFailure(kind, error)
  sendProblem(request, response, PROBLEM_OF[kind])
}

const PROBLEM_OF: Readonly<Record<Failure, Problem>> = {
  unreachable: problem('UPSTREAM_UNREACHABLE', 'The service behind the gateway cannot be reached.'),
  slow: problem('UPSTREAM_SLOW', 'The service behind the gateway did not answer in time.'),
  invalid: problem('REQUEST_INVALID', 'The request cannot be passed on: its path, a header or its length is wrong.'),
  late: problem('REQUEST_INVALID', 'The body of the request did not arrive in time: send it faster.'),
}
