// Rate limiting for Koa: `app.use(rateLimit({ limit: 100, window: '1m' }))`. The decision is in `ctx.state.rateLimit`.

import { joinedHeaders } from '../http/headers.ts'
import { koaTrusts } from './app-proxy.ts'
import { createGate } from './gate.ts'
import { type NodeRequest, type NodeResponse, nodeHttpRequest, settleAtEnd } from './node-gate.ts'
import type { RateLimitOptions } from './options.ts'

export type KoaContext = {
  readonly app?: { readonly proxy?: unknown } | undefined
  readonly req: NodeRequest
  readonly res: NodeResponse
  readonly state: Record<string, unknown>
  status: number
  body: unknown
  set(name: string, value: string): void
}

export type KoaMiddleware<Ctx> = (ctx: Ctx, next: () => Promise<unknown>) => Promise<unknown>

export function rateLimit<Ctx extends KoaContext>(options: RateLimitOptions<Ctx>): KoaMiddleware<Ctx> {
  const gate = createGate(options, koaTrusts)
  return async function rateLimit(ctx, next) {
    const { req, res } = ctx
    const verdict = await gate(ctx, nodeHttpRequest(req), req)
    if (verdict === undefined) return next()
    ctx.state.rateLimit = verdict.decision
    settleAtEnd(verdict, req, res)
    const headers = joinedHeaders(verdict.headers, verdict.allowed, (name) => res.getHeader(name)?.toString())
    for (const name in headers) ctx.set(name, headers[name] ?? '')
    if (verdict.allowed) return next().catch((error: unknown) => rethrow(error, res))
    ctx.status = verdict.status
    ctx.body = verdict.body
    return undefined
  }
}

/** Koa answers an error with the headers of the error and no others. It may be thrown for other requests too. */
function rethrow(error: unknown, res: NodeResponse): never {
  if (error instanceof Error) {
    const kept = KEPT.map((name) => [name, res.getHeader(name)]).filter(([, value]) => value !== undefined)
    Object.assign(error, { headers: { ...(error as { headers?: object }).headers, ...Object.fromEntries(kept) } })
  }
  throw error
}

const KEPT = ['X-RateLimit', 'RateLimit'].flatMap((family) =>
  ['-Limit', '-Remaining', '-Reset', '-Policy', ''].map((part) => family + part),
)
