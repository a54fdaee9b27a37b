import { Cluster, Redis } from 'ioredis'
import { createLimiter } from 'sluice'
import { redisStore, type ServerName } from 'sluice/redis'
import { startFaultProxy, startRedis, startRedisCluster } from 'sluice/testing'
import { expect, onTestFinished, test, vi } from 'vitest'

const RULE = { rule_id: 'r', limit: 1000, window: '1h', scope: 'per_user', consistency: 'strict' } as const

test('batches and errors name the store that answered or failed', async () => {
  const [own, hot] = await Promise.all([startRedis(), startRedis()])
  const [batches, errors]: [ServerName[], ServerName[]] = [[], []]
  const clientOf = (url: string) => new Redis(url, { lazyConnect: true })
  const store = redisStore(clientOf(own.url), {
    stores: { hot: clientOf(hot.url) },
    deadlineMs: 5000,
    onBatch: (_requests, _seconds, at) => void batches.push(at),
    onError: (_error, at) => void errors.push(at),
    onTransition: () => {},
  })
  const limiter = createLimiter({
    store,
    rules: [RULE, { ...RULE, rule_id: 'h', store: 'hot', endpoint_pattern: '/hot' }],
  })
  onTestFinished(async () => {
    await limiter.close()
    await Promise.all([own.stop(), hot.stop()])
  })
  await limiter.check({ user: 'a', path: '/hot' })
  expect(new Set(batches.map(({ store: name }) => name))).toEqual(new Set(['default', 'hot']))
  expect(errors).toEqual([])
  await hot.stop()
  await vi.waitFor(async () => {
    await limiter.check({ user: 'a', path: '/hot' })
    expect(errors.length).toBeGreaterThan(0)
  })
  expect(new Set(errors.map(({ store: name }) => name))).toEqual(new Set(['hot']))
})

test('servers counts the checks that a server did not answer within the deadline', async () => {
  const redis = await startRedis()
  const way = await startFaultProxy(redis.port)
  const store = redisStore(new Redis(way.port, { lazyConnect: true }), { deadlineMs: 200, onTransition: () => {} })
  const limiter = createLimiter({ store, rules: [RULE] })
  onTestFinished(async () => {
    await limiter.close()
    await way.stop()
    await redis.stop()
  })
  await store.ready()
  way.delayReplies(10_000)
  expect((await limiter.check({ user: 'a' })).source).toBe('policy')
  expect(store.servers()).toMatchObject([{ store: 'default', server: undefined, timeouts: 1 }])
})

test('batches of a Cluster name the primary', async () => {
  const cluster = await startRedisCluster({ primaries: 3 })
  const servers = new Set<string | undefined>()
  const store = redisStore(new Cluster([...cluster.addresses], { lazyConnect: true }), {
    deadlineMs: 5000,
    onBatch: (_requests, _seconds, { server }) => void servers.add(server),
  })
  const limiter = createLimiter({ store, rules: [RULE] })
  onTestFinished(async () => {
    await limiter.close()
    await cluster.stop()
  })
  await store.ready()
  for (let user = 0; user < 100; user += 1) await limiter.check({ user: `user-${user}` })
  expect(servers).toEqual(new Set(store.servers().map(({ server }) => server)))
  expect(servers.size).toBe(3)
  expect(servers).not.toContain(undefined)
})
