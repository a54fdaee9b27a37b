// Rate limiting for Fastify 5, as a hook: `app.addHook('onRequest', rateLimit({ limit: 100, window: '1m' }))`, or for
// one route: `{ onRequest: rateLimit(…) }`; and as a plugin: `app.register(rateLimitPlugin, { limit: 100, window: '1m'
// })`.

import type { FastifyRequest } from 'fastify'
import type { Decision } from '../decision.ts'
import { optionInvalid } from '../errors.ts'
import { joinedHeaders } from '../http/headers.ts'
import { fastifyTrusts } from './app-proxy.ts'
import { createGate } from './gate.ts'
import { type NodeRequest, type NodeResponse, nodeHttpRequest, settleAtEnd } from './node-gate.ts'
import { type RateLimitOptions, requireOptions } from './options.ts'

declare module 'fastify' {
  interface FastifyRequest {
    /** Set by `rateLimit` and `rateLimitPlugin` of `sluice/fastify`; absent where the request was skipped. */
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

/** A hook of any server: HTTP/1.1 or 2, whatever its routes declare. */
export type FastifyHook = (request: FastifyRequestLike, reply: FastifyReplyLike) => Promise<unknown>

type Hooked = { addHook(name: 'onRequest', hook: FastifyHook): unknown }

/** `app.register(rateLimit, …)` passes the application. */
const NOT_A_PLUGIN = 'rateLimit is a hook: register the plugin, as in app.register(rateLimitPlugin, { limit, window })'

export function rateLimit<Req extends FastifyRequestLike = FastifyRequest>(
  options: RateLimitOptions<Req>,
): FastifyHook {
  requireOptions(options, "app.addHook('onRequest', rateLimit({ limit, window }))")
  if ('addHook' in options) throw optionInvalid('options', options, NOT_A_PLUGIN)
  const gate = createGate(options, fastifyTrusts)
  return async function rateLimit(request, reply) {
    // The server hands over requests of the type that the author of the options has written, or of the usual one.
    const verdict = await gate(request as Req, nodeHttpRequest(request.raw), request.raw)
    if (verdict === undefined) return undefined
    request.rateLimit = verdict.decision
    settleAtEnd(verdict, request.raw, reply.raw)
    const headers = joinedHeaders(verdict.headers, verdict.allowed, (name) => reply.getHeader(name)?.toString())
    for (const name in headers) reply.header(name, headers[name] ?? '')
    return verdict.body === undefined ? undefined : reply.code(verdict.status).send(verdict.body)
  }
}

export async function rateLimitPlugin(app: Hooked, options: RateLimitOptions<FastifyRequest>): Promise<void> {
  app.addHook('onRequest', rateLimit(options))
}

// Without it, the hook would be for the routes of the plugin only, and it has none.
Object.assign(rateLimitPlugin, { [Symbol.for('skip-override')]: true, [Symbol.for('fastify.display-name')]: 'sluice' })
