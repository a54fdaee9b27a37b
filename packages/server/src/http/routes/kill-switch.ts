// /api/v1/rate-limit/kill-switch: disables a rule, or all rules, and enables them again.

import type { FastifyInstance } from 'fastify'
import { type Limiter, suggestion } from 'sluice'
import type { Kill, KillStore, KillSwitch } from '../../kill-switch/kill-switch.ts'
import { invalidField } from '../../problems/problem.ts'
import { answers, REASON, text } from '../bodies/schemas.ts'

export const KILL_SWITCH_PATH = '/api/v1/rate-limit/kill-switch'
/** Every check iterates over all of them. */
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
    rule_id: text('The rule to disable or enable.', 'demo', 64),
    everything: {
      type: 'boolean',
      const: true,
      description: 'Instead of rule_id: all rules.',
      'x-fix': 'omit it, or use true',
    },
    on: { type: 'boolean', description: 'true disables, false enables again.', 'x-fix': 'use true or false' },
    reason: REASON,
  },
  'x-fix': 'send a JSON object with on, and rule_id or everything',
  examples: [{ rule_id: 'demo', on: true, reason: 'blocks all users in Spain' }],
}

const ANSWER = {
  type: 'object',
  required: ['everything', 'durable', 'kills'],
  properties: {
    everything: { type: 'boolean', description: 'Whether all rules are disabled.' },
    durable: {
      type: 'boolean',
      description: 'true: applies to all nodes and survives a restart. false: applies to this node until it stops.',
    },
    kills: {
      type: 'array',
      items: {
        type: 'object',
        properties: {
          rule_id: { type: ['string', 'null'], description: 'null: all rules.' },
          since: { type: 'string' },
          by: { type: 'string', description: 'The id of a token, or admin-token.' },
          by_name: { type: ['string', 'null'], description: 'The name of that token.' },
          reason: { type: ['string', 'null'] },
        },
      },
    },
  },
}

export type PlainKill = {
  /** null: all rules. */
  readonly rule_id: string | null
  readonly since: string
  readonly by: string
  readonly by_name: string | null
  readonly reason: string | null
}

export type KillState = {
  readonly everything: boolean
  readonly durable: boolean
  readonly kills: readonly PlainKill[]
}

export type KillDeps = {
  readonly limiter: Limiter
  readonly killSwitch: KillSwitch
  readonly kills: KillStore
  readonly nowIso: () => string
}

export function killSwitchRoutes(app: FastifyInstance, deps: KillDeps): void {
  const { killSwitch, kills, nowIso } = deps
  const state = (): KillState => ({
    everything: killSwitch.everything,
    durable: kills.durable,
    kills: killSwitch.kills.map(plainKill),
  })
  const tags = ['admin']
  const read = { operationId: 'readKillSwitch', summary: 'Disabled rules', tags, response: answers(ANSWER) }
  app.get(KILL_SWITCH_PATH, { schema: read, config: { access: 'viewer' } }, state)
  const description = 'Takes effect immediately, without changing the rules. A disabled rule charges no buckets.'
  const about = { operationId: 'killSwitch', summary: 'Disable rules', description, tags }
  const schema = { ...about, body: BODY, response: answers(ANSWER, 400, 503) }
  const config = { access: 'approver' as const }
  app.post<{ Body: KillBody }>(KILL_SWITCH_PATH, { schema, config }, async ({ body, caller }) => {
    const ruleId = targetOf(body, deps)
    const { reason = null } = body
    if (!body.on) await kills.enable(ruleId, caller.id, reason)
    else await kills.disable({ ruleId, since: nowIso(), by: caller.id, reason })
    return state()
  })
}

function plainKill({ ruleId: rule_id, since, by, byName = null, reason }: Kill): PlainKill {
  return { rule_id, since, by, by_name: byName, reason }
}

/** null: all rules. */
function targetOf({ rule_id: ruleId, everything, on }: KillBody, { limiter, killSwitch }: KillDeps): string | null {
  if ((ruleId === undefined) === (everything === undefined))
    throw invalidField('rule_id', ruleId, 'give either rule_id or "everything": true')
  if (ruleId === undefined) return null
  if (killSwitch.kills.some((kill) => kill.ruleId === ruleId)) return ruleId
  if (!on || limiter.rule(ruleId) === undefined) {
    const known = on ? limiter.rules.map((rule) => rule.rule_id) : killSwitch.kills.flatMap((kill) => kill.ruleId ?? [])
    const fix = on ? 'give the id of a rule' : 'give the id of a disabled rule'
    throw invalidField('rule_id', ruleId, fix + suggestion(ruleId, known))
  }
  if (killSwitch.kills.length >= KILLS_MAX)
    throw invalidField('rule_id', ruleId, `use "everything": ${KILLS_MAX} rules are disabled already`)
  return ruleId
}
