// /api/v1/rate-limit/kill-switch: one call takes a rule, or everything, out of force, and one brings it back.

import type { FastifyInstance } from 'fastify'
import { type Limiter, suggestion } from 'sluice'
import type { Kill, KillStore, KillSwitch } from '../../kill-switch/kill-switch.ts'
import { invalidRequest, ProblemError } from '../../problems/problem.ts'
import { answers, REASON, text } from '../bodies/schemas.ts'

export const KILL_SWITCH_PATH = '/api/v1/rate-limit/kill-switch'
/** Nobody kills so many one by one, and each is looked at by every check. */
const KILLS_MAX = 1000

type KillBody = {
  readonly rule_id?: string
  readonly everything?: true
  readonly on: boolean
  readonly reason?: string
}

const BODY = {
  type: 'object',
  additionalProperties: false,
  required: ['on'],
  properties: {
    rule_id: text('The rule to take out of force, or to bring back.', 'demo', 64),
    everything: {
      type: 'boolean',
      const: true,
      description: 'Instead of rule_id: all rules.',
      'x-fix': 'leave it out, or use true',
    },
    on: { type: 'boolean', description: 'true kills, false brings back.', 'x-fix': 'use true or false' },
    reason: REASON,
  },
  'x-fix': 'send a JSON object with on, and rule_id or everything',
  examples: [{ rule_id: 'demo', on: true, reason: 'refuses everybody in Spain' }],
}

const ANSWER = {
  type: 'object',
  required: ['everything', 'durable', 'kills'],
  properties: {
    everything: { type: 'boolean', description: 'Whether nothing is enforced.' },
    durable: {
      type: 'boolean',
      description: 'Whether it holds for all nodes and after a restart; otherwise for this process alone.',
    },
    kills: {
      type: 'array',
      items: {
        type: 'object',
        properties: {
          rule_id: { type: ['string', 'null'], description: 'null: everything.' },
          since: { type: 'string' },
          by: { type: 'string', description: 'The id of a token, or admin-token.' },
          by_name: { type: ['string', 'null'], description: 'The name of that token.' },
          reason: { type: ['string', 'null'] },
        },
      },
    },
  },
}

export type KillParts = {
  readonly limiter: Limiter
  readonly killSwitch: KillSwitch
  readonly kills: KillStore
  readonly nowIso: () => string
}

export function killSwitchRoutes(app: FastifyInstance, parts: KillParts): void {
  const { killSwitch, kills, nowIso } = parts
  const state = () => ({
    everything: killSwitch.everything,
    durable: kills.durable,
    kills: killSwitch.kills.map(plainKill),
  })
  const tags = ['admin']
  const read = { operationId: 'readKillSwitch', summary: 'What is out of force', tags, response: answers(ANSWER) }
  app.get(KILL_SWITCH_PATH, { schema: read, config: { access: 'viewer' } }, state)
  const description =
    'Takes effect at once, and needs no change of the rules. The counters of a killed rule stand still.'
  const about = { operationId: 'killSwitch', summary: 'Take rules out of force', description, tags }
  const schema = { ...about, body: BODY, response: answers(ANSWER, 400, 503) }
  const config = { access: 'approver' as const }
  app.post<{ Body: KillBody }>(KILL_SWITCH_PATH, { schema, config }, async ({ body, caller }) => {
    const ruleId = targetOf(body, parts)
    const { reason = null } = body
    if (!body.on) await kills.revive(ruleId, caller.id, reason)
    else await kills.kill({ ruleId, since: nowIso(), by: caller.id, reason })
    return state()
  })
}

function plainKill({ ruleId: rule_id, since, by, byName = null, reason }: Kill) {
  return { rule_id, since, by, by_name: byName, reason }
}

/** null: everything. */
function targetOf({ rule_id: ruleId, everything, on }: KillBody, { limiter, killSwitch }: KillParts): string | null {
  if ((ruleId === undefined) === (everything === undefined))
    throw refusal('rule_id', ruleId, 'give either rule_id or "everything": true')
  if (ruleId === undefined) return null
  if (killSwitch.kills.some((kill) => kill.ruleId === ruleId)) return ruleId
  if (!on || limiter.rule(ruleId) === undefined) {
    const known = on ? limiter.rules.map((rule) => rule.rule_id) : killSwitch.kills.flatMap((kill) => kill.ruleId ?? [])
    const fix = on ? 'give the id of a rule' : 'give the id of a rule that is out of force'
    throw refusal('rule_id', ruleId, fix + suggestion(ruleId, known))
  }
  if (killSwitch.kills.length >= KILLS_MAX) throw refusal('rule_id', ruleId, 'use "everything": too many are killed')
  return ruleId
}

function refusal(field: string, value: unknown, fix: string): ProblemError {
  return new ProblemError(invalidRequest([{ field, value, fix }]))
}
