// Rate limiting for handlers from Request to Response, as Deno, Bun, Workers and service frameworks have them:
// `export default { fetch: rateLimit({ limit: 100, window: '1m', ip })(handler) }`.

import { answered, createFetchGate, type PeerOption, refusal } from './fetch-gate.ts'
import { type RateLimitOptions, requireHandler, requireOptions } from './options.ts'

/** `Rest` is whatever the runtime hands over beside the request: Deno's connection info, a Worker's env and context. */
export type FetchHandler<Rest extends readonly unknown[]> = (
  request: Request,
  ...rest: Rest
) => Response | Promise<Response>

/** `ip` gets what the runtime passes beside the request too: write their types down, `(request, env: Env) => …`. */
export type FetchOptions = RateLimitOptions<Request> & PeerOption<Request>

export type Limited = <Rest extends readonly unknown[]>(
  handler: FetchHandler<Rest>,
) => (request: Request, ...rest: Rest) => Promise<Response>

const CALL = 'fetch: rateLimit({ limit, window })(handler)'

export function rateLimit(options: FetchOptions): Limited {
  requireOptions(options, CALL)
  const gate = createFetchGate(options)
  return (handler) => {
    requireHandler('handler', handler, CALL)
    return async (request, ...rest) => {
      const verdict = await gate(request, request, rest)
      if (verdict === undefined) return handler(request, ...rest)
      return verdict.allowed ? answered(verdict, request, () => handler(request, ...rest)) : refusal(verdict)
    }
  }
}
