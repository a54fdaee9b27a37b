// POST /api/v1/admin/drill: leaves Redis alone for a while, so that an outage can be rehearsed. It reaches every worker
// of the node, also one that starts before the drill ends.

import { hostname } from 'node:os'
import type { FastifyInstance } from 'fastify'
import type { Clock } from 'sluice'
import type { Audited } from '../../audit/audit.ts'
import type { OpenStore } from '../../counters/open-store.ts'
import type { Log } from '../../log.ts'
import { ProblemError, problem } from '../../problems/problem.ts'
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
      description: 'How long Redis is left alone; 0 ends a drill.',
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

export type DrillParts = {
  readonly store: OpenStore
  readonly log: Log
  readonly audited: Audited
  readonly workers: NodeWorkers
  readonly clock: Clock
}

const TOPIC = 'drill'

export function drillRoute(app: FastifyInstance, parts: DrillParts): void {
  const { log, audited, workers, clock } = parts
  const { drill } = parts.store
  workers.answer(TOPIC, (untilUs: number) => drill?.(Math.max(0, untilUs - clock.nowUs()) / 1000))
  const schema = {
    operationId: 'drill',
    summary: 'Rehearse an outage of Redis',
    description: 'Every rule does what its on_fail says, and leases are spent, until the drill ends.',
    tags: ['admin'],
    body: BODY,
    response: answers(ANSWER, 400, 409, 503),
  }
  const config = { access: 'admin' as const }
  app.post<{ Body: DrillBody }>(DRILL_PATH, { schema, config }, async ({ body: { seconds, reason }, caller }) => {
    if (drill === undefined) {
      throw new ProblemError(problem('NOTHING_TO_DRILL', 'Counters are kept in memory: there is no store to lose.'))
    }
    const entry = { actor: caller.id, action: 'drill', target: hostname(), diff: { seconds }, reason }
    const { silent } = await audited(entry, () => workers.keep(TOPIC, '', clock.nowUs() + seconds * 1e6))
    log.warn({ seconds, by: caller.id }, 'a drill: Redis is left alone on purpose')
    if (silent > 0)
      log.warn({ workers: silent }, 'drill: some workers have not confirmed it; they will when they answer')
    return { seconds }
  })
}
