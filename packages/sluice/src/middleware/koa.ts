// Rate limiting for Koa: `app.use(rateLimit({ limit: 100, window: '1m' }))`. The decision is in `ctx.state.rateLimit`.

// biome-ignore lint/suspicious/noTsIgnore: an error only where the types of Koa are not installed
/** @ts-ignore */
import type { ParameterizedContext } from 'koa'
import type { Decision } from '../decision.ts'
import { joinedHeaders } from '../http/headers.ts'
import { koaTrustsProxies } from './app-proxy.ts'
import { type IfInstalled, type NodeRequest, type NodeResponse, nodeHttpRequest, settleAtEnd } from './node-check.ts'
import type { RateLimitOptions } from './options.ts'
import { createRequestCheck } from './request-check.ts'

/** Declares nothing of the state: one that the application declares would have to declare `rateLimit`, too. */
type AnyStateContext = {
  readonly app?: { readonly proxy?: unknown } | undefined
  readonly req: NodeRequest
  readonly res: NodeResponse
  readonly state: object
  status: number
  body: unknown
  set(name: string, value: string): void
}

export type KoaContext = AnyStateContext & {
  /** Set by the middleware. */
  readonly state: { rateLimit?: Decision }
}

/** Declares only what it needs of the context: middlewares after it keep their types, and get the decision. */
export type KoaMiddleware = (ctx: KoaContext, next: () => Promise<unknown>) => Promise<unknown>

/** The context that functions of the options get. */
export type DefaultContext = IfInstalled<ParameterizedContext, KoaContext>

export function rateLimit<Ctx extends AnyStateContext = DefaultContext>(options: RateLimitOptions<Ctx>): KoaMiddleware {
  const check = createRequestCheck(options, koaTrustsProxies)
  return async function rateLimit(ctx, next) {
    const { req, res } = ctx
    const result = await check(ctx as AnyStateContext as Ctx, nodeHttpRequest(req), req) // it has the declared type
    if (result === undefined) return next()
    ctx.state.rateLimit = result.decision
    settleAtEnd(result, req, res)
    const headers = joinedHeaders(result.headers, result.allowed, (name) => res.getHeader(name)?.toString())
    for (const name in headers) ctx.set(name, headers[name] ?? '')
    if (result.allowed) return next().catch((error: unknown) => rethrow(error, res))
    ctx.status = result.status
    ctx.body = result.body
    return undefined
  }
}

/** Koa replies to an error with only the headers of the error. One error object may be thrown for several requests. */
function rethrow(error: unknown, res: NodeResponse): never {
  if (error instanceof Error) {
    const headers = RATE_LIMIT_HEADERS.map((name) => [name, res.getHeader(name)]).filter(
      ([, value]) => value !== undefined,
    )
    Object.assign(error, { headers: { ...(error as { headers?: object }).headers, ...Object.fromEntries(headers) } })
  }
  throw error
}

const RATE_LIMIT_HEADERS = ['X-RateLimit', 'RateLimit'].flatMap((family) =>
  ['-Limit', '-Remaining', '-Reset', '-Policy', ''].map((suffix) => family + suffix),
)
