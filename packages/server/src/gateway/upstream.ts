// One request to a service behind, and its answer: both streamed, neither kept. A reader that is slow slows the writer
// down, whoever leaves ends the other side, and framing is written anew by undici, so that no two ends can disagree
// about where a request ends.

import type { Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import { type HeaderRecord, joinedHeaders } from 'sluice/http'
import { type Dispatcher, Pool } from 'undici'
import { problem } from '../http/problem.ts'
import { headerLines } from '../identity.ts'
import { type GatewayRequest, headersForClient } from './request-head.ts'
import { type GatewayResponse, hasLeft, sendProblem, writeHead } from './response.ts'

export type UpstreamTimeouts = { readonly upstreamTimeoutMs: number }

const CONNECT_MS_MAX = 10_000

/** undici's codes for a service that is there and does not answer. */
const SLOW: ReadonlySet<string> = new Set([
  ...['UND_ERR_CONNECT_TIMEOUT', 'UND_ERR_HEADERS_TIMEOUT', 'UND_ERR_BODY_TIMEOUT'],
])
/** For a connection that broke off: most likely one that was kept, and closed by the service at the same moment. */
const BROKEN: ReadonlySet<string> = new Set(['UND_ERR_SOCKET', 'ECONNRESET', 'EPIPE'])
/** Nothing happens to a service that gets these twice (RFC 9110, 9.2.1). */
const REPEATABLE: ReadonlySet<string> = new Set(['GET', 'HEAD', 'OPTIONS'])
/** And for requests that cannot be written in HTTP/1.1. */
const UNWRITABLE: ReadonlySet<string> = new Set(['UND_ERR_INVALID_ARG', 'UND_ERR_REQ_CONTENT_LENGTH_MISMATCH'])

/** The connections to one service, kept alive; as many as there are requests in flight. */
export function openPool(upstream: URL, { upstreamTimeoutMs }: UpstreamTimeouts): Pool {
  return new Pool(upstream.origin, {
    headersTimeout: upstreamTimeoutMs,
    bodyTimeout: upstreamTimeoutMs,
    connect: { timeout: Math.min(upstreamTimeoutMs, CONNECT_MS_MAX) },
  })
}

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
  onFailure(kind: 'unreachable' | 'slow' | 'invalid', error: Error): void
}

export function passOn(pool: Pool, upstream: URL, passage: Passage): void {
  const { request, path, headers, onUpgrade } = passage
  const method = (request.method ?? 'GET') as Dispatcher.HttpMethod
  const body = hasBody(request) ? request : null
  const upgrade = onUpgrade === undefined ? null : 'websocket'
  const options = { path, method, headers, body, upgrade, ...serverName(upstream) }
  const dispatch = () => void pool.dispatch(options, answer)
  const answer = new Answer(passage, body === null && REPEATABLE.has(method) ? dispatch : undefined)
  dispatch()
}

/** Certificates are checked for the host of the URL, whatever the client calls the service. */
function serverName({ protocol, hostname }: URL): { readonly servername?: string } {
  return protocol === 'https:' ? { servername: hostname } : {}
}

export function hasBody(request: GatewayRequest): boolean {
  if (request.stream !== undefined) return !request.stream.endAfterHeaders
  const { 'content-length': length, 'transfer-encoding': coding } = request.headers
  return coding !== undefined || (length !== undefined && length !== '0')
}

/** Writes an answer as it comes. */
class Answer implements Dispatcher.DispatchHandler {
  readonly #passage: Passage
  readonly #response: GatewayResponse
  /** Sends the request again, which is done once. */
  #again: (() => void) | undefined

  constructor(passage: Passage, again: (() => void) | undefined) {
    this.#passage = passage
    this.#response = passage.response
    this.#again = again
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    const abort = () => controller.abort(new Error('the client has left'))
    if (hasLeft(this.#response)) abort()
    else this.#response.once('close', abort) // does nothing once the answer is complete
  }

  onResponseStart(
    controller: Dispatcher.DispatchController,
    status: number,
    _headers: unknown,
    statusMessage?: string,
  ): void {
    if (status < 200) return // meant for this connection, or a hint that can be done without
    const { request, ours } = this.#passage
    const list = withOurs(headersForClient(controller.rawHeaders as Buffer[]), ours)
    writeHead(request, this.#response, status, statusMessage, list)
    this.#response.on('drain', () => controller.resume())
  }

  onRequestUpgrade(
    controller: Dispatcher.DispatchController,
    _status: number,
    _headers: unknown,
    behind: Duplex,
  ): void {
    const list = withOurs(headersForClient(controller.rawHeaders as Buffer[]), this.#passage.ours)
    this.#passage.onUpgrade?.(list, behind as Socket) // the connection itself
  }

  onResponseData(controller: Dispatcher.DispatchController, chunk: Buffer): void {
    if (!this.#response.write(chunk)) controller.pause()
  }

  onResponseEnd(_controller: Dispatcher.DispatchController, trailers: NodeJS.Dict<string | string[]>): void {
    if (Object.keys(trailers).length > 0) this.#response.addTrailers(trailers as Record<string, string>)
    this.#response.end()
  }

  /** Without a controller when the request could not even be written. */
  onResponseError(_controller: Dispatcher.DispatchController | undefined, error: Error): void {
    const again = this.#again
    this.#again = undefined
    const { code = '' } = error as NodeJS.ErrnoException
    if (again !== undefined && BROKEN.has(code) && !this.#response.headersSent && !hasLeft(this.#response)) again()
    else tellFailure(this.#passage, code, error)
  }
}

function tellFailure({ request, response, onFailure }: Passage, code: string, error: Error): void {
  if (hasLeft(response)) return // the client has left
  const kind = SLOW.has(code) ? 'slow' : UNWRITABLE.has(code) ? 'invalid' : 'unreachable'
  onFailure(kind, error)
  sendProblem(request, response, PROBLEM_OF[kind])
}

const PROBLEM_OF = {
  unreachable: problem('UPSTREAM_UNREACHABLE', 'The service behind the gateway cannot be reached.'),
  slow: problem('UPSTREAM_SLOW', 'The service behind the gateway did not answer in time.'),
  invalid: problem('REQUEST_INVALID', 'The request cannot be passed on: its path, a header or its length is wrong.'),
}

/** A service may have limits of its own: lists are joined, and of the numbers the scarcer stay. */
function withOurs(list: string[], ours: Readonly<HeaderRecord>): string[] {
  const joined = joinedHeaders(ours, true, (name) => headerLines(list, name.toLowerCase()).join(', ') || undefined)
  const result = joined === ours ? list : withoutHeaders(list, Object.keys(joined))
  for (const name in joined) result.push(name, joined[name] ?? '')
  return result
}

function withoutHeaders(list: readonly string[], names: readonly string[]): string[] {
  const gone = new Set(names.map((name) => name.toLowerCase()))
  return list.filter((_, at) => !gone.has((list[at - (at % 2)] ?? '').toLowerCase()))
}
