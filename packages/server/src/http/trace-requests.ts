// Starts a server span for each request that decides (check, batch, forward auth). Registered only with telemetry, so
// that requests pay nothing without it.

import type { FastifyInstance } from 'fastify'
import type { RequestSpan } from '../telemetry/request-span.ts'
import type { Telemetry } from '../telemetry/telemetry.ts'
import { AUTH_PATH } from './routes/auth.ts'
import { BATCH_PATH } from './routes/batch.ts'
import { CHECK_PATH } from './routes/check.ts'

declare module 'fastify' {
  interface FastifyRequest {
    /** Undefined if the request is not traced. */
    span?: RequestSpan
  }
}

const TRACED: ReadonlySet<string> = new Set([CHECK_PATH, BATCH_PATH, AUTH_PATH])

/** Call before other hooks, so that requests without a valid token are traced too. */
export function traceRequests(app: FastifyInstance, telemetry: Telemetry): void {
  app.decorateRequest('span') // Fastify expects properties of requests to be declared
  app.addHook('onRequest', (request, reply, next) => {
    const { url: route = '' } = request.routeOptions
    if (TRACED.has(route)) {
      const span = telemetry.start(request.method, request.headers)
      if (span !== undefined) {
        request.span = span
        span.setRoute(route)
        // Not `onResponse`, which Fastify skips if the client disconnects.
        reply.raw.once('close', () => span.end(reply.raw.headersSent ? reply.raw.statusCode : undefined))
      }
    }
    next()
  })
}
