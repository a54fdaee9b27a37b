// Rate limiting for Hono: `app.use(rateLimit({ limit: 100, window: '1m' }))`. The decision is `c.get('rateLimit')`.

import type { Context, MiddlewareHandler } from 'hono'
import type { Decision } from '../decision.ts'
import { createFetchCheck, handled, type PeerOption, refusal } from './fetch-check.ts'
import type { RateLimitOptions } from './options.ts'

declare module 'hono' {
  interface ContextVariableMap {
    /** Set by `rateLimit` of `sluice/hono`; undefined if the request was skipped. */
    rateLimit?: Decision
  }
}

export type HonoOptions = RateLimitOptions<Context> & PeerOption<Context>

export function rateLimit(options: HonoOptions): MiddlewareHandler {
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
