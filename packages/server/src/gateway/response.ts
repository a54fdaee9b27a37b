// What the gateway itself says to a client, over HTTP/1.1 and HTTP/2: a refusal, or a problem.

import { type ServerResponse, STATUS_CODES } from 'node:http'
import { constants, type ServerHttp2Stream } from 'node:http2'
import { type HeaderRecord, PROBLEM_TYPE } from 'sluice/http'
import type { Problem } from '../problems/problem.ts'
import type { GatewayRequest } from './request-head.ts'

export type GatewayResponse = ServerResponse & { readonly stream?: ServerHttp2Stream }

/** How much of a request is read, and for how long, once its answer has ended. */
const UNREAD_BYTES_MAX = 1024 * 1024
const UNREAD_MS_MAX = 2000
/** The same for a connection of HTTP/1.1, which is lost then. */
const LATE_MS_MAX = 5000
const SENT_CHECK_MS = 50

/** What Node can write; undici has taken other letters for those of UTF-8. */
const REASON = /^[\t\x20-\x7e]*$/

export function sendProblem(request: GatewayRequest, response: GatewayResponse, problem: Problem): void {
  send(request, response, problem.status, { 'Content-Type': PROBLEM_TYPE }, JSON.stringify(problem))
}

export function send(
  request: GatewayRequest,
  response: GatewayResponse,
  status: number,
  headers: Readonly<HeaderRecord>,
  text: string,
): void {
  if (response.headersSent || hasLeft(response)) return void breakOff(response)
  clear(response)
  for (const name in headers) response.setHeader(name, headers[name] ?? '')
  response.setHeader('Content-Length', Buffer.byteLength(text))
  if (hasLongBody(request)) response.shouldKeepAlive = false
  response.statusCode = status
  if (request.method !== 'HEAD') response.write(text)
  end(request, response)
}

/** What was begun of an answer that could not be written would spoil this one too. */
function clear(response: GatewayResponse): void {
  for (const name of response.getHeaderNames()) response.removeHeader(name)
  if (response.stream === undefined) response.statusMessage = ''
}

/** In HTTP/2, a stream that ends without an error would look like a whole answer. */
function breakOff(response: GatewayResponse): void {
  if (response.stream === undefined) response.destroy()
  else response.stream.close(constants.NGHTTP2_INTERNAL_ERROR)
}

/** Repeated headers stay apart, where they can. */
export function writeHead(
  request: GatewayRequest,
  response: GatewayResponse,
  status: number,
  statusMessage: string | undefined,
  list: string[],
): void {
  if (response.stream !== undefined) {
    for (let at = 0; at < list.length; at += 2) addHeader(response, list[at] ?? '', list[at + 1] ?? '')
    response.writeHead(status)
    return
  }
  // Answered before all of it was read: what is left of the request must not be taken for the next one.
  if (!request.complete) response.shouldKeepAlive = false
  const reason = statusMessage !== undefined && REASON.test(statusMessage) ? statusMessage : STATUS_CODES[status]
  response.writeHead(status, reason ?? '', list)
}

/** Node's HTTP/2 refuses to repeat many headers, and services do: joined they mean the same. */
function addHeader(response: GatewayResponse, name: string, value: string): void {
  const before = response.getHeader(name)
  if (before === undefined) response.setHeader(name, value)
  else if (name === 'set-cookie') response.appendHeader(name, value)
  else response.setHeader(name, `${before}, ${value}`)
}

/** Ends an answer. */
export function end(request: GatewayRequest, response: GatewayResponse): void {
  response.end()
  const { stream } = response
  if (request.complete) return
  if (stream === undefined) closeIfLate(request)
  else if (!stream.endAfterHeaders) discardUpload(stream)
}

/** Node reads the rest of a request in HTTP/1.1, without a time limit of its own. */
function closeIfLate(request: GatewayRequest): void {
  const { socket } = request
  const timer = setTimeout(() => void (request.complete || socket.destroy()), LATE_MS_MAX)
  for (const event of ['end', 'close']) request.once(event, () => clearTimeout(timer))
}

/** Many clients of HTTP/2 read no answer before they have sent their request: the rest of a short one is read. */
function discardUpload(stream: ServerHttp2Stream): void {
  let unreadBytes = 0
  const timer = setTimeout(stopUpload, UNREAD_MS_MAX, stream)
  stream.once('close', () => clearTimeout(timer))
  stream.on('data', (chunk: Buffer) => {
    unreadBytes += chunk.length
    if (unreadBytes <= UNREAD_BYTES_MAX) stream.resume()
    else stopUpload(stream.pause())
  })
  stream.resume()
}

/**
 * Tells a client that it need not go on sending (RFC 9113, 8.1). A stream that is reset before END_STREAM gets neither
 * that nor trailers, and strict clients drop the answer. Node has no event for it: END_STREAM waits for trailers and
 * for the flow-control window of the client.
 */
function stopUpload(stream: ServerHttp2Stream): void {
  if (stream.destroyed || stream.closed) return
  if (stream.state.localClose === 1) stream.close(constants.NGHTTP2_NO_ERROR)
  else setTimeout(stopUpload, SENT_CHECK_MS, stream)
}

/** Whether nobody waits for the answer any more. */
export function hasLeft({ destroyed, stream }: GatewayResponse): boolean {
  return destroyed || stream?.destroyed === true
}

/** Whether so much is still to come that it is better to close than to read it all. */
function hasLongBody({ headers, destroyed, complete }: GatewayRequest): boolean {
  if (complete) return false
  return destroyed || headers['transfer-encoding'] !== undefined || Number(headers['content-length']) > UNREAD_BYTES_MAX
}
