// What the gateway itself says to a client, over HTTP/1.1 and HTTP/2: a refusal, or a problem.

import type { ServerResponse } from 'node:http'
import type { ServerHttp2Stream } from 'node:http2'
import { type HeaderRecord, PROBLEM_TYPE } from 'sluice/http'
import type { Problem } from '../http/problem.ts'
import type { GatewayRequest } from './request-head.ts'

export type GatewayResponse = ServerResponse & { readonly stream?: ServerHttp2Stream }

/** A body of more than this is not waited for once the answer is known. */
const UNREAD_BYTES_MAX = 64 * 1024

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
  if (response.headersSent || hasLeft(response)) return void response.destroy()
  for (const name in headers) response.setHeader(name, headers[name] ?? '')
  response.setHeader('Content-Length', Buffer.byteLength(text))
  if (hasLongBody(request)) response.shouldKeepAlive = false
  response.statusCode = status
  if (request.method === 'HEAD') response.end()
  else response.end(text)
}

/** Repeated headers stay apart. */
export function writeHead(
  request: GatewayRequest,
  response: GatewayResponse,
  status: number,
  statusMessage: string | undefined,
  list: string[],
): void {
  if (response.stream !== undefined) {
    for (let at = 0; at < list.length; at += 2) response.appendHeader(list[at] ?? '', list[at + 1] ?? '')
    response.writeHead(status)
    return
  }
  // Answered before all of it was read: what is left of the request must not be taken for the next one.
  if (!request.complete) response.shouldKeepAlive = false
  response.writeHead(status, statusMessage ?? '', list)
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
