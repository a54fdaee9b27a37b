// Rate limiting for NestJS, on Express or Fastify, as a guard: `app.useGlobalGuards(rateLimit({ limit: 100, window:
// '1m' }))` or `@UseGuards(rateLimit(…))` on a controller or a handler. Contexts other than HTTP pass.

import { expressTrusts, fastifyTrusts } from './app-proxy.ts'
import type { ExpressRequest } from './express.ts'
import { createNodeGate, type NodeRequest, type NodeResponse } from './node-gate.ts'
import { type RateLimitOptions, requireOptions } from './options.ts'

/** What Nest hands over: the request and response of Express, or those of Fastify with the ones of Node within. */
export type NestRequest = ExpressRequest & { readonly raw?: NodeRequest }
type NestReply = NodeResponse & { readonly raw?: NodeResponse }

export type NestContext = {
  getType(): string
  switchToHttp(): { getRequest(): unknown; getResponse(): unknown }
}

export type NestGuard = { canActivate(context: NestContext): Promise<boolean> }

export function rateLimit<Req extends NestRequest>(options: RateLimitOptions<Req>): NestGuard {
  requireOptions(options, 'app.useGlobalGuards(rateLimit({ limit, window }))')
  const gate = createNodeGate(options, (request) => {
    return request.raw === undefined ? expressTrusts(request) : fastifyTrusts(request)
  })
  return {
    async canActivate(context) {
      if (context.getType() !== 'http') return true
      const request = context.switchToHttp().getRequest() as Req
      const reply = context.switchToHttp().getResponse() as NestReply
      const verdict = await gate(request, request.raw ?? request, reply.raw ?? reply)
      if (verdict !== undefined) request.rateLimit = verdict.decision
      // The response has ended. To say no would make Nest, or a filter of the application, answer once more.
      return verdict?.allowed === false ? new Promise<never>(() => {}) : true
    },
  }
}
