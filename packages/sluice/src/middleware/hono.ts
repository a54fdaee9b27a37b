// Rate limiting for Hono: `app.use(rateLimit({ limit: 100, window: '1m' }))`. The decision is `c.get('rateLimit')`.

import type { Context, Env, MiddlewareHandler } from 'hono'
import type { Decision } from '../decision.ts'
import { createFetchCheck, handled, type PeerOption, refusal } from './fetch-check.ts'
import type { RateLimitOptions } from './options.ts'

declare module 'hono' {
  interface ContextVariableMap {
    /** Set by `rateLimit` of `sluice/hono`; undefined if the request was skipped. */
    rateLimit?: Decision
  }
}

/** Variables have the types that the application declares in Hono's ContextVariableMap. Others and bindings are any. */
export type DefaultEnv = { Bindings: Context['env']; Variables: Context['var'] }

export type HonoOptions<E extends Env = DefaultEnv> = RateLimitOptions<Context<E>> & PeerOption<Context<E>>

/** `E`: bindings and variables of the application, `rateLimit<AppEnv>(…)`: TypeScript cannot infer them from `app`. */
export function rateLimit<E extends Env = DefaultEnv>(options: HonoOptions<E>): MiddlewareHandler {
  const check = createFetchCheck(options)
  return async function rateLimit(context, next) {
    const result = await check(context, context.req.raw, [context.env])
    if (result === undefined) {
      await next()
      return undefined
    }
    context.set('rateLimit', result.decision)
    if (!result.allowed) return refusal(result)
    // Handler errors do not get here: Hono turns them into responses.
    const response = await handled(result, context.req.raw, async () => {
      await next()
      return context.res
    })
    context.res = undefined // otherwise Hono copies the old headers over the new ones
    context.res = response
    return undefined
  }
}
