// GET /api/v1/rate-limit/hot-keys: keys with the most checks, on this node or on all. Clients appear as keyed hashes.

import type { FastifyInstance } from 'fastify'
import type { Limiter } from 'sluice'
import { type ApiHotKey, apiHotKey, mergeHotKeys } from '../../fleet/api-hot-key.ts'
import type { Fleet } from '../../fleet/fleet.ts'
import type { KeyHash } from '../../log.ts'
import type { NodeWorkers } from '../../workers/node-workers.ts'
import { answers, limitQuery, type Schema } from '../bodies/schemas.ts'

export const HOT_KEYS_PATH = '/api/v1/rate-limit/hot-keys'
const LISTED = { default: 20, max: 1000 } as const

const ANSWER = {
  type: 'object',
  required: ['hot_keys'],
  properties: {
    hot_keys: {
      type: 'array',
      description: 'Hottest first. A key is hot if it gets at least 1 % of the checks.',
      items: {
        type: 'object',
        required: ['rule_id', 'name', 'key_hash', 'checks_per_second', 'share'],
        properties: {
          rule_id: { type: 'string' },
          name: { type: 'string', description: 'Name of the limit within its rule.' },
          key_hash: {
            type: 'string',
            description:
              'Hash of the first fact of the key, as in the log. A composite key adds a dot and a hash of the others.',
          },
          checks_per_second: { type: 'number', description: 'Estimated.' },
          share: { type: 'number', description: 'Estimated share of all checks.' },
        },
      },
    },
  },
}

export type HotKeysDeps = {
  readonly limiter: Limiter
  readonly keyHash: KeyHash
  readonly workers: NodeWorkers
  /** Undefined: this node does not know other nodes. */
  readonly fleet: Fleet | undefined
}

const TOPIC = 'hot_keys'
const NODES: Schema = {
  type: 'string',
  enum: ['this', 'all'],
  description: 'Default: this, the node that responds, with all its workers.',
  'x-fix': 'use this or all',
}

const LIMIT = limitQuery(LISTED)
const QUERY = { ...LIMIT, properties: { ...(LIMIT.properties as object), nodes: NODES } }

export function hotKeysRoute(app: FastifyInstance, { limiter, keyHash, workers, fleet }: HotKeysDeps): void {
  const schema = {
    operationId: 'hotKeys',
    summary: 'Keys with the most checks',
    description:
      'Estimated for this node, or for all nodes, from one check in 128, over about 30 seconds. Of other nodes, the ' +
      '20 busiest keys are known; a key has the same hash only with the same --key-secret.',
    tags: ['admin'],
    querystring: QUERY,
    response: answers(ANSWER, 400),
  }
  const config = { access: 'viewer' as const }
  workers.answer(TOPIC, () => limiter.hotKeys().map((key) => apiHotKey(key, keyHash)))
  type Query = { readonly limit?: string; readonly nodes?: 'this' | 'all' }
  app.get<{ Querystring: Query }>(HOT_KEYS_PATH, { schema, config }, async ({ query: { limit, nodes = 'this' } }) => {
    const found =
      nodes === 'all' && fleet !== undefined
        ? await fleet.hotKeys()
        : (await workers.gather<readonly ApiHotKey[]>(TOPIC)).answers
    const hottest = mergeHotKeys(found).slice(0, Number(limit ?? LISTED.default))
    return { hot_keys: hottest.map(rounded) }
  })
}

function rounded(key: ApiHotKey): ApiHotKey {
  return { ...key, checks_per_second: Math.round(key.checks_per_second), share: Number(key.share.toFixed(3)) }
}
