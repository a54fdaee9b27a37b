// Rate limiting for Express 4 and 5, Connect, and plain node:http: `app.use(rateLimit({ limit: 100, window: '1m' }))`.
// The client is the peer of the socket unless `trustProxy` lists it; Express's own `trust proxy` is not looked at.

import type { Decision } from '../decision.ts'
import { type HttpRequest, holdsPermit, type Verdict } from '../http/verdict.ts'
import { createGate } from './gate.ts'
import type { RateLimitOptions } from './options.ts'

export type ExpressRequest = {
  readonly method?: string | undefined
  readonly url?: string | undefined
  /** The target before routers cut their mount path off `url`. */
  readonly originalUrl?: string | undefined
  readonly headers: Readonly<Record<string, string | string[] | undefined>>
  readonly socket: { readonly remoteAddress?: string | undefined }
  /** Set by the middleware. */
  rateLimit?: Decision
}

export type ExpressResponse = {
  statusCode: number
  readonly destroyed: boolean
  setHeader(name: string, value: string): unknown
  end(body: string): unknown
  once(event: 'close', listener: () => void): unknown
}

export type ExpressHandler<Req> = (req: Req, res: ExpressResponse, next: (error?: unknown) => void) => Promise<void>

export function rateLimit<Req extends ExpressRequest>(options: RateLimitOptions<Req>): ExpressHandler<Req> {
  const gate = createGate(options)
  return async function rateLimit(req, res, next) {
    try {
      const verdict = await gate(req, httpRequest(req))
      if (verdict !== undefined && !passed(verdict, req, res)) return
    } catch (error) {
      return next(error)
    }
    next()
  }
}

function httpRequest({ method = 'GET', originalUrl, url = '/', socket, headers }: ExpressRequest): HttpRequest {
  const header = (name: string): string | undefined => headers[name]?.toString()
  return { method, url: originalUrl ?? url, peer: socket.remoteAddress, header }
}

/** Writes the verdict to the response; false: the response has been ended. */
function passed(verdict: Verdict, req: ExpressRequest, res: ExpressResponse): boolean {
  // A client that left while the check was under way has had its `close` already.
  if (res.destroyed) verdict.done()
  else if (holdsPermit(verdict.decision)) res.once('close', verdict.done)
  req.rateLimit = verdict.decision
  for (const name in verdict.headers) res.setHeader(name, verdict.headers[name] ?? '')
  if (verdict.allowed) return true
  res.statusCode = verdict.status
  res.end(JSON.stringify(verdict.body))
  return false
}
