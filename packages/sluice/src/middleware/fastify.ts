// Rate limiting for Fastify 5. Hook: `app.addHook('onRequest', rateLimit({ limit: 100, window: '1m' }))`. Hook of one
// route: `{ onRequest: rateLimit(…) }`. Plugin: `app.register(rateLimitPlugin, { limit: 100, window: '1m' })`.

import type { FastifyRequest } from 'fastify'
import type { Decision } from '../decision.ts'
import { optionInvalid } from '../errors.ts'
import { joinedHeaders } from '../http/headers.ts'
import { fastifyTrustsProxies } from './app-proxy.ts'
import { type NodeRequest, type NodeResponse, nodeHttpRequest, settleAtEnd } from './node-check.ts'
import { type RateLimitOptions, requireOptions } from './options.ts'
import { createRequestCheck } from './request-check.ts'

declare module 'fastify' {
  interface FastifyRequest {
    /** Set by `rateLimit` and `rateLimitPlugin` of `sluice/fastify`; absent if the request was skipped. */
    rateLimit?: Decision
  }
}

export type FastifyRequestLike = {
  readonly raw: NodeRequest
  /** Set by the hook. */
  rateLimit?: Decision
}

export type FastifyReplyLike = {
  readonly raw: NodeResponse
  getHeader(name: string): number | string | string[] | undefined
  header(name: string, value: string): unknown
  code(status: number): { send(body: string): unknown }
}

/** A hook for any server (HTTP/1.1 or 2) and any route. `Routed` is inferred: the request of a route with types. */
export type FastifyHook<Routed = never> = (
  request: Routed | FastifyRequestLike,
  reply: FastifyReplyLike,
) => Promise<unknown>

/** TypeScript infers `never` for a route without types. */
type OfRoute<Routed> = [Routed] extends [never] ? unknown : Routed

type FastifyApp = { addHook(name: 'onRequest', hook: FastifyHook<FastifyRequest>): unknown }

/** Error for `app.register(rateLimit, …)`, which passes the application as options. */
const NOT_A_PLUGIN = 'rateLimit is a hook: register the plugin, as in app.register(rateLimitPlugin, { limit, window })'

export function rateLimit<Req extends FastifyRequestLike = FastifyRequest, Routed extends FastifyRequestLike = never>(
  options: RateLimitOptions<Req & OfRoute<Routed>>,
): FastifyHook<Routed> {
  requireOptions(options, "app.addHook('onRequest', rateLimit({ limit, window }))")
  if ('addHook' in options) throw optionInvalid('options', options, NOT_A_PLUGIN)
  const check = createRequestCheck(options, fastifyTrustsProxies)
  return async function rateLimit(request, reply) {
    // The server passes requests of the type that the options declare, or of the default type.
    const result = await check(request as Req & OfRoute<Routed>, nodeHttpRequest(request.raw), request.raw)
    if (result === undefined) return undefined
    request.rateLimit = result.decision
    settleAtEnd(result, request.raw, reply.raw)
    const headers = joinedHeaders(result.headers, result.allowed, (name) => reply.getHeader(name)?.toString())
    for (const name in headers) reply.header(name, headers[name] ?? '')
    return result.body === undefined ? undefined : reply.code(result.status).send(result.body)
  }
}

export async function rateLimitPlugin(app: FastifyApp, options: RateLimitOptions<FastifyRequest>): Promise<void> {
  app.addHook('onRequest', rateLimit(options))
}

// Without skip-override, the hook would apply only to routes of the plugin, which has none.
Object.assign(rateLimitPlugin, { [Symbol.for('skip-override')]: true, [Symbol.for('fastify.display-name')]: 'sluice' })
