// Rate limiting for Fastify 5, as a hook: `app.addHook('onRequest', rateLimit({ limit: 100, window: '1m' }))`, or for
// one route: `{ onRequest: rateLimit(…) }`; and as a plugin: `app.register(rateLimitPlugin, { limit: 100, window: '1m'
// })`.

import type { Decision } from '../decision.ts'
import { joinedHeaders } from '../http/headers.ts'
import { createGate } from './gate.ts'
import { type NodeRequest, type NodeResponse, nodeHttpRequest, settleAtEnd } from './node-gate.ts'
import type { RateLimitOptions } from './options.ts'

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

export type FastifyHook<Req> = (request: Req, reply: FastifyReplyLike) => Promise<unknown>

type Hooked<Req> = { addHook(name: 'onRequest', hook: FastifyHook<Req>): unknown }

export function rateLimit<Req extends FastifyRequestLike>(options: RateLimitOptions<Req>): FastifyHook<Req> {
  const gate = createGate(options)
  return async function rateLimit(request, reply) {
    const verdict = await gate(request, nodeHttpRequest(request.raw), request.raw)
    if (verdict === undefined) return undefined
    request.rateLimit = verdict.decision
    settleAtEnd(verdict, request.raw, reply.raw)
    const headers = joinedHeaders(verdict.headers, verdict.allowed, (name) => reply.getHeader(name)?.toString())
    for (const name in headers) reply.header(name, headers[name] ?? '')
    return verdict.body === undefined ? undefined : reply.code(verdict.status).send(verdict.body)
  }
}

export async function rateLimitPlugin<Req extends FastifyRequestLike>(
  app: Hooked<Req>,
  options: RateLimitOptions<Req>,
): Promise<void> {
  app.addHook('onRequest', rateLimit(options))
}

// Without it, the hook would be for the routes of the plugin only, and it has none.
Object.assign(rateLimitPlugin, { [Symbol.for('skip-override')]: true, [Symbol.for('fastify.display-name')]: 'sluice' })
