// Forwards requests to an upstream. Streams bodies with back-pressure; a disconnect on one side ends the other. undici
// rewrites the framing, so that both sides agree on where a request ends.

import type { Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import type { HeaderRecord } from 'sluice/http'
import { type Dispatcher, Pool } from 'undici'
import { type Problem, problem } from '../problems/problem.ts'
import { type GatewayRequest, headersForClient, trailersForClient, type UpstreamHeaders } from './request-head.ts'
import { end, type GatewayResponse, isDisconnected, sendProblem, writeHead } from './response.ts'
import { watchUpload } from './upload-watch.ts'

export type UpstreamTimeouts = { readonly upstreamTimeoutMs: number; readonly clientBodyTimeoutMs: number }

export type Failure = 'unreachable' | 'slow' | 'invalid' | 'slow_upload'

export type Forwarding = {
  readonly request: GatewayRequest
  readonly response: GatewayResponse
  readonly path: string
  readonly headers: string[]
  /** Headers that the gateway adds to the response. */
  readonly ours: Readonly<HeaderRecord>
  /** Called when the upstream has switched protocols. */
  readonly onUpgrade: ((list: readonly string[], socket: Socket) => void) | undefined
  /** Called if the upstream fails or the request cannot be forwarded. */
  readonly onFailure: (kind: Failure, error: Error) => void
}

const CONNECT_MS_MAX = 10_000
/** Keep-alive timeout for writes. Few services close an idle connection this early. */
const WRITE_IDLE_MS_MAX = 1000

/** undici's codes for timeouts. */
const SLOW: ReadonlySet<string> = new Set([
  ...['UND_ERR_CONNECT_TIMEOUT', 'UND_ERR_HEADERS_TIMEOUT', 'UND_ERR_BODY_TIMEOUT'],
])
/** Connection errors, typically of a keep-alive connection that the upstream closed at the same moment. */
const BROKEN: ReadonlySet<string> = new Set(['UND_ERR_SOCKET', 'ECONNRESET', 'EPIPE'])
/** Requests that cannot be expressed in HTTP/1.1. */
const UNWRITABLE: ReadonlySet<string> = new Set(['UND_ERR_INVALID_ARG', 'UND_ERR_REQ_CONTENT_LENGTH_MISMATCH'])
/** Safe methods, which may be sent twice (RFC 9110, 9.2.1). */
const REPEATABLE: ReadonlySet<string> = new Set(['GET', 'HEAD', 'OPTIONS'])

export class Upstream {
  /** `http://127.0.0.1:3000` */
  readonly origin: string
  /** Prefix of the paths that it gets: `/api`, or `example.org/api`. */
  readonly route: string
  /** Whether the last request failed. */
  isFailing = false
  /** Keep-alive connections, as many as requests in flight. */
  readonly #reads: Pool
  /** For requests that must not be retried: closes idle connections early, before the upstream might. */
  readonly #writes: Pool
  /** Certificates are verified for the host of the URL, not for the host sent by the client. */
  readonly #servername: string | undefined
  readonly #bodyMs: number

  constructor(
    { origin, protocol, hostname }: URL,
    { upstreamTimeoutMs, clientBodyTimeoutMs }: UpstreamTimeouts,
    route = '/',
  ) {
    this.origin = origin
    this.route = route
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

  /** Cancel the result when the client disconnects. Cancelling after the response is a no-op. */
  forward(forwarding: Forwarding): Cancel {
    const { request, path, headers, onUpgrade } = forwarding
    const method = (request.method ?? 'GET') as Dispatcher.HttpMethod
    const body = hasBody(request) ? request : null
    const upgrade = onUpgrade === undefined ? null : 'websocket'
    const options = { path, method, headers, body, upgrade, servername: this.#servername }
    const isRepeatable = body === null && REPEATABLE.has(method)
    const pool = isRepeatable ? this.#reads : this.#writes
    const dispatch = () => void pool.dispatch(options, relay)
    const relay = new ResponseRelay(
      forwarding,
      isRepeatable ? dispatch : undefined,
      body === null ? undefined : this.#bodyMs,
    )
    dispatch()
    return relay
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

const DISCONNECTED = new Error('the client has disconnected')
const SLOW_UPLOAD = new Error('the client sent its body too slowly')

/** Streams a response to the client. */
class ResponseRelay implements Dispatcher.DispatchHandler, Cancel {
  readonly #forwarding: Forwarding
  readonly #response: GatewayResponse
  /** Retries the request, at most once. */
  #retry: (() => void) | undefined
  #controller: Dispatcher.DispatchController | undefined
  /** Undefined without a body. */
  readonly #bodyMs: number | undefined
  #isOver = false

  constructor(forwarding: Forwarding, retry: (() => void) | undefined, bodyMs: number | undefined) {
    this.#forwarding = forwarding
    this.#bodyMs = bodyMs
    this.#response = forwarding.response
    this.#retry = retry
  }

  cancel(): void {
    if (this.#isOver) return
    this.#isOver = true
    this.#controller?.abort(DISCONNECTED)
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller
    if (this.#isOver)
      controller.abort(DISCONNECTED) // cancelled while it waited for a connection
    else if (this.#bodyMs !== undefined) process.nextTick(() => this.#watch(controller, this.#bodyMs ?? 0))
  }

  /** Runs after undici has begun to read the body in the same tick. */
  #watch(controller: Dispatcher.DispatchController, bodyMs: number): void {
    const { request, response } = this.#forwarding
    if (this.#isOver || request.listenerCount('data') === 0) return
    watchUpload(request, bodyMs, () => {
      if (this.#isOver) return
      this.#isOver = true
      response.shouldKeepAlive = false
      response.once('close', () => controller.abort(DISCONNECTED))
      fail(this.#forwarding, 'slow_upload', SLOW_UPLOAD)
    })
  }

  onResponseStart(
    _controller: Dispatcher.DispatchController,
    status: number,
    headers: UpstreamHeaders,
    statusMessage?: string,
  ): void {
    if (status < 200) return // 1xx is hop-by-hop or optional
    const { request, ours } = this.#forwarding
    // RFC 9110, 8.6: a 204 has no length.
    const forwarded = status === 204 ? { ...headers, 'content-length': [] } : headers
    writeHead(request, this.#response, status, statusMessage, headersForClient(forwarded, ours))
    // These have no body, but undici would wait for one if there is a Content-Length.
    if (status === 204 || status === 304) this.#end()
  }

  onRequestUpgrade(_controller: unknown, _status: number, headers: UpstreamHeaders, socket: Duplex): void {
    const list = headersForClient(headers, this.#forwarding.ours)
    this.#forwarding.onUpgrade?.(list, socket as Socket) // its actual type
  }

  onResponseData(controller: Dispatcher.DispatchController, chunk: Buffer): void {
    if (this.#response.write(chunk)) return
    controller.pause()
    this.#response.once('drain', () => controller.resume())
  }

  onResponseEnd(_controller: Dispatcher.DispatchController, trailers: UpstreamHeaders): void {
    if (this.#isOver) return
    if (Object.keys(trailers).length > 0) this.#response.addTrailers(trailersForClient(trailers))
    this.#end()
  }

  #end(): void {
    this.#isOver = true
    end(this.#forwarding.request, this.#response)
  }

  /** The controller is undefined if the request could not be written. */
  onResponseError(_controller: Dispatcher.DispatchController | undefined, error: Error): void {
    const retry = this.#retry
    this.#retry = undefined
    if (this.#isOver || isDisconnected(this.#response)) return
    const { code = '' } = error as NodeJS.ErrnoException
    if (retry !== undefined && BROKEN.has(code) && !this.#response.headersSent) {
      retry()
    } else {
      this.#isOver = true
      fail(this.#forwarding, kindOfFailure(code), error)
    }
  }
}

function kindOfFailure(code: string): Failure {
  return SLOW.has(code) ? 'slow' : UNWRITABLE.has(code) ? 'invalid' : 'unreachable'
}

function fail({ request, response, onFailure }: Forwarding, kind: Failure, error: Error): void {
  onFailure(kind, error)
  sendProblem(request, response, PROBLEM_OF[kind])
}

const PROBLEM_OF: Readonly<Record<Failure, Problem>> = {
  unreachable: problem('UPSTREAM_UNREACHABLE', 'The upstream is unreachable.'),
  slow: problem('UPSTREAM_SLOW', 'The upstream did not respond in time.'),
  invalid: problem('REQUEST_INVALID', 'The request cannot be forwarded: its path, a header or its length is invalid.'),
  slow_upload: problem('REQUEST_INVALID', 'The request body arrived too slowly: send it faster.'),
}
