// /api/v1/demo: sends demo traffic through the engine of this node, for a first look at the dashboard.

import type { FastifyInstance } from 'fastify'
import type { DemoState, DemoTraffic } from '../../demo/demo-traffic.ts'
import { type RulesDeps, requireRuleStore } from '../bodies/rule-writes.ts'
import { answers, problemAnswers } from '../bodies/schemas.ts'

export const DEMO_PATH = '/api/v1/demo'
const SECONDS = { min: 10, default: 180, max: 600 } as const

const ANSWER = {
  type: 'object',
  required: ['running', 'ends_at'],
  properties: {
    running: { type: 'boolean', description: 'On any node that shares the rules.' },
    ends_at: { type: ['string', 'null'] },
  },
}
const BODY = {
  type: 'object',
  additionalProperties: false,
  properties: {
    seconds: {
      type: 'integer',
      description: `Duration. Default: ${SECONDS.default}.`,
      examples: [60],
      minimum: SECONDS.min,
      maximum: SECONDS.max,
      'x-fix': `give a whole number from ${SECONDS.min} to ${SECONDS.max}`,
    },
  },
  'x-fix': 'send a JSON object',
  examples: [{ seconds: 60 }],
}

export type DemoRouteDeps = Pick<RulesDeps, 'limiter' | 'live' | 'ruleStore'> & { readonly demo: DemoTraffic }

export function demoRoutes(app: FastifyInstance, deps: DemoRouteDeps): void {
  const { demo } = deps
  if (deps.ruleStore !== undefined) demo.removeExpired(deps.ruleStore)
  app.addHook('onClose', () => demo.close())
  const read = { operationId: 'readDemo', summary: 'Is demo traffic running?', tags: ['insight'] }
  const readOptions = { schema: { ...read, response: answers(ANSWER) }, config: { access: 'viewer' as const } }
  app.get(DEMO_PATH, readOptions, async (): Promise<DemoState> => demo.state())
  const config = { access: 'editor' as const }
  const start = {
    operationId: 'startDemo',
    summary: 'Send demo traffic',
    description: 'Creates rules for it and sends 200 checks a second from this node. The rules are removed at the end.',
    tags: ['insight'],
    body: BODY,
    response: answers(ANSWER, 400, 409, 503),
  }
  app.post<{ Body: { seconds?: number } }>(DEMO_PATH, { schema: start, config }, ({ body, caller }) => {
    const author = { actor: caller.id, reason: 'demo traffic' }
    return demo.start(requireRuleStore(deps), body.seconds ?? SECONDS.default, author)
  })
  const stop = {
    operationId: 'stopDemo',
    summary: 'End demo traffic and remove its rules',
    tags: ['insight'],
    response: { 204: { type: 'null', description: 'Ended.' }, ...problemAnswers(409, 503) },
  }
  app.delete(DEMO_PATH, { schema: stop, config }, async ({ caller }, reply) => {
    await demo.stop(requireRuleStore(deps), { actor: caller.id, reason: 'demo traffic ended early' })
    return reply.code(204).send()
  })
}
