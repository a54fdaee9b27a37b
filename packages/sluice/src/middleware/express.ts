// Rate limiting for Express 4 and 5, and Connect: `app.use(rateLimit({ limit: 100, window: '1m' }))`. The client is the
// peer of the socket unless `trustProxy` lists the peer. `trust proxy` of Express is not used, because `true` and hop
// counts can be spoofed; if only that is set, a warning is emitted.

// biome-ignore lint/suspicious/noTsIgnore: an error only where the types of Express are not installed
/** @ts-ignore */
import type { Request } from 'express'
import type { Decision } from '../decision.ts'
import type { DecisionResponse } from '../http/decision-response.ts'
import { isPromise, type MaybePromise } from '../maybe-promise.ts'
import { expressTrustsProxies } from './app-proxy.ts'
import { createNodeCheck, type IfInstalled, type NodeRequest, type NodeResponse } from './node-check.ts'
import type { RateLimitOptions } from './options.ts'

declare global {
  // The types of Express, if installed, merge this namespace into their Request.
  namespace Express {
    interface Request {
      /** Set by `rateLimit` of `sluice/express`; absent if the request was skipped. */
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

/** Declares only what it needs of the request: handlers after it keep the types that Express infers from the route. */
export type ExpressHandler = (req: ExpressRequest, res: NodeResponse, next: (error?: unknown) => void) => void

/** The request that functions of the options get. Wildcards have a list: `(req: Request<{ path: string[] }>) => …`. */
export type DefaultRequest<Otherwise = ExpressRequest> = IfInstalled<
  Request<{ readonly [name: string]: string }>,
  Otherwise
>

export function rateLimit<Req extends ExpressRequest = DefaultRequest>(options: RateLimitOptions<Req>): ExpressHandler {
  const check = createNodeCheck(options, expressTrustsProxies)
  return function rateLimit(req, res, next) {
    const proceed = (result: DecisionResponse | undefined) => {
      if (result !== undefined) req.rateLimit = result.decision
      if (result?.allowed !== false) next()
    }
    let result: MaybePromise<DecisionResponse | undefined>
    try {
      result = check(req as Req, req, res) // the application passes requests of the declared type
    } catch (error) {
      return next(error)
    }
    // Not catch(): an error thrown by next() must not be passed to next() again.
    if (isPromise(result)) result.then(proceed, next)
    else proceed(result)
  }
}
