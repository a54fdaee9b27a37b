// Reads that only tell somebody may come from replicas of a Cluster: marked, and never taken for the state of a
// primary.

import { Cluster, Redis } from 'ioredis'
import { createCluster } from 'redis'
import { createLimiter } from 'sluice'
import { type RedisClient, redisStore } from 'sluice/redis'
import { type ClusterNode, type RedisCluster, startRedisCluster } from 'sluice/testing'
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from 'vitest'
import { slotOfUser } from './failover-load.ts'

const SHARED = { algorithm: 'fixed_window', window_seconds: 366 * 86_400, consistency: 'strict' }
const RULES = [
  { rule_id: 'own', scope: 'per_user', limit: 10, on_fail: 'closed', ...SHARED },
  { rule_id: 'all', scope: 'global', limit: 1000, on_fail: 'closed', ...SHARED },
]

const CLIENTS = {
  ioredis: ({ addresses }: RedisCluster) => new Cluster([...addresses], { lazyConnect: true }),
  'node-redis': ({ addresses }: RedisCluster) => createCluster({ rootNodes: addresses.map((socket) => ({ socket })) }),
} satisfies Record<string, (cluster: RedisCluster) => RedisClient>

const running: RedisCluster[] = []
let cluster: RedisCluster
beforeAll(async () => {
  cluster = await startReplicated(3)
})
afterAll(async () => void (await Promise.all(running.map((one) => one.stop()))))

/** Nobody is promoted meanwhile. A replica is named to clients once it has copied something. */
async function startReplicated(primaries: number): Promise<RedisCluster> {
  const started = await startRedisCluster({ primaries, replicas: 1, nodeTimeoutMs: 10_000 })
  running.push(started)
  const client = new Cluster([...started.addresses])
  for (let key = 0; key < 50; key += 1) await client.set(`copied-${key}`, '')
  client.disconnect()
  for (const { url } of started.nodes) {
    const node = new Redis(url)
    const copies = async () => ((await node.cluster('SLOTS')) as unknown[][]).map(([, , ...nodes]) => nodes.length)
    await vi.waitUntil(async () => (await copies()).every((count) => count === 2), { timeout: 20_000 })
    node.disconnect()
  }
  return started
}

function limiterOf(client: RedisClient, prefix: string, rules: readonly object[] = RULES) {
  const store = redisStore(client, { readFrom: 'replicas', deadlineMs: 1000, prefix })
  const limiter = createLimiter({ rules, store })
  onTestFinished(() => limiter.close())
  return { limiter, store }
}

const replicas = () => cluster.nodes.filter(({ replicates }) => replicates !== undefined)

/** How many scripts that may not write these have run. */
async function readsOf(nodes: readonly ClusterNode[]): Promise<number> {
  const counts = nodes.map(async ({ url }) => {
    const client = new Redis(url)
    try {
      const stats = await client.info('commandstats')
      return [...stats.matchAll(/cmdstat_eval(?:sha)?_ro:calls=(\d+)/g)].reduce(
        (sum, [, calls]) => sum + Number(calls),
        0,
      )
    } finally {
      client.disconnect()
    }
  })
  return (await Promise.all(counts)).reduce((sum, count) => sum + count, 0)
}

describe.each(Object.entries(CLIENTS))('through %s', (name, clientOf) => {
  test('a peek is a replica’s and says so; a check is not', async () => {
    const { limiter } = limiterOf(clientOf(cluster), `reads-${name}`)
    const before = await readsOf(replicas())
    const checked = await limiter.check({ user: 'alice', cost: 3 })
    expect(checked).toMatchObject({ allowed: true, source: 'store' })
    expect(checked.stale).toBeUndefined()
    const peek = () => limiter.peek({ user: 'alice' })
    await expect.poll(async () => (await peek()).outcomes.map(({ remaining }) => remaining)).toEqual([7, 997])
    expect(await peek()).toMatchObject({ allowed: true, source: 'store', stale: true })
    expect((await limiter.explain({ user: 'alice' })).decision.stale).toBe(true)
    expect(await readsOf(replicas())).toBeGreaterThan(before)
  })
})

test('a primary that is silent is still read of its replica, and is not taken to be well because of that', async () => {
  const user = 'alice'
  const primaries = cluster.nodes.filter(({ replicates }) => replicates === undefined)
  const victim = primaries[Math.floor((slotOfUser(user) * primaries.length) / 16_384)] as ClusterNode
  const { limiter, store } = limiterOf(CLIENTS.ioredis(cluster), 'sl', RULES.slice(0, 1))
  expect((await limiter.check({ user })).allowed).toBe(true)
  const remaining = async () => (await limiter.peek({ user })).remaining
  await expect.poll(remaining).toBe(9)
  process.kill(victim.pid, 'SIGSTOP')
  try {
    while (store.breaker() === 'closed') expect(await limiter.check({ user })).toMatchObject({ source: 'policy' })
    expect(await limiter.peek({ user })).toMatchObject({ remaining: 9, stale: true, source: 'store' })
    expect(store.breaker()).not.toBe('closed')
  } finally {
    process.kill(victim.pid, 'SIGCONT')
  }
})

test('where no replica answers, the primary does', async () => {
  const bare = await startReplicated(1)
  const { limiter } = limiterOf(CLIENTS.ioredis(bare), 'sl')
  await limiter.check({ user: 'alice' })
  const [replica] = bare.nodes.filter(({ replicates }) => replicates !== undefined) as [ClusterNode]
  process.kill(replica.pid, 'SIGSTOP')
  const peeked = await limiter.peek({ user: 'alice' })
  expect(peeked).toMatchObject({ allowed: true, remaining: 9, source: 'store' })
  expect(peeked.stale).toBeUndefined()
})

test('of a single server there is nothing else to read from', () => {
  const client = new Redis({ lazyConnect: true })
  expect(() => redisStore(client, { readFrom: 'replicas' })).toThrow(
    'readFrom: use "primaries", or "replicas" with a client of a Cluster (got "replicas")',
  )
})
