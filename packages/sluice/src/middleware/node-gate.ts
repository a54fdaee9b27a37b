// What the middlewares on node:http share: how its requests are read, and when its responses have ended.

import { joinedHeaders } from '../http/headers.ts'
import type { HttpRequest, Verdict } from '../http/verdict.ts'
import { andThen, type Maybe } from '../maybe.ts'
import { createGate } from './gate.ts'
import type { RateLimitOptions } from './options.ts'

export type NodeRequest = {
  readonly method?: string | undefined
  readonly url?: string | undefined
  /** The target before routers cut their mount path off `url`. */
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
  /** Null while the response waits for its turn behind another one. */
  readonly socket: unknown
  /** Of HTTP/2, whose responses do not say themselves whether they are destroyed. */
  readonly stream?: { readonly destroyed: boolean } | undefined
  getHeader(name: string): number | string | string[] | undefined
  setHeader(name: string, value: string): unknown
  end(body: string): unknown
  once(event: 'close', listener: () => void): unknown
}

/** Judges a request and writes the verdict to the response. Undefined: go on. Not allowed: the response has ended. */
export type NodeGate<Req> = (request: Req, raw: NodeRequest, res: NodeResponse) => Maybe<Verdict | undefined>

export function createNodeGate<Req>(
  options: RateLimitOptions<Req>,
  appTrusts?: (request: Req) => boolean,
): NodeGate<Req> {
  const gate = createGate(options, appTrusts)
  return (request, raw, res) =>
    andThen(gate(request, nodeHttpRequest(raw), raw), (verdict) => {
      if (verdict !== undefined) writeVerdict(verdict, raw, res)
      return verdict
    })
}

function writeVerdict(verdict: Verdict, raw: NodeRequest, res: NodeResponse): void {
  settleAtEnd(verdict, raw, res)
  if (res.headersSent) return // somebody has answered while the check was under way
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
export function settleAtEnd(verdict: Verdict, { socket }: NodeRequest, res: NodeResponse): void {
  if (!verdict.settles) return
  // A client that left while the check was under way has had its `close` already.
  if (res.destroyed || res.stream?.destroyed) return void verdict.done()
  const settle = () => {
    socket.off('close', settle)
    verdict.done(res.statusCode)
  }
  res.once('close', settle)
  // With the connection, Node ends the response whose turn it is, and none that waits behind it.
  if (res.socket === null) socket.once('close', settle)
}
