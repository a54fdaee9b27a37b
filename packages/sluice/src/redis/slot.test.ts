import { Redis } from 'ioredis'
import { type RedisCluster, startRedisCluster } from 'sluice/testing'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { slotOf } from './slot.ts'

let cluster: RedisCluster
beforeAll(async () => {
  cluster = await startRedisCluster({ primaries: 1 })
})
afterAll(() => cluster.stop())

test('slots equal those that CLUSTER KEYSLOT returns', async () => {
  const admin = new Redis(cluster.nodes[0]?.url ?? '')
  const keys = ['123456789', 'sl:{user:alice}', 'sl:{user:alice}:log:r|', 'a{}b', 'a{b', '{', '{ü€😀}x', 'a{b}{c}', '']
  try {
    for (const key of keys) expect(slotOf(key), key).toBe(Number(await admin.call('CLUSTER', 'KEYSLOT', key)))
  } finally {
    admin.disconnect()
  }
})
