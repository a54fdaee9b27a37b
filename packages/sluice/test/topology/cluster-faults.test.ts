// A Redis Cluster under load: migrating slots, a silent primary, shards, and contention for a shared bucket.

import { Cluster, Redis } from 'ioredis'
import { createCluster } from 'redis'
import { createLimiter } from 'sluice'
import { type RedisClient, redisStore } from 'sluice/redis'
import { type ClusterNode, type RedisCluster, startRedisCluster } from 'sluice/testing'
import { describe, expect, onTestFinished, test } from 'vitest'
import { DEADLINE_MS, FailoverLoad, LIMIT, slotOfUser } from './failover-load.ts'

const PATIENTLY = { timeout: 20_000, interval: 50 }

const CLIENTS: Record<string, (cluster: RedisCluster) => RedisClient> = {
  ioredis: ({ addresses }) => new Cluster([...addresses], { lazyConnect: true }),
  'node-redis': ({ addresses }) => createCluster({ rootNodes: addresses.map((socket) => ({ socket })) }),
}

async function startCluster(options: Parameters<typeof startRedisCluster>[0]): Promise<RedisCluster> {
  const cluster = await startRedisCluster(options)
  onTestFinished(() => cluster.stop())
  return cluster
}

function primariesOf({ nodes }: RedisCluster): ClusterNode[] {
  return nodes.filter(({ replicates }) => replicates === undefined)
}

/** Slots are assigned evenly, in the order of the primaries. */
function primaryOf(cluster: RedisCluster, user: string): ClusterNode | undefined {
  const primaries = primariesOf(cluster)
  return primaries[Math.floor((slotOfUser(user) * primaries.length) / 16_384)]
}

describe.each(Object.entries(CLIENTS))('through %s', (_name, clientOf) => {
  test('a slot migration under load fails no check and counts none twice', async () => {
    const cluster = await startCluster({ primaries: 2 })
    const [from, to] = primariesOf(cluster) as [ClusterNode, ClusterNode]
    const load = new FailoverLoad(clientOf(cluster), 60)
    await load.rounds(5)
    const moving = new Set(load.users.filter((user) => primaryOf(cluster, user) === from).map(slotOfUser))
    const move = moveSlots([...moving], from, to)
    await Promise.all([move, load.rounds(30)])
    await load.untilSpent()
    for (const user of load.users) {
      expect(load.wasAlwaysRedis(user), user).toBe(true)
      expect(load.admitted(user), user).toBe(LIMIT)
    }
  })

  test('a silent primary delays the checks of its own users up to the deadline, and no others', async () => {
    const cluster = await startCluster({ nodeTimeoutMs: 60_000 })
    const [victim] = primariesOf(cluster) as [ClusterNode]
    const load = new FailoverLoad(clientOf(cluster), 60)
    await load.rounds(5)
    const [own, others] = [true, false].map((isOwn) => {
      return load.users.filter((user) => (primaryOf(cluster, user) === victim) === isOwn)
    }) as [string[], string[]]
    const idle = redisStore(clientOf(cluster), { idleProbeMs: 500, deadlineMs: 1000, onTransition: () => {} })
    onTestFinished(() => idle.close())
    const states = () => idle.servers().map(({ state }) => state)
    await expect.poll(states, PATIENTLY).toEqual(['closed', 'closed', 'closed'])
    const fromMs = performance.now()
    process.kill(victim.pid, 'SIGSTOP')
    await load.rounds(10)
    expect(load.p99Ms(own, fromMs, Number.POSITIVE_INFINITY)).toBeGreaterThanOrEqual(DEADLINE_MS)
    expect(load.p99Ms(others, fromMs, Number.POSITIVE_INFINITY)).toBeLessThan(DEADLINE_MS / 2)
    expect(others.every((user) => load.wasAlwaysRedis(user))).toBe(true)
    await expect
      .poll(() => states().toSorted(), { ...PATIENTLY, message: 'of a store without traffic' })
      .toEqual(['closed', 'closed', 'open'])
  })
})

test('concurrent checks of many users share one script call per slot group', async () => {
  const cluster = await startCluster({ primaries: 2 })
  const rule = { rule_id: 'own', scope: 'per_user', limit: 5, window_seconds: 60, consistency: 'strict' }
  const store = redisStore(new Cluster([...cluster.addresses]), { deadlineMs: 5000 })
  const limiter = createLimiter({ rules: [rule], store })
  onTestFinished(() => limiter.close())
  await store.ready()
  await Promise.all(Array.from({ length: 200 }, (_, index) => limiter.check({ user: `user-${index}` })))
  expect(store.stats?.()).toMatchObject({ requests: 200, batches: 16 })
})

test('the shards of a bucket are on different primaries', async () => {
  const cluster = await startCluster({ primaries: 4 })
  const rule = { rule_id: 'hot', scope: 'global', limit: 400, window_seconds: 60, shards: 4, consistency: 'strict' }
  const store = redisStore(new Cluster([...cluster.addresses]), { deadlineMs: 5000 })
  const limiter = createLimiter({ rules: [rule], store })
  onTestFinished(() => limiter.close())
  for (let index = 0; index < 40; index += 1) await limiter.check({})
  const keys = await Promise.all(primariesOf(cluster).map(({ port }) => countBuckets(port)))
  expect(keys).toEqual([1, 1, 1, 1])
})

test('a client over its own limit never holds units of a shared bucket', async () => {
  const cluster = await startCluster({ primaries: 2 })
  const strict = { window_seconds: 3600, algorithm: 'fixed_window', consistency: 'strict' }
  const rules = [
    { rule_id: 'own', scope: 'per_user', limit: 100, ...strict },
    { rule_id: 'all', scope: 'global', limit: 300, ...strict },
  ]
  // Without leases no refusal is cached: every request of the attacker reaches Redis.
  const store = redisStore(new Cluster([...cluster.addresses]), { deadlineMs: 5000, leases: false })
  const limiter = createLimiter({ rules, store })
  onTestFinished(() => limiter.close())
  const admitted = async (user: string, count: number) => {
    const decisions = await Promise.all(Array.from({ length: count }, () => limiter.check({ user })))
    return decisions.filter(({ allowed }) => allowed).length
  }
  expect(await admitted('attacker', 150)).toBe(100)
  const [stolen, ...honest] = await Promise.all([
    admitted('attacker', 2000),
    ...Array.from({ length: 4 }, (_, index) => admitted(`honest-${index}`, 50)),
  ])
  expect(stolen).toBe(0)
  expect(honest).toEqual([50, 50, 50, 50])
})

/** Migrates slots key by key, as redis-cli does. */
async function moveSlots(slots: readonly number[], from: ClusterNode, to: ClusterNode): Promise<void> {
  const [source, target] = [new Redis(from.url), new Redis(to.url)]
  try {
    for (const slot of slots) {
      await target.call('CLUSTER', 'SETSLOT', slot, 'IMPORTING', from.id)
      await source.call('CLUSTER', 'SETSLOT', slot, 'MIGRATING', to.id)
      for (;;) {
        const keys = (await source.call('CLUSTER', 'GETKEYSINSLOT', slot, 1)) as string[]
        if (keys.length === 0) break
        await source.call('MIGRATE', '127.0.0.1', to.port, '', 0, 5000, 'KEYS', ...keys)
      }
      await target.call('CLUSTER', 'SETSLOT', slot, 'NODE', to.id)
      await source.call('CLUSTER', 'SETSLOT', slot, 'NODE', to.id)
    }
  } finally {
    source.disconnect()
    target.disconnect()
  }
}

async function countBuckets(port: number): Promise<number> {
  const redis = new Redis(port)
  try {
    return (await redis.keys('sl:{*')).length
  } finally {
    redis.disconnect()
  }
}
