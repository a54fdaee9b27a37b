// Rate limiting for Express 4 and 5, and Connect: `app.use(rateLimit({ limit: 100, window: '1m' }))`.
// The client is the peer of the socket unless `trustProxy` lists it; Express's own `trust proxy` is not used, because
// `true` and hop counts can be spoofed: where it is set and `trustProxy` is not, a warning says so.

import type { Decision } from '../decision.ts'
import type { Verdict } from '../http/verdict.ts'
import type { Maybe } from '../maybe.ts'
import { expressTrusts } from './app-proxy.ts'
import { createNodeGate, type NodeRequest, type NodeResponse } from './node-gate.ts'
import type { RateLimitOptions } from './options.ts'

declare global {
  // The namespace that the types of Express, if they are there, merge into their Request.
  namespace Express {
    interface Request {
      /** Set by `rateLimit` of `sluice/express`; absent where the request was skipped. */
      rateLimit?: Decision
    }
  }
}

export type ExpressRequest = NodeRequest & {
  /** Set by the middleware. */
  rateLimit?: Decision
  /** Absent with Connect. */
  readonly app?: { get?: unknown } | undefined
}

export type ExpressHandler<Req> = (req: Req, res: NodeResponse, next: (error?: unknown) => void) => void

export function rateLimit<Req extends ExpressRequest>(options: RateLimitOptions<Req>): ExpressHandler<Req> {
  const gate = createNodeGate(options, expressTrusts)
  return function rateLimit(req, res, next) {
    const goOn = (verdict: Verdict | undefined) => {
      if (verdict !== undefined) req.rateLimit = verdict.decision
      if (verdict?.allowed !== false) next()
    }
    let verdict: Maybe<Verdict | undefined>
    try {
      verdict = gate(req, req, res)
    } catch (error) {
      return next(error)
    }
    // Two arguments: an error that next() throws is not ours to hand to next() again.
    if (verdict instanceof Promise) verdict.then(goOn, next)
    else goOn(verdict)
  }
}
