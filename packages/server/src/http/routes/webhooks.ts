// GET /api/v1/webhooks: deliveries of this node to its webhooks. Shows hosts only: URLs may contain secrets.

import type { FastifyInstance } from 'fastify'
import { mergeStates, WEBHOOKS_TOPIC, type WebhookState } from '../../fleet/webhook-state.ts'
import type { NodeWorkers } from '../../workers/node-workers.ts'
import { answers } from '../bodies/schemas.ts'

export const WEBHOOKS_PATH = '/api/v1/webhooks'

const count = { type: 'integer' }
const ANSWER = {
  type: 'object',
  required: ['webhooks'],
  properties: {
    webhooks: {
      type: 'array',
      description: 'In the order of --webhooks; counts since the start of the node.',
      items: {
        type: 'object',
        properties: {
          host: { type: 'string' },
          delivered: count,
          dropped: { ...count, description: 'All retries failed, or too many events waited.' },
          pending: { ...count, description: 'Events that wait for delivery or a retry.' },
          last_delivered_at: { type: ['string', 'null'] },
          last_error: {
            type: ['object', 'null'],
            description: 'The last failed attempt; null once an event was delivered.',
            properties: { at: { type: 'string' }, reason: { type: 'string' } },
          },
        },
      },
    },
  },
}

export function webhooksRoute(app: FastifyInstance, workers: NodeWorkers): void {
  const schema = {
    operationId: 'webhooks',
    summary: 'Deliveries to webhooks',
    description: 'Of the node that responds, with all its workers.',
    tags: ['admin'],
    response: answers(ANSWER),
  }
  app.get(WEBHOOKS_PATH, { schema, config: { access: 'viewer' as const } }, async () => {
    const { answers: ofWorkers } = await workers.gather<readonly WebhookState[] | undefined>(WEBHOOKS_TOPIC)
    return { webhooks: mergeStates(ofWorkers.map((states) => states ?? [])) }
  })
}
