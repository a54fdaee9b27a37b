import { Redis } from 'ioredis'
import { redisStore } from 'sluice/redis'
import { startRedis, startRedisCluster } from 'sluice/testing'
import { expect, onTestFinished, test } from 'vitest'

test('info reports that Redis may evict', async () => {
  const redis = await startRedis(['--maxmemory', '64mb', '--maxmemory-policy', 'allkeys-lru'])
  onTestFinished(() => redis.stop())
  const store = redisStore(new Redis(redis.url, { lazyConnect: true }))
  onTestFinished(() => store.close())
  await store.ready()
  const { default: info } = await store.info()
  expect(info).toMatchObject({ keys: 0, maxBytes: 64 * 1024 * 1024, policy: 'allkeys-lru', mayEvict: true })
  expect(info?.usedBytes).toBeGreaterThan(0)
})

test('info of a Cluster is the sum over its primaries', async () => {
  const cluster = await startRedisCluster({ primaries: 3, args: ['--maxmemory', '10mb'] })
  onTestFinished(() => cluster.stop())
  const { Cluster } = await import('ioredis')
  const store = redisStore(new Cluster([...cluster.addresses], { lazyConnect: true }))
  onTestFinished(() => store.close())
  await store.ready()
  const { default: info } = await store.info()
  expect(info).toMatchObject({ maxBytes: 30 * 1024 * 1024, policy: 'noeviction', mayEvict: false })
})
