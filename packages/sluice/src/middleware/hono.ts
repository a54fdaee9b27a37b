// Rate limiting for Hono: `app.use(rateLimit({ limit: 100, window: '1m' }))`. The decision is `c.get('rateLimit')`.

import type { Context, MiddlewareHandler } from 'hono'
import type { Decision } from '../decision.ts'
import { answered, createFetchGate, type PeerOption, refusal } from './fetch-gate.ts'
import type { RateLimitOptions } from './options.ts'

declare module 'hono' {
  interface ContextVariableMap {
    /** Set by `rateLimit` of `sluice/hono`; undefined where the request was skipped. */
    rateLimit?: Decision
  }
}

export type HonoOptions = RateLimitOptions<Context> & PeerOption<Context>

export function rateLimit(options: HonoOptions): MiddlewareHandler {
  const gate = createFetchGate(options)
  return async function rateLimit(context, next) {
    const verdict = await gate(context, context.req.raw, [context.env])
    if (verdict === undefined) {
      await next()
      return undefined
    }
    context.set('rateLimit', verdict.decision)
    if (!verdict.allowed) return refusal(verdict)
    // Errors of handlers do not come this far: Hono makes responses of them.
    const response = await answered(verdict, context.req.raw, async () => {
      await next()
      return context.res
    })
    context.res = undefined // or Hono would write the headers of the old one over those of the new one
    context.res = response
    return undefined
  }
}
