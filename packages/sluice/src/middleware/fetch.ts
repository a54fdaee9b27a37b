// Rate limiting for handlers from Request to Response, as used by Deno, Bun, Workers and many frameworks:
// `export default { fetch: rateLimit({ limit: 100, window: '1m', ip })(handler) }`.

import { createFetchCheck, handled, type PeerOption, refusal } from './fetch-check.ts'
import { type RateLimitOptions, requireHandler, requireOptions } from './options.ts'

/** `Rest` are the arguments after the request: Deno's connection info, a Worker's env and context. */
export type FetchHandler<Rest extends readonly unknown[]> = (
  request: Request,
  ...rest: Rest
) => Response | Promise<Response>

/** `ip` gets the same arguments as the handler; declare their types: `(request, env: Env) => …`. */
export type FetchOptions = RateLimitOptions<Request> & PeerOption<Request>

export type Limited = <Rest extends readonly unknown[]>(
  handler: FetchHandler<Rest>,
) => (request: Request, ...rest: Rest) => Promise<Response>

const CALL = 'fetch: rateLimit({ limit, window })(handler)'

export function rateLimit(options: FetchOptions): Limited {
  requireOptions(options, CALL)
  const check = createFetchCheck(options)
  return (handler) => {
    requireHandler('handler', handler, CALL)
    return async (request, ...rest) => {
      const result = await check(request, request, rest)
      if (result === undefined) return handler(request, ...rest)
      return result.allowed ? handled(result, request, () => handler(request, ...rest)) : refusal(result)
    }
  }
}
