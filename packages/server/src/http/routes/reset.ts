// POST /api/v1/rate-limit/buckets/reset: resets the buckets of one key and one rule.

import type { FastifyInstance } from 'fastify'
import type { Limiter } from 'sluice'
import type { Audited } from '../../audit/audit.ts'
import type { EventPipeline } from '../../events/pipeline.ts'
import type { Log } from '../../log.ts'
import { answers, CHECK_BYTES_MAX, REASON, text } from '../bodies/schemas.ts'

export const RESET_PATH = '/api/v1/rate-limit/buckets/reset'

type ResetBody = {
  readonly rule_id: string
  readonly key: string | Readonly<Record<string, string>>
  readonly reason?: string
}

export type ResetDeps = {
  readonly limiter: Limiter
  readonly log: Log
  readonly audited: Audited
  /** Undefined: no sink is configured. */
  readonly events: Pick<EventPipeline, 'recordReset'> | undefined
}

const VALUE_MAX = 1024

const BODY = {
  type: 'object',
  additionalProperties: false,
  required: ['rule_id', 'key'],
  properties: {
    rule_id: text('The rule.', 'messages_per_min', 64),
    key: {
      type: ['string', 'object'],
      description: 'Key of the bucket: the value of the fact or, for a composite key, every fact by name.',
      examples: ['user_12345', { user: 'user_12345', endpoint: 'POST /api/v1/messages' }],
      maxLength: VALUE_MAX,
      maxProperties: 32,
      additionalProperties: { type: 'string', maxLength: VALUE_MAX, 'x-fix': 'give a string' },
      'x-fix': `give a string of at most ${VALUE_MAX} characters, or an object of facts; "" for a global rule`,
    },
    reason: REASON,
  },
  'x-fix': 'send a JSON object with rule_id and key',
  examples: [{ rule_id: 'messages_per_min', key: 'user_12345' }],
}

const ANSWER = { type: 'object', required: ['reset'], properties: { reset: { type: 'boolean' } } }

export function resetRoute(app: FastifyInstance, { limiter, log, audited, events }: ResetDeps): void {
  const schema = {
    operationId: 'resetBuckets',
    summary: 'Reset the buckets of one key and one rule',
    description:
      'All limits of the rule. Other nodes follow within 200 ms; units that they have on lease stay spendable.',
    tags: ['admin'],
    body: BODY,
    response: answers(ANSWER, 400, 503),
  }
  const options = { schema, config: { access: 'editor' as const }, bodyLimit: CHECK_BYTES_MAX }
  app.post<{ Body: ResetBody }>(RESET_PATH, options, async ({ body: { rule_id, key, reason }, caller }) => {
    const entry = { actor: caller.id, action: 'bucket.reset', target: `rule ${rule_id}`, diff: { key }, reason }
    await audited(entry, () => limiter.reset(rule_id, key))
    events?.recordReset({ ruleId: rule_id, scope: limiter.rule(rule_id)?.scope ?? [], key })
    log.event('bucket_reset', { rule_id, by: caller.id })
    return { reset: true }
  })
}
