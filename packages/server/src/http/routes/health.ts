// What machines ask the service about itself: /livez, /readyz and /metrics. A store in trouble does not make the node
// unready: `on_fail` decides meanwhile, and taking all nodes out of service would help nobody.

import type { FastifyInstance } from 'fastify'
import { answerHealth, type HealthParts, nodeHealth } from '../../node/health.ts'
import { scrapeNode } from '../../workers/node-metrics.ts'
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
  answerHealth(parts)
  const config = { access: 'open' as const }
  const alive = { type: 'object', properties: { status: { type: 'string' } } }
  const livez = { operationId: 'livez', summary: 'Is the process alive?', tags: ['health'], response: answers(alive) }
  app.get('/livez', { schema: livez, config }, () => ({ status: 'alive' }))

  const response = { ...answers(READINESS), 503: { ...READINESS, description: 'Draining: send requests elsewhere.' } }
  const readyz = { operationId: 'readyz', summary: 'May it be sent requests?', tags: ['health'], response }
  app.get('/readyz', { schema: readyz, config }, async (_request, reply) => {
    const answer = await readiness(parts)
    if (answer.status === 'draining') reply.code(503)
    return answer
  })

  const { metrics: own, workers } = parts
  const text = { 200: { description: 'Metrics.', content: { 'text/plain': { schema: { type: 'string' } } } } }
  const metrics = { operationId: 'metrics', summary: 'Metrics for Prometheus', tags: ['health'], response: text }
  app.get('/metrics', { schema: metrics, config }, async (_request, reply) => {
    reply.header('content-type', own.registry.contentType)
    return scrapeNode(workers, own)
  })
}

async function readiness(parts: HealthParts): Promise<Readonly<Record<string, unknown>>> {
  const { store, lifecycle } = parts
  const { rulesVersion, trouble } = await nodeHealth(parts)
  const status = lifecycle.draining ? 'draining' : trouble.length > 0 ? 'degraded' : 'ready'
  return { status, rules_version: rulesVersion, store: store.kind, trouble }
}
