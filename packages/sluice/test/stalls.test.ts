// A process that stands still (a long event-loop turn, no CPU) for longer than the deadline, at the worst moments, with
// a real Redis that answers: the store decides every check, late, and on_fail none.

import { once } from 'node:events'
import { type AddressInfo, createServer } from 'node:net'
import { Cluster, Redis } from 'ioredis'
import { createCluster, createClient as createNodeRedis } from 'redis'
import { createLimiter, type Decision } from 'sluice'
import { type RedisClient, redisStore } from 'sluice/redis'
import { startRedis, startRedisCluster } from 'sluice/testing'
import { expect, onTestFinished, test } from 'vitest'

/** Generous, so that a Redis without a core answers in time; below the silence after which a connection is closed. */
const DEADLINE_MS = 1000
const STALL_MS = 1400
/** Several of them take longer than the deadline until the first connection, 1 s. */
const CONNECTING_STALL_MS = 700
/** ioredis gives up the slots of a Cluster after 1 s, stalls included, and connecting takes more turns. */
const CLUSTER_STALL_MS = 400
const LIMIT = 10
const CHECKS = 40
const SHARED = { limit: LIMIT, window: '365d', algorithm: 'fixed_window' }
const RULES = [
  { rule_id: 'leased', endpoint_pattern: '/leased', scope: 'per_user', consistency: 'leased', ...SHARED },
  { rule_id: 'strict', endpoint_pattern: '/strict', scope: 'per_user', consistency: 'strict', ...SHARED },
  // Two targets, one after the other, in a Cluster.
  { rule_id: 'own', endpoint_pattern: '/both', scope: 'per_user', consistency: 'strict', ...SHARED },
  { rule_id: 'all', endpoint_pattern: '/both', scope: 'global', consistency: 'strict', ...SHARED, limit: 1_000_000 },
]

type Bed = { readonly client: RedisClient; readonly ports: readonly number[] }

async function single(): Promise<number> {
  const redis = await startRedis()
  onTestFinished(() => redis.stop())
  return redis.port
}

function nodeRedis(port: number): RedisClient {
  return createNodeRedis({ url: `redis://127.0.0.1:${port}` }) as unknown as RedisClient
}

const BEDS: readonly (readonly [name: string, open: () => Promise<Bed>])[] = [
  [
    'ioredis',
    async () => {
      const port = await single()
      return { client: new Redis(port, { lazyConnect: true }), ports: [port] }
    },
  ],
  [
    'node-redis',
    async () => {
      const port = await single()
      return { client: nodeRedis(port), ports: [port] }
    },
  ],
  [
    'ioredis and a Cluster',
    async () => {
      const cluster = await startRedisCluster({ primaries: 3 })
      onTestFinished(() => cluster.stop())
      const ports = cluster.nodes.map(({ port }) => port)
      return { client: new Cluster([...cluster.addresses], { lazyConnect: true }), ports }
    },
  ],
  [
    'node-redis and a Cluster',
    async () => {
      const cluster = await startRedisCluster({ primaries: 3 })
      onTestFinished(() => cluster.stop())
      const rootNodes = cluster.addresses.map(({ host, port }) => ({ url: `redis://${host}:${port}` }))
      return {
        client: createCluster({ rootNodes }) as unknown as RedisClient,
        ports: cluster.nodes.map(({ port }) => port),
      }
    },
  ],
]

test.each(BEDS)('with %s, a process that stalls answers late, and never by policy', async (_name, open) => {
  const { client, ports } = await open()
  const store = redisStore(client, { deadlineMs: DEADLINE_MS })
  const limiter = createLimiter({ rules: RULES, store })
  onTestFinished(() => limiter.close())
  await store.ready()
  const admins = ports.map((port) => new Redis(port))
  onTestFinished(() => admins.forEach((admin) => void admin.disconnect()))
  const paths = ['/leased', '/strict', '/both']
  const moments = [
    { name: 'before the takes are written', wait: async () => {} },
    { name: 'after a turn', wait: () => new Promise<void>((resolve) => void setImmediate(resolve)) },
    { name: 'after two turns', wait: () => turns(2) },
    { name: 'with takes on their way, and others that wait for them', wait: () => turns(4) },
  ]
  for (const [round, { name, wait }] of moments.entries()) {
    // Scripts are unknown again: the first call of each is refused, and sent again with its text.
    await Promise.all(admins.map((admin) => admin.script('FLUSH')))
    const pending: Promise<Decision>[] = []
    const ask = () => {
      for (const path of paths) pending.push(limiter.check({ user: `user ${round}`, path }))
    }
    for (let count = 0; count < CHECKS / 2; count += 1) ask()
    await wait()
    standStill(STALL_MS)
    for (let count = 0; count < CHECKS / 2; count += 1) ask()
    await turns(1)
    standStill(STALL_MS)
    const decisions = await Promise.all(pending)
    const reasons = decisions.flatMap(({ policyReason }) => policyReason ?? [])
    expect(reasons, name).toEqual([])
    for (const [index, path] of paths.entries()) {
      const admitted = decisions.filter(({ allowed }, at) => allowed && at % paths.length === index)
      expect([name, path, admitted.length]).toEqual([name, path, LIMIT])
    }
  }
  expect(store.stats?.()).toMatchObject({ policy_decisions: 0, timeouts: 0, late_replies: 0, breaker_open: 0 })
})

test.each(BEDS)('with %s, a process that stalls while it connects waits for its connection', async (_name, open) => {
  const { client, ports } = await open()
  const stallMs = ports.length > 1 ? CLUSTER_STALL_MS : CONNECTING_STALL_MS
  const store = redisStore(client, { deadlineMs: 100 })
  const limiter = createLimiter({ rules: RULES, store })
  onTestFinished(() => limiter.close())
  let isReady = false
  void store.ready().then(() => {
    isReady = true
  })
  const pending = ['/leased', '/strict', '/both'].map((path) => limiter.check({ user: 'alice', path }))
  for (let stalls = 0; !isReady || stalls < 4; stalls += 1) {
    await turns(1)
    standStill(stallMs)
  }
  const decisions = await Promise.all(pending)
  expect(decisions.map(({ source, policyReason }) => [source, policyReason])).toEqual(
    Array(3).fill(['store', undefined]),
  )
  expect(store.stats?.()).toMatchObject({ policy_decisions: 0, timeouts: 0 })
})

test.each(['ioredis', 'node-redis'])('with %s, a Redis that never answers is not waited for, even so', async (name) => {
  const silent = createServer(() => {}).listen(0, '127.0.0.1')
  onTestFinished(() => void silent.close())
  await once(silent, 'listening')
  const { port } = silent.address() as AddressInfo
  const client = name === 'ioredis' ? new Redis(port, { lazyConnect: true }) : nodeRedis(port)
  const store = redisStore(client, { deadlineMs: 100 })
  const limiter = createLimiter({ rules: RULES, store })
  onTestFinished(() => limiter.close())
  const pending = limiter.check({ user: 'alice', path: '/strict' })
  let isDecided = false
  void pending.then(() => {
    isDecided = true
  })
  while (!isDecided) {
    await turns(1)
    standStill(CONNECTING_STALL_MS)
  }
  expect((await pending).policyReason).toMatch(/^(timeout|unavailable)$/)
  expect(store.stats?.()).toMatchObject({ policy_decisions: 1 })
})

/** Blocks this process without using the CPU: Redis goes on. */
function standStill(ms: number): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms)
}

async function turns(count: number): Promise<void> {
  for (let turn = 0; turn < count; turn += 1) await new Promise((resolve) => setImmediate(resolve))
}
