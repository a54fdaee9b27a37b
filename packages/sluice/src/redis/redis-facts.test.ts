// What a real Redis says is understood.

import { Redis } from 'ioredis'
import { redisStore } from 'sluice/redis'
import { startRedis, startRedisCluster } from 'sluice/testing'
import { expect, onTestFinished, test } from 'vitest'

test('a Redis that may evict says so', async () => {
  const redis = await startRedis(['--maxmemory', '64mb', '--maxmemory-policy', 'allkeys-lru'])
  onTestFinished(() => redis.stop())
  const store = redisStore(new Redis(redis.url, { lazyConnect: true }))
  onTestFinished(() => store.close())
  await store.ready()
  const { default: facts } = await store.facts()
  expect(facts).toMatchObject({ keys: 0, maxBytes: 64 * 1024 * 1024, policy: 'allkeys-lru', mayEvict: true })
  expect(facts?.usedBytes).toBeGreaterThan(0)
})

test('a Cluster is the sum of its primaries', async () => {
  const cluster = await startRedisCluster({ primaries: 3, args: ['--maxmemory', '10mb'] })
  onTestFinished(() => cluster.stop())
  const { Cluster } = await import('ioredis')
  const store = redisStore(new Cluster([...cluster.addresses], { lazyConnect: true }))
  onTestFinished(() => store.close())
  await store.ready()
  const { default: facts } = await store.facts()
  expect(facts).toMatchObject({ maxBytes: 30 * 1024 * 1024, policy: 'noeviction', mayEvict: false })
})
