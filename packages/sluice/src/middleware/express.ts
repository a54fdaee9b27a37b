// Rate limiting for Express 4 and 5, and Connect: `app.use(rateLimit({ limit: 100, window: '1m' }))`.
// The client is the peer of the socket unless `trustProxy` lists it; Express's own `trust proxy` is not looked at.

import type { Decision } from '../decision.ts'
import { createNodeGate, type NodeRequest, type NodeResponse } from './node-gate.ts'
import type { RateLimitOptions } from './options.ts'

export type ExpressRequest = NodeRequest & {
  /** Set by the middleware. */
  rateLimit?: Decision
}

export type ExpressHandler<Req> = (req: Req, res: NodeResponse, next: (error?: unknown) => void) => Promise<void>

export function rateLimit<Req extends ExpressRequest>(options: RateLimitOptions<Req>): ExpressHandler<Req> {
  const gate = createNodeGate(options)
  return async function rateLimit(req, res, next) {
    try {
      const verdict = await gate(req, req, res)
      if (verdict !== undefined) req.rateLimit = verdict.decision
      if (verdict?.allowed === false) return
    } catch (error) {
      return next(error)
    }
    next()
  }
}
