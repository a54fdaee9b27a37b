// A Redis that is out of memory under `noeviction`: buckets that exist keep deciding, new ones follow `on_fail`, and
// the circuit breaker stays closed.

import { Cluster, Redis } from 'ioredis'
import { createLimiter, type Limiter } from 'sluice'
import { type RedisStore, redisStore } from 'sluice/redis'
import { startRedis, startRedisCluster } from 'sluice/testing'
import { expect, onTestFinished, test, vi } from 'vitest'

const WINDOW = { window: '1h', algorithm: 'fixed_window', consistency: 'strict' } as const
const RULES = [
  { rule_id: 'user', scope: 'per_user', limit: 5, endpoint_pattern: '/open', ...WINDOW },
  { rule_id: 'closed', scope: 'per_user', limit: 5, endpoint_pattern: '/closed', on_fail: 'closed', ...WINDOW },
  { rule_id: 'local', scope: 'per_user', limit: 4, endpoint_pattern: '/local', on_fail: 'local', ...WINDOW },
  { rule_id: 'both_user', scope: 'per_user', limit: 5, endpoint_pattern: '/both', ...WINDOW },
  { rule_id: 'both_ip', scope: 'per_ip', limit: 100, endpoint_pattern: '/both', ...WINDOW },
  {
    rule_id: 'permits',
    scope: 'per_user',
    limit: 1,
    window: '1h',
    endpoint_pattern: '/permits',
    algorithm: 'concurrency',
  },
  { rule_id: 'leased', scope: 'per_user', limit: 1000, window: '1h', endpoint_pattern: '/leased' },
  { rule_id: 'log', scope: 'per_user', limit: 5, endpoint_pattern: '/log', ...WINDOW, algorithm: 'sliding_window_log' },
]

type Full = { limiter: Limiter; store: RedisStore; admin: Redis; errors: string[] }

test('buckets that exist keep deciding, and new ones follow on_fail', async () => {
  const { limiter, store } = await fullRedis()
  expect(await admitted(limiter, { user: 'old', path: '/open' })).toBe(4) // one unit was used before
  expect(await admitted(limiter, { user: 'old', path: '/log' })).toBe(4)
  expect(await admitted(limiter, { user: 'new', path: '/open' })).toBe(10)
  expect(await admitted(limiter, { user: 'new', path: '/closed' })).toBe(0)
  expect(await admitted(limiter, { user: 'new', path: '/local' })).toBe(2) // the node share: 4 / 2 nodes
  expect(store.breaker()).toBe('closed')
})

test('in one request, the bucket that exists decides and the new one follows on_fail', async () => {
  const { limiter } = await fullRedis()
  const decisions = []
  for (let number = 0; number < 10; number += 1) {
    decisions.push(await limiter.check({ user: 'old', ip: `192.0.2.${number}`, path: '/both' }))
  }
  expect(decisions.filter(({ allowed }) => allowed)).toHaveLength(4)
  expect(decisions.at(-1)).toMatchObject({ allowed: false, ruleId: 'both_user' })
})

test('a flood of made-up users does not affect the limits of others', async () => {
  const { limiter, store } = await fullRedis()
  const flood = Array.from({ length: 2000 }, (_, number) =>
    limiter.check({ user: `invented ${number}`, path: '/open' }),
  )
  const old = Array.from({ length: 50 }, () => limiter.check({ user: 'old', path: '/open' }))
  expect((await Promise.all(flood)).every(({ allowed, source }) => allowed && source === 'policy')).toBe(true)
  expect((await Promise.all(old)).filter(({ allowed }) => allowed)).toHaveLength(4)
  expect(store.breaker()).toBe('closed')
})

test('is reported to onError, and ends when there is memory again', async () => {
  const { limiter, admin, errors, store } = await fullRedis()
  await limiter.check({ user: 'new', path: '/open' })
  expect(errors).toContain('STORE_FULL')
  expect(store.stats?.().policy_store_full).toBeGreaterThan(0)
  await admin.config('SET', 'maxmemory', '0')
  await expect.poll(async () => (await limiter.check({ user: 'newer', path: '/open' })).source).toBe('store')
})

test('resets and leases keep working; a refund, which needs memory, can be retried later', async () => {
  const { limiter, admin } = await fullRedis()
  const decision = await limiter.check({ user: 'old', path: '/open' })
  await expect(limiter.give(decision)).rejects.toThrow('STORE_FULL')
  expect(await limiter.peek({ user: 'old', path: '/open' })).toMatchObject({ remaining: 3 })
  await admin.config('SET', 'maxmemory', '0')
  await vi.waitFor(() => limiter.give(decision), { timeout: 10_000 })
  expect(await limiter.peek({ user: 'old', path: '/open' })).toMatchObject({ remaining: 4 })
  await admin.config('SET', 'maxmemory', '1')
  await limiter.reset('user', 'old')
  expect(await limiter.peek({ user: 'old', path: '/open' })).toMatchObject({ remaining: 5 })
  await limiter.reset('user', 'never seen')
  expect(await limiter.check({ user: 'old', path: '/leased' })).toMatchObject({ allowed: true })
  expect(await limiter.check({ user: 'new', path: '/leased' })).toMatchObject({ allowed: true, source: 'policy' })
})

test('a permit is released even if its refund cannot be recorded', async () => {
  const { limiter, admin } = await fullRedis(async (prepared) => {
    expect(await prepared.check({ user: 'old', path: '/permits' }, 'first')).toMatchObject({ allowed: true })
  })
  const held = await limiter.check({ user: 'old', path: '/permits' }, 'first') // renews it
  await expect(limiter.give(held)).rejects.toThrow('STORE_FULL')
  await admin.config('SET', 'maxmemory', '0')
  await expect
    .poll(async () => limiter.check({ user: 'old', path: '/permits' }, 'second'))
    .toMatchObject({ allowed: true, source: 'store' })
})

test('a full primary of a Cluster affects only its own buckets', { timeout: 60_000 }, async () => {
  const cluster = await startRedisCluster({ primaries: 3 })
  const client = new Cluster(cluster.addresses.map(({ host, port }) => ({ host, port })))
  const limiter = createLimiter({ rules: RULES, store: redisStore(client, { deadlineMs: 5000 }) })
  const [first] = cluster.nodes
  const admin = new Redis(first?.port ?? 0, '127.0.0.1')
  onTestFinished(async () => {
    await limiter.close()
    client.disconnect()
    admin.disconnect()
    await cluster.stop()
  })
  await admin.config('SET', 'maxmemory', '1')
  const sources = new Set<string>()
  let byStore = 0
  for (let number = 0; number < 90; number += 1) {
    const { source } = await limiter.check({ user: `user ${number}`, path: '/open' })
    sources.add(source)
    if (source === 'store') byStore += 1
  }
  expect([...sources].sort()).toEqual(['policy', 'store'])
  expect(byStore).toBeGreaterThan(40) // two of three primaries have room
})

async function fullRedis(before: (limiter: Limiter) => Promise<void> = async () => {}): Promise<Full> {
  const redis = await startRedis(['--maxmemory-policy', 'noeviction'])
  const admin = new Redis(redis.port, '127.0.0.1')
  const errors: string[] = []
  const onError = ({ code }: { code: string }) => void errors.push(code)
  const store = redisStore(admin, { nodes: 2, deadlineMs: 5000, onError })
  await store.ready()
  const limiter = createLimiter({ rules: RULES, store })
  onTestFinished(async () => {
    await limiter.close()
    admin.disconnect()
    await redis.stop()
  })
  for (const path of ['/open', '/closed', '/local', '/both', '/leased', '/log'])
    await limiter.check({ user: 'old', path })
  await before(limiter)
  await admin.config('SET', 'maxmemory', '1')
  return { limiter, store, admin, errors }
}

/** Number of admitted checks out of ten. */
async function admitted(limiter: Limiter, subject: { user: string; path: string }): Promise<number> {
  let count = 0
  for (let number = 0; number < 10; number += 1) count += (await limiter.check(subject)).allowed ? 1 : 0
  return count
}
