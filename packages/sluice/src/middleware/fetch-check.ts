// Shared by the fetch and Hono middlewares: finds the address of the peer, and adds headers to the response.

import { optionInvalid } from '../errors.ts'
import type { DecisionResponse } from '../http/decision-response.ts'
import { joinedHeaders } from '../http/headers.ts'
import { withEnd, withHeaders } from '../http/response.ts'
import type { MaybePromise } from '../maybe-promise.ts'
import { checkedAddress } from './facts.ts'
import { type RateLimitOptions, requireOptions } from './options.ts'
import { createRequestCheck } from './request-check.ts'

export type PeerOption<Req> = {
  /**
   * Returns the address of the peer. Default: as reported by Deno, Bun or a node:http server. On platforms that pass it
   * in a header, read it from there.
   */
  readonly ip?: ((request: Req, ...rest: never[]) => string | null | undefined) | undefined
}

/** `rest` are the arguments that the runtime passed after the request. */
export type FetchCheck<Req> = (
  request: Req,
  raw: Request,
  rest: readonly unknown[],
) => MaybePromise<DecisionResponse | undefined>

export function createFetchCheck<Req>(given: RateLimitOptions<Req> & PeerOption<Req>): FetchCheck<Req> {
  requireOptions(given)
  const { ip, ...options } = given
  if (ip !== undefined && typeof ip !== 'function') throw optionInvalid('ip', ip, 'must be a function')
  // A custom `ip` accounts for proxies, so there is no warning about them.
  const check = createRequestCheck(ip === undefined ? options : { trustProxy: [], ...options })
  return (request, raw, rest) => {
    // The parameter types of `ip` declare what the runtime passes.
    const peer =
      ip === undefined ? peerFromRuntime(raw, rest[0]) : checkedAddress('ip', ip(request, ...(rest as never[])))
    const { method, url, headers } = raw
    return check(request, { method, url, peer, header: (name) => headers.get(name) ?? undefined }, raw)
  }
}

type RuntimeInfo = {
  /** Deno. */
  readonly remoteAddr?: { readonly hostname?: string }
  /** Bun. */
  readonly requestIP?: (request: Request) => { readonly address: string } | null
  /** @hono/node-server, and others that pass on the request of node:http. */
  readonly incoming?: { readonly socket?: { readonly remoteAddress?: string } }
}

function peerFromRuntime(request: Request, info: unknown): string | undefined {
  const { remoteAddr, incoming, requestIP } = (info ?? {}) as RuntimeInfo
  if (typeof requestIP === 'function') return (info as Required<RuntimeInfo>).requestIP(request)?.address
  return remoteAddr?.hostname ?? incoming?.socket?.remoteAddress
}

export function refusal({ status, headers, body = '' }: DecisionResponse): Response {
  return new Response(body, { status, headers })
}

/** Runs a handler, adds the headers to its response, and calls `done` when the response has ended. */
export async function handled(
  result: DecisionResponse,
  request: Request,
  handle: () => Response | Promise<Response>,
): Promise<Response> {
  // Read before the handler runs: servers create the signal on first access and abort it only from then on.
  const signal = result.settles ? request.signal : undefined
  try {
    const response = await handle()
    const headers = joinedHeaders(result.headers, true, (name) => response.headers.get(name) ?? undefined)
    const limited = withHeaders(response, headers)
    if (signal === undefined) return limited
    const done = () => result.done(response.status)
    signal.addEventListener('abort', done, { once: true })
    if (!signal.aborted && request.method !== 'HEAD') return withEnd(limited, done)
    done() // the body is never read: the request is a HEAD, or the client has disconnected
    return limited
  } catch (error) {
    result.done(500)
    throw error
  }
}
