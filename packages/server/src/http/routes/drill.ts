// POST /api/v1/admin/drill: opens the circuit breaker on purpose, to rehearse an outage of Redis. Reaches every worker
// of the node, including workers that start during the drill.

import { hostname } from 'node:os'
import type { FastifyInstance } from 'fastify'
import type { Clock } from 'sluice'
import type { Audited } from '../../audit/audit.ts'
import type { Log } from '../../log.ts'
import { ProblemError, problem } from '../../problems/problem.ts'
import type { OpenStore } from '../../store/open-store.ts'
import type { NodeWorkers } from '../../workers/node-workers.ts'
import { answers, REASON } from '../bodies/schemas.ts'

export const DRILL_PATH = '/api/v1/admin/drill'
const SECONDS_MAX = 3600

const BODY = {
  type: 'object',
  additionalProperties: false,
  required: ['seconds'],
  properties: {
    seconds: {
      type: 'integer',
      description: 'Duration; 0 ends a drill.',
      examples: [30],
      minimum: 0,
      maximum: SECONDS_MAX,
      'x-fix': `give a whole number from 0 to ${SECONDS_MAX}`,
    },
    reason: REASON,
  },
  'x-fix': 'send a JSON object with seconds',
}

const ANSWER = { type: 'object', properties: { seconds: { type: 'integer' } } }

type DrillBody = { readonly seconds: number; readonly reason?: string }

export type DrillDeps = {
  readonly store: OpenStore
  readonly log: Log
  readonly audited: Audited
  readonly workers: NodeWorkers
  readonly clock: Clock
}

const TOPIC = 'drill'

export function drillRoute(app: FastifyInstance, deps: DrillDeps): void {
  const { log, audited, workers, clock } = deps
  const { drill } = deps.store
  workers.answer(TOPIC, (untilUs: number) => drill?.(Math.max(0, untilUs - clock.nowUs()) / 1000))
  const schema = {
    operationId: 'drill',
    summary: 'Rehearse an outage of Redis',
    description: 'Opens the circuit breaker: leases are spent and on_fail applies until the drill ends.',
    tags: ['admin'],
    body: BODY,
    response: answers(ANSWER, 400, 409, 503),
  }
  const config = { access: 'admin' as const }
  app.post<{ Body: DrillBody }>(DRILL_PATH, { schema, config }, async ({ body: { seconds, reason }, caller }) => {
    if (drill === undefined) {
      throw new ProblemError(problem('NOTHING_TO_DRILL', 'Counters are in memory: there is no Redis to drill.'))
    }
    const entry = { actor: caller.id, action: 'drill', target: hostname(), diff: { seconds }, reason }
    const { silent } = await audited(entry, () => workers.keep(TOPIC, '', clock.nowUs() + seconds * 1e6))
    if (seconds === 0) log.event('drill_ended', { by: caller.id })
    else log.event('drill_started', { seconds, by: caller.id })
    if (silent > 0) log.event('drill_unconfirmed', { workers: silent })
    return { seconds }
  })
}
