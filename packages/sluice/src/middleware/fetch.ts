// Rate limiting for handlers from Request to Response, as Deno, Bun, Hono, Workers and service frameworks have them:
// `export default { fetch: rateLimit({ limit: 100, window: '1m', ip })(handler) }`.

import { optionInvalid } from '../errors.ts'
import { withEnd, withHeaders } from '../http/response.ts'
import { type HttpRequest, holdsPermit, type Verdict } from '../http/verdict.ts'
import { createGate } from './gate.ts'
import type { RateLimitOptions } from './options.ts'

/** `Rest` is whatever the runtime hands over beside the request: Deno's connection info, a Worker's env and context. */
export type FetchHandler<Rest extends readonly unknown[]> = (
  request: Request,
  ...rest: Rest
) => Response | Promise<Response>

export type FetchOptions = RateLimitOptions<Request> & {
  /**
   * The address of the peer, by default what Deno tells. Where the platform puts it in a header, read it from there. It
   * gets what the runtime passes beside the request too: write their types down, `(request, env: Env) => …`.
   */
  readonly ip?: ((request: Request, ...rest: never[]) => string | undefined) | undefined
}

export type Limited = <Rest extends readonly unknown[]>(
  handler: FetchHandler<Rest>,
) => (request: Request, ...rest: Rest) => Promise<Response>

export function rateLimit({ ip = denoAddress, ...options }: FetchOptions): Limited {
  if (typeof ip !== 'function') throw optionInvalid('ip', ip, 'must be a function')
  const gate = createGate<Request>(options)
  return (handler) =>
    async (request, ...rest) => {
      // Only the author of `ip` knows what the runtime passes, and has said so in its types.
      const peer = ip(request, ...(rest as readonly unknown[] as never[]))
      const verdict = await gate(request, httpRequest(request, peer))
      if (verdict === undefined) return handler(request, ...rest)
      if (!verdict.allowed) return refusal(verdict)
      return answered(verdict, () => handler(request, ...rest))
    }
}

function denoAddress(_request: Request, info?: { readonly remoteAddr?: { readonly hostname?: string } }) {
  return info?.remoteAddr?.hostname
}

function httpRequest({ method, url, headers }: Request, peer: string | undefined): HttpRequest {
  return { method, url, peer, header: (name) => headers.get(name) ?? undefined }
}

function refusal({ status, headers, body }: Verdict): Response {
  return new Response(JSON.stringify(body), { status, headers })
}

async function answered(verdict: Verdict, handle: () => Response | Promise<Response>): Promise<Response> {
  try {
    const response = withHeaders(await handle(), verdict.headers)
    return holdsPermit(verdict.decision) ? withEnd(response, verdict.done) : response
  } catch (error) {
    verdict.done()
    throw error
  }
}
