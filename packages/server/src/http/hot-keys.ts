// GET /api/v1/rate-limit/hot-keys: who gets most of the checks of this process. It tells something about clients, so it
// is behind the admin token, not there at all without one, and knows them by their keyed hashes only.

import type { FastifyInstance } from 'fastify'
import type { HotKey, Limiter } from 'sluice'
import type { KeyHash } from '../log.ts'
import { requireToken } from './admin.ts'
import { answers } from './schemas.ts'

export const HOT_KEYS_PATH = '/api/v1/rate-limit/hot-keys'
const LIMIT_DEFAULT = 20

const QUERY = {
  type: 'object',
  additionalProperties: false,
  properties: {
    limit: {
      type: 'string', // as all of a query is
      description: `How many at most, from 1 to 1000; ${LIMIT_DEFAULT} by default.`,
      examples: [String(LIMIT_DEFAULT)],
      pattern: '^([1-9][0-9]{0,2}|1000)$',
      'x-fix': 'give a whole number from 1 to 1000',
    },
  },
}

const ANSWER = {
  type: 'object',
  required: ['hot_keys'],
  properties: {
    hot_keys: {
      type: 'array',
      description: 'The hottest first. A key is hot when it gets one check of a hundred or more.',
      items: {
        type: 'object',
        required: ['rule_id', 'name', 'key_hash', 'checks_per_second', 'share'],
        properties: {
          rule_id: { type: 'string' },
          name: { type: 'string', description: 'Name of the limit within its rule.' },
          key_hash: {
            type: 'string',
            description: 'The first fact of the key, hashed as in the log; for a composite key, a dot and the others.',
          },
          checks_per_second: { type: 'number', description: 'Estimated.' },
          share: { type: 'number', description: 'Of all checks, estimated.' },
        },
      },
    },
  },
}

type HotKeysParts = {
  readonly limiter: Limiter
  readonly keyHash: KeyHash
  readonly adminToken: string | undefined
}

export function hotKeysRoute(app: FastifyInstance, { limiter, keyHash, adminToken }: HotKeysParts): void {
  if (adminToken === undefined) return
  const schema = {
    operationId: 'hotKeys',
    summary: 'Who gets most of the checks',
    description: 'Of this process, over about the last half minute, estimated from one check of 128.',
    tags: ['admin'],
    querystring: QUERY,
    response: answers(ANSWER, 400, 401),
  }
  const preValidation = requireToken(adminToken)
  app.get<{ Querystring: { limit?: string } }>(HOT_KEYS_PATH, { schema, preValidation }, ({ query: { limit } }) => {
    const hottest = limiter.hotKeys().slice(0, Number(limit ?? LIMIT_DEFAULT))
    return { hot_keys: hottest.map((key) => told(key, keyHash)) }
  })
}

function told({ ruleId, name, fact, owner, detail, checksPerSecond, share }: HotKey, keyHash: KeyHash): object {
  const rest = detail === '' ? '' : `.${keyHash('detail', detail)}`
  return {
    rule_id: ruleId,
    name,
    key_hash: keyHash(fact, owner) + rest,
    checks_per_second: Math.round(checksPerSecond),
    share: Number(share.toFixed(3)),
  }
}
