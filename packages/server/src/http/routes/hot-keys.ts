// GET /api/v1/rate-limit/hot-keys: keys with the most checks on this node. Clients appear as keyed hashes.

import type { FastifyInstance } from 'fastify'
import type { HotKey, Limiter } from 'sluice'
import { bucketHash, type KeyHash } from '../../log.ts'
import type { NodeWorkers } from '../../workers/node-workers.ts'
import { answers, limitQuery } from '../bodies/schemas.ts'

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
}

const TOPIC = 'hot_keys'

export function hotKeysRoute(app: FastifyInstance, { limiter, keyHash, workers }: HotKeysDeps): void {
  const schema = {
    operationId: 'hotKeys',
    summary: 'Keys with the most checks',
    description: 'Estimated for this node from one check in 128, over about 30 seconds.',
    tags: ['admin'],
    querystring: limitQuery(LISTED),
    response: answers(ANSWER, 400),
  }
  const config = { access: 'viewer' as const }
  workers.answer(TOPIC, () => limiter.hotKeys().map((key) => plainKey(key, keyHash)))
  app.get<{ Querystring: { limit?: string } }>(HOT_KEYS_PATH, { schema, config }, async ({ query: { limit } }) => {
    const { answers: ofWorkers } = await workers.gather<readonly PlainKey[]>(TOPIC)
    const hottest = mergeHotKeys(ofWorkers).slice(0, Number(limit ?? LISTED.default))
    return { hot_keys: hottest.map(rounded) }
  })
}

export type PlainKey = {
  readonly rule_id: string
  readonly name: string
  readonly key_hash: string
  readonly checks_per_second: number
  readonly share: number
}

/** Merges the reports of several workers by key, hottest first. */
export function mergeHotKeys(ofWorkers: readonly (readonly PlainKey[])[]): PlainKey[] {
  // Any key gives the total rate of its worker; without a hot key it is unknown.
  const rates = ofWorkers.map(([first]) => (first === undefined ? 0 : first.checks_per_second / first.share))
  const total = rates.reduce((sum, rate) => sum + rate, 0)
  const merged = new Map<string, PlainKey>()
  for (const key of ofWorkers.flat()) {
    const id = JSON.stringify([key.rule_id, key.name, key.key_hash])
    const checks_per_second = key.checks_per_second + (merged.get(id)?.checks_per_second ?? 0)
    merged.set(id, { ...key, checks_per_second, share: checks_per_second / total })
  }
  return [...merged.values()].sort((one, other) => other.checks_per_second - one.checks_per_second)
}

export function plainKey(key: HotKey, keyHash: KeyHash): PlainKey {
  const { ruleId: rule_id, name, checksPerSecond: checks_per_second, share } = key
  return { rule_id, name, key_hash: bucketHash(keyHash, key), checks_per_second, share }
}

function rounded(key: PlainKey): PlainKey {
  return { ...key, checks_per_second: Math.round(key.checks_per_second), share: Number(key.share.toFixed(3)) }
}
