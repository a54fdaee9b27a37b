// Who may call a route is said by the route itself, in its config; this is the one place that asks for it.

import type { FastifyInstance } from 'fastify'
import { requireToken } from './admin.ts'
import { ProblemError, problem } from './problem.ts'

declare module 'fastify' {
  interface FastifyContextConfig {
    access?: 'viewer' | 'editor'
  }
  interface FastifyRequest {
    /** Who sent it, for the audit. */
    caller: { readonly id: string }
  }
}

/** Before any route is added. */
export function authorizeRoutes(app: FastifyInstance, adminToken: string | undefined): void {
  app.decorateRequest('caller')
  app.addHook('onRequest', async (request) => {
    request.caller = { id: 'anonymous' }
    if (request.is404 || request.routeOptions.config.access !== 'editor') return
    if (adminToken === undefined) {
      throw new ProblemError(problem('UNAUTHORIZED', 'This node knows no token: start it with --admin-token.'))
    }
    await requireToken(adminToken)(request)
    request.caller = { id: 'admin-token' }
  })
}
