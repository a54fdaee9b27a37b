// Peeks and explanations from replicas of a Cluster: marked as stale, and without effect on the circuit breaker of the
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

/** The node timeout prevents promotions. CLUSTER SLOTS lists a replica once it has copied something. */
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

/** Number of read-only script calls that the nodes have run. */
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
  test('peeks are answered by replicas and marked stale; checks are not', async () => {
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

test('peeks read the replica of a silent primary, and leave its circuit breaker open', async () => {
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

test('a peek falls back to the primary if no replica replies', async () => {
  const bare = await startReplicated(1)
  const { limiter } = limiterOf(CLIENTS.ioredis(bare), 'sl')
  await limiter.check({ user: 'alice' })
  const [replica] = bare.nodes.filter(({ replicates }) => replicates !== undefined) as [ClusterNode]
  process.kill(replica.pid, 'SIGSTOP')
  const peeked = await limiter.peek({ user: 'alice' })
  expect(peeked).toMatchObject({ allowed: true, remaining: 9, source: 'store' })
  expect(peeked.stale).toBeUndefined()
})

test('readFrom: replicas is rejected for a single server', () => {
  const client = new Redis({ lazyConnect: true })
  expect(() => redisStore(client, { readFrom: 'replicas' })).toThrow(
    'readFrom: use "primaries", or "replicas" with a Cluster client (got "replicas")',
  )
})
