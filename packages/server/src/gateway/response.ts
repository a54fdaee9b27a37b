// Writes responses to clients over HTTP/1.1 and HTTP/2: the gateway's own responses, and response heads of the
// upstream.

import { type ServerResponse, STATUS_CODES } from 'node:http'
import { constants, type ServerHttp2Stream } from 'node:http2'
import { type HeaderRecord, PROBLEM_TYPE } from 'sluice/http'
import type { Problem } from '../problems/problem.ts'
import type { GatewayRequest } from './request-head.ts'

export type GatewayResponse = ServerResponse & { readonly stream?: ServerHttp2Stream }

/** Limits on reading the rest of an HTTP/2 request after its response has ended. */
const UNREAD_BYTES_MAX = 1024 * 1024
const UNREAD_MS_MAX = 2000
/** The same for HTTP/1.1, where the connection is closed afterwards. */
const LATE_MS_MAX = 5000
const SENT_CHECK_MS = 50

/** Reason phrases that Node.js can write. undici decodes them as UTF-8, so others may occur. */
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
  if (response.headersSent || isDisconnected(response)) return void abort(response)
  clear(response)
  for (const name in headers) response.setHeader(name, headers[name] ?? '')
  response.setHeader('Content-Length', Buffer.byteLength(text))
  if (hasLongBody(request)) response.shouldKeepAlive = false
  response.statusCode = status
  if (request.method !== 'HEAD') response.write(text)
  end(request, response)
}

/** Removes the headers of an upstream response whose head could not be written. */
function clear(response: GatewayResponse): void {
  for (const name of response.getHeaderNames()) response.removeHeader(name)
  if (response.stream === undefined) response.statusMessage = ''
}

/** An HTTP/2 stream must end with an error, or the truncated response would look complete. */
function abort(response: GatewayResponse): void {
  if (response.stream === undefined) response.destroy()
  else response.stream.close(constants.NGHTTP2_INTERNAL_ERROR)
}

/** Preserves repeated headers where possible. */
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
  // The rest of an unread request must not be parsed as the next one.
  if (!request.complete) response.shouldKeepAlive = false
  const reason = statusMessage !== undefined && REASON.test(statusMessage) ? statusMessage : STATUS_CODES[status]
  response.writeHead(status, reason ?? '', list)
}

/** Joins repeated headers, because Node's HTTP/2 rejects repeating many of them; the meaning is the same. */
function addHeader(response: GatewayResponse, name: string, value: string): void {
  const before = response.getHeader(name)
  if (before === undefined) response.setHeader(name, value)
  else if (name === 'set-cookie') response.appendHeader(name, value)
  else response.setHeader(name, `${before}, ${value}`)
}

/** Ends a response, and limits reading the rest of its request. */
export function end(request: GatewayRequest, response: GatewayResponse): void {
  response.end()
  const { stream } = response
  if (request.complete) return
  if (stream === undefined) closeIfLate(request)
  else if (!stream.endAfterHeaders) discardUpload(stream)
}

/** Limits the time for the rest of an HTTP/1.1 request, which Node.js would read without a timeout. */
function closeIfLate(request: GatewayRequest): void {
  const { socket } = request
  const timer = setTimeout(() => void (request.complete || socket.destroy()), LATE_MS_MAX)
  for (const event of ['end', 'close']) request.once(event, () => clearTimeout(timer))
}

/** Reads a short rest of the request, because many HTTP/2 clients read no response until they have sent it all. */
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
 * Asks the client to stop sending (RFC 9113, 8.1), but only after END_STREAM: strict clients drop the response of a
 * stream that is reset earlier. Polls, because Node.js has no event for END_STREAM, which waits for trailers and for
 * the flow-control window of the client.
 */
function stopUpload(stream: ServerHttp2Stream): void {
  if (stream.destroyed || stream.closed) return
  if (stream.state.localClose === 1) stream.close(constants.NGHTTP2_NO_ERROR)
  else setTimeout(stopUpload, SENT_CHECK_MS, stream)
}

/** Whether the client has disconnected. */
export function isDisconnected({ destroyed, stream }: GatewayResponse): boolean {
  return destroyed || stream?.destroyed === true
}

/** Whether closing the connection is cheaper than reading the rest of the body. */
function hasLongBody({ headers, destroyed, complete }: GatewayRequest): boolean {
  if (complete) return false
  return destroyed || headers['transfer-encoding'] !== undefined || Number(headers['content-length']) > UNREAD_BYTES_MAX
}
