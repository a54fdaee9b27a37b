// Rate limiting for NestJS, on Express or Fastify, as a guard: `app.useGlobalGuards(rateLimit({ limit: 100, window:
// '1m' }))` or `@UseGuards(rateLimit(…))` on a controller or a handler. Ignores contexts other than HTTP.

// biome-ignore lint/suspicious/noTsIgnore: an error only where the types of Fastify are not installed
/** @ts-ignore */
import type { FastifyRequest } from 'fastify'
import { expressTrustsProxies, fastifyTrustsProxies } from './app-proxy.ts'
import type { DefaultRequest, ExpressRequest } from './express.ts'
import { createNodeCheck, type IfInstalled, type NodeRequest, type NodeResponse } from './node-check.ts'
import { type RateLimitOptions, requireOptions } from './options.ts'

/** The request of Express, or the request of Fastify, which wraps the one of Node.js. */
export type NestRequest = ExpressRequest & { readonly raw?: NodeRequest }
type NestReply = NodeResponse & { readonly raw?: NodeResponse }

export type NestContext = {
  getType(): string
  switchToHttp(): { getRequest(): unknown; getResponse(): unknown }
}

export type NestGuard = { canActivate(context: NestContext): Promise<boolean> }

/** The request that functions of the options get: of Express, the default platform, or else of Fastify. */
export type PlatformRequest = DefaultRequest<IfInstalled<FastifyRequest, NestRequest>>

export function rateLimit<Req extends NestRequest = PlatformRequest>(options: RateLimitOptions<Req>): NestGuard {
  requireOptions(options, 'app.useGlobalGuards(rateLimit({ limit, window }))')
  const check = createNodeCheck(options, (request) => {
    return request.raw === undefined ? expressTrustsProxies(request) : fastifyTrustsProxies(request)
  })
  return {
    async canActivate(context) {
      if (context.getType() !== 'http') return true
      const request = context.switchToHttp().getRequest() as Req
      const reply = context.switchToHttp().getResponse() as NestReply
      const result = await check(request, request.raw ?? request, reply.raw ?? reply)
      if (result !== undefined) request.rateLimit = result.decision
      // The response has ended. Returning false would make Nest, or a filter of the application, reply a second time.
      return result?.allowed === false ? new Promise<never>(() => {}) : true
    },
  }
}
