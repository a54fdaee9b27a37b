// What the middlewares of handlers from Request to Response share: who the peer is, and what becomes of a response.

import { optionInvalid } from '../errors.ts'
import { joinedHeaders } from '../http/headers.ts'
import { withEnd, withHeaders } from '../http/response.ts'
import type { Verdict } from '../http/verdict.ts'
import type { Maybe } from '../maybe.ts'
import { checkedAddress } from './facts.ts'
import { createGate } from './gate.ts'
import { type RateLimitOptions, requireOptions } from './options.ts'

export type PeerOption<Req> = {
  /**
   * The address of the peer, by default what Deno, Bun or a server on node:http tell. Where the platform puts it in a
   * header, read it from there.
   */
  readonly ip?: ((request: Req, ...rest: never[]) => string | null | undefined) | undefined
}

/** `rest` is what the runtime passed beside the request. */
export type FetchGate<Req> = (request: Req, raw: Request, rest: readonly unknown[]) => Maybe<Verdict | undefined>

export function createFetchGate<Req>(given: RateLimitOptions<Req> & PeerOption<Req>): FetchGate<Req> {
  requireOptions(given)
  const { ip, ...options } = given
  if (ip !== undefined && typeof ip !== 'function') throw optionInvalid('ip', ip, 'must be a function')
  // Whoever says where the address comes from has thought of proxies.
  const gate = createGate(ip === undefined ? options : { trustProxy: [], ...options })
  return (request, raw, rest) => {
    // Only the author of `ip` knows what the runtime passes, and has said so in its types.
    const peer = ip === undefined ? peerTold(raw, rest[0]) : checkedAddress('ip', ip(request, ...(rest as never[])))
    const { method, url, headers } = raw
    return gate(request, { method, url, peer, header: (name) => headers.get(name) ?? undefined }, raw)
  }
}

type Told = {
  /** Deno. */
  readonly remoteAddr?: { readonly hostname?: string }
  /** Bun. */
  readonly requestIP?: (request: Request) => { readonly address: string } | null
  /** @hono/node-server, and others that hand on the request of node:http. */
  readonly incoming?: { readonly socket?: { readonly remoteAddress?: string } }
}

function peerTold(request: Request, told: unknown): string | undefined {
  const { remoteAddr, incoming, requestIP } = (told ?? {}) as Told
  if (typeof requestIP === 'function') return (told as Required<Told>).requestIP(request)?.address
  return remoteAddr?.hostname ?? incoming?.socket?.remoteAddress
}

export function refusal({ status, headers, body = '' }: Verdict): Response {
  return new Response(body, { status, headers })
}

/** The response of a handler, with the headers of the verdict, which is settled when the response has ended. */
export async function answered(
  verdict: Verdict,
  request: Request,
  handle: () => Response | Promise<Response>,
): Promise<Response> {
  // Servers make it on demand, and raise it from then on: it is asked for in time, and only where something is held.
  const signal = verdict.settles ? request.signal : undefined
  try {
    const response = await handle()
    const headers = joinedHeaders(verdict.headers, true, (name) => response.headers.get(name) ?? undefined)
    const told = withHeaders(response, headers)
    if (signal === undefined) return told
    const done = () => verdict.done(response.status)
    signal.addEventListener('abort', done, { once: true })
    if (!signal.aborted && request.method !== 'HEAD') return withEnd(told, done)
    done() // nobody reads the body of an answer to HEAD, or to a client that has left, or says so
    return told
  } catch (error) {
    verdict.done(500)
    throw error
  }
}
