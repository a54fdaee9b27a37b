// POST /api/v1/admin/drill: leaves Redis alone for a while, so that an outage can be rehearsed. Behind the admin token,
// and not there at all without one.

import type { FastifyInstance } from 'fastify'
import type { Log } from '../log.ts'
import type { OpenStore } from '../open-store.ts'
import { requireToken } from './admin.ts'
import { ProblemError, problem } from './problem.ts'
import { answers } from './schemas.ts'

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
  },
  'x-fix': 'send a JSON object with seconds',
}

const ANSWER = { type: 'object', properties: { seconds: { type: 'integer' } } }

type DrillParts = { readonly adminToken: string | undefined; readonly log: Log }

export function drillRoute(app: FastifyInstance, store: OpenStore, { adminToken, log }: DrillParts): void {
  if (adminToken === undefined) return
  const schema = {
    operationId: 'drill',
    summary: 'Rehearse an outage of Redis',
    description: 'Every rule does what its on_fail says, and leases are spent, until the drill ends.',
    tags: ['admin'],
    body: BODY,
    response: answers(ANSWER, 400, 401, 409),
  }
  const preValidation = requireToken(adminToken)
  app.post<{ Body: { seconds: number } }>(DRILL_PATH, { schema, preValidation }, ({ body: { seconds } }) => {
    if (store.drill === undefined) {
      throw new ProblemError(problem('NOTHING_TO_DRILL', 'Counters are kept in memory: there is no store to lose.'))
    }
    store.drill(seconds * 1000)
    log.warn({ seconds }, 'a drill: Redis is left alone on purpose')
    return { seconds }
  })
}
