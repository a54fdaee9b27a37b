// Shared by the middlewares on node:http: reads the request, writes the response, and detects its end.

import type { DecisionResponse } from '../http/decision-response.ts'
import { joinedHeaders } from '../http/headers.ts'
import type { HttpRequest } from '../http/request.ts'
import { andThen, type MaybePromise } from '../maybe-promise.ts'
import type { RateLimitOptions } from './options.ts'
import { createRequestCheck } from './request-check.ts'

export type NodeRequest = {
  readonly method?: string | undefined
  readonly url?: string | undefined
  /** The target before routers remove their mount path from `url`. */
  readonly originalUrl?: string | undefined
  readonly headers: Readonly<Record<string, string | string[] | undefined>>
  readonly socket: {
    readonly remoteAddress?: string | undefined
    once(event: 'close', listener: () => void): unknown
    off(event: 'close', listener: () => void): unknown
  }
}

export type NodeResponse = {
  statusCode: number
  readonly destroyed: boolean
  readonly headersSent: boolean
  /** Null while the response is queued behind another (pipelining). */
  readonly socket: unknown
  /** HTTP/2 only: its responses do not report whether they are destroyed. */
  readonly stream?: { readonly destroyed: boolean } | undefined
  getHeader(name: string): number | string | string[] | undefined
  setHeader(name: string, value: string): unknown
  end(body: string): unknown
  once(event: 'close', listener: () => void): unknown
}

/** `T` is a type of a framework: `any` where its types are not installed, and then `Otherwise` is used. */
export type IfInstalled<T, Otherwise> = [unknown] extends [T] ? Otherwise : T

/** Checks a request and writes the result. Undefined: skipped. If it is not allowed, the response has ended. */
export type NodeCheck<Req> = (
  request: Req,
  raw: NodeRequest,
  res: NodeResponse,
) => MaybePromise<DecisionResponse | undefined>

export function createNodeCheck<Req>(
  options: RateLimitOptions<Req>,
  appTrustsProxies?: (request: Req) => boolean,
): NodeCheck<Req> {
  const check = createRequestCheck(options, appTrustsProxies)
  return (request, raw, res) =>
    andThen(check(request, nodeHttpRequest(raw), raw), (result) => {
      if (result !== undefined) writeResult(result, raw, res)
      return result
    })
}

function writeResult(result: DecisionResponse, raw: NodeRequest, res: NodeResponse): void {
  settleAtEnd(result, raw, res)
  if (res.headersSent) return // the application replied while the check was in flight
  const headers = joinedHeaders(result.headers, result.allowed, (name) => res.getHeader(name)?.toString())
  for (const name in headers) res.setHeader(name, headers[name] ?? '')
  if (result.body === undefined) return
  res.statusCode = result.status
  res.end(result.body)
}

export function nodeHttpRequest({ method = 'GET', originalUrl, url = '/', socket, headers }: NodeRequest): HttpRequest {
  const header = (name: string): string | undefined => headers[name]?.toString()
  return { method, url: originalUrl ?? url, peer: socket.remoteAddress, header }
}

/** Calls `done` on `close`, which follows the last byte or a disconnect of the client. */
export function settleAtEnd(result: DecisionResponse, { socket }: NodeRequest, res: NodeResponse): void {
  if (!result.settles) return
  // The client disconnected while the check was in flight: `close` was already emitted.
  if (res.destroyed || res.stream?.destroyed) return void result.done()
  const settle = () => {
    socket.off('close', settle)
    result.done(res.statusCode)
  }
  res.once('close', settle)
  // When a connection closes, Node.js closes only its current response, not the queued ones.
  if (res.socket === null) socket.once('close', settle)
}
