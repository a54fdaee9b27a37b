// /livez, /readyz, /healthcheck and /metrics. A failing store degrades a node but keeps it ready: `on_fail` decides
// meanwhile, and removing all nodes from the load balancer would be worse.

import type { FastifyInstance } from 'fastify'
import { scrapeNode } from '../../workers/node-metrics.ts'
import { answers } from '../bodies/schemas.ts'
import { answerHealth, type HealthDeps, nodeHealth } from '../node-health.ts'

const READINESS = {
  type: 'object',
  required: ['status', 'rules_version', 'store', 'reasons'],
  properties: {
    status: { type: 'string', enum: ['ready', 'degraded', 'draining'] },
    rules_version: { type: 'integer' },
    store: { type: 'string', enum: ['memory', 'redis'] },
    reasons: { type: 'array', items: { type: 'string' }, description: 'Why the node is degraded; empty if it is not.' },
  },
}

export function healthRoutes(app: FastifyInstance, deps: HealthDeps): void {
  answerHealth(deps)
  const config = { access: 'open' as const }
  const alive = { type: 'object', properties: { status: { type: 'string' } } }
  const livez = { operationId: 'livez', summary: 'Is the process alive?', tags: ['health'], response: answers(alive) }
  app.get('/livez', { schema: livez, config }, () => ({ status: 'alive' }))

  const response = { ...answers(READINESS), 503: { ...READINESS, description: 'Draining: send requests elsewhere.' } }
  const readyz = { operationId: 'readyz', summary: 'Is the node ready for requests?', tags: ['health'], response }
  app.get('/readyz', { schema: readyz, config }, async (_request, reply) => {
    const answer = await readiness(deps)
    if (answer.status === 'draining') reply.code(503)
    return answer
  })

  const plain = (description: string) => ({ description, content: { 'text/plain': { schema: { type: 'string' } } } })
  const healthcheck = {
    operationId: 'healthcheck',
    summary: 'Is the node ready for requests, as envoyproxy/ratelimit answers?',
    tags: ['health'],
    response: { 200: plain('`OK`'), 500: plain('Draining: send requests elsewhere.') },
  }
  app.get('/healthcheck', { schema: healthcheck, config }, (_request, reply) => {
    reply.type('text/plain')
    return deps.lifecycle.draining ? reply.code(500).send('') : 'OK'
  })

  const { metrics: own, workers } = deps
  const text = { 200: plain('Metrics.') }
  const metrics = { operationId: 'metrics', summary: 'Metrics for Prometheus', tags: ['health'], response: text }
  app.get('/metrics', { schema: metrics, config }, async (_request, reply) => {
    reply.header('content-type', own.registry.contentType)
    return scrapeNode(workers, own)
  })
}

async function readiness(deps: HealthDeps): Promise<Readonly<Record<string, unknown>>> {
  const { store, lifecycle } = deps
  const { rulesVersion, reasons } = await nodeHealth(deps)
  const status = lifecycle.draining ? 'draining' : reasons.length > 0 ? 'degraded' : 'ready'
  return { status, rules_version: rulesVersion, store: store.kind, reasons }
}
