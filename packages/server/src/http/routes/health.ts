// What machines ask the service about itself: /livez, /readyz and /metrics. A store in trouble does not make the node
// unready: `on_fail` decides meanwhile, and taking all nodes out of service would help nobody.

import type { FastifyInstance } from 'fastify'
import { type HealthParts, troubleOf } from '../../node/health.ts'
import { answers } from '../bodies/schemas.ts'

const READINESS = {
  type: 'object',
  required: ['status', 'rules_version', 'store', 'trouble'],
  properties: {
    status: { type: 'string', enum: ['ready', 'degraded', 'draining'] },
    rules_version: { type: 'integer' },
    store: { type: 'string', enum: ['memory', 'redis'] },
    trouble: { type: 'array', items: { type: 'string' }, description: 'Why it is degraded.' },
  },
}

export function healthRoutes(app: FastifyInstance, parts: HealthParts): void {
  const config = { access: 'open' as const }
  const alive = { type: 'object', properties: { status: { type: 'string' } } }
  const livez = { operationId: 'livez', summary: 'Is the process alive?', tags: ['health'], response: answers(alive) }
  app.get('/livez', { schema: livez, config }, () => ({ status: 'alive' }))

  const response = { ...answers(READINESS), 503: { ...READINESS, description: 'Draining: send requests elsewhere.' } }
  const readyz = { operationId: 'readyz', summary: 'May it be sent requests?', tags: ['health'], response }
  app.get('/readyz', { schema: readyz, config }, (_request, reply) => {
    if (parts.lifecycle.draining) reply.code(503)
    return readiness(parts)
  })

  const { registry } = parts.metrics
  const text = { 200: { description: 'Metrics.', content: { 'text/plain': { schema: { type: 'string' } } } } }
  const metrics = { operationId: 'metrics', summary: 'Metrics for Prometheus', tags: ['health'], response: text }
  app.get('/metrics', { schema: metrics, config }, async (_request, reply) => {
    reply.header('content-type', registry.contentType)
    return registry.metrics()
  })
}

function readiness(parts: HealthParts): Readonly<Record<string, unknown>> {
  const { limiter, store, lifecycle } = parts
  const trouble = troubleOf(parts)
  const status = lifecycle.draining ? 'draining' : trouble.length > 0 ? 'degraded' : 'ready'
  return { status, rules_version: limiter.version, store: store.kind, trouble }
}
