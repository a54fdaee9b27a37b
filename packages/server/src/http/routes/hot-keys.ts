// GET /api/v1/rate-limit/hot-keys: who gets most of the checks of this process. Clients are known by their keyed hashes
// only.

import type { FastifyInstance } from 'fastify'
import type { HotKey, Limiter } from 'sluice'
import { bucketHash, type KeyHash } from '../../log.ts'
import { answers, limitQuery } from '../bodies/schemas.ts'

export const HOT_KEYS_PATH = '/api/v1/rate-limit/hot-keys'
const LISTED = { default: 20, max: 1000 } as const

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

export function hotKeysRoute(app: FastifyInstance, limiter: Limiter, keyHash: KeyHash): void {
  const schema = {
    operationId: 'hotKeys',
    summary: 'Who gets most of the checks',
    description: 'Of this process, over about the last half minute, estimated from one check of 128.',
    tags: ['admin'],
    querystring: limitQuery(LISTED),
    response: answers(ANSWER, 400),
  }
  const config = { access: 'viewer' as const }
  app.get<{ Querystring: { limit?: string } }>(HOT_KEYS_PATH, { schema, config }, ({ query: { limit } }) => {
    const hottest = limiter.hotKeys().slice(0, Number(limit ?? LISTED.default))
    return { hot_keys: hottest.map((key) => told(key, keyHash)) }
  })
}

function told(key: HotKey, keyHash: KeyHash): object {
  return {
    rule_id: key.ruleId,
    name: key.name,
    key_hash: bucketHash(keyHash, key),
    checks_per_second: Math.round(key.checksPerSecond),
    share: Number(key.share.toFixed(3)),
  }
}
