// What the middlewares on node:http share: how its requests are read, and when its responses have ended.

import { joinedHeaders } from '../http/headers.ts'
import type { HttpRequest, Verdict } from '../http/verdict.ts'
import { andThen, createGate, type Maybe } from './gate.ts'
import type { RateLimitOptions } from './options.ts'

export type NodeRequest = {
  readonly method?: string | undefined
  readonly url?: string | undefined
  /** The target before routers cut their mount path off `url`. */
  readonly originalUrl?: string | undefined
  readonly headers: Readonly<Record<string, string | string[] | undefined>>
  readonly socket: { readonly remoteAddress?: string | undefined }
}

export type NodeResponse = {
  statusCode: number
  readonly destroyed: boolean
  getHeader(name: string): number | string | string[] | undefined
  setHeader(name: string, value: string): unknown
  end(body: string): unknown
  once(event: 'close', listener: () => void): unknown
}

/** Judges a request and writes the verdict to the response. Undefined: go on. Not allowed: the response has ended. */
export type NodeGate<Req> = (request: Req, raw: NodeRequest, res: NodeResponse) => Maybe<Verdict | undefined>

export function createNodeGate<Req>(options: RateLimitOptions<Req>): NodeGate<Req> {
  const gate = createGate(options)
  return (request, raw, res) =>
    andThen(gate(request, nodeHttpRequest(raw), raw), (verdict) => {
      if (verdict !== undefined) writeVerdict(verdict, res)
      return verdict
    })
}

function writeVerdict(verdict: Verdict, res: NodeResponse): void {
  settleAtEnd(verdict, res)
  const headers = joinedHeaders(verdict.headers, verdict.allowed, (name) => res.getHeader(name)?.toString())
  for (const name in headers) res.setHeader(name, headers[name] ?? '')
  if (verdict.body === undefined) return
  res.statusCode = verdict.status
  res.end(verdict.body)
}

export function nodeHttpRequest({ method = 'GET', originalUrl, url = '/', socket, headers }: NodeRequest): HttpRequest {
  const header = (name: string): string | undefined => headers[name]?.toString()
  return { method, url: originalUrl ?? url, peer: socket.remoteAddress, header }
}

/** `close` comes after the last byte, and when the client goes away. */
export function settleAtEnd(verdict: Verdict, res: NodeResponse): void {
  if (!verdict.settles) return
  // A client that left while the check was under way has had its `close` already.
  if (res.destroyed) verdict.done()
  else res.once('close', () => verdict.done(res.statusCode))
}
