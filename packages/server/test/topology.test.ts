// The service on every kind of Redis deployment: one shared limit, and what /readyz and /metrics report.

import { Cluster, Redis } from 'ioredis'
import { startRedis, startRedisCluster, startSentinels } from 'sluice/testing'
import { expect, onTestFinished, test } from 'vitest'
import { examineRedis } from '../src/doctor/redis-doctor.ts'
import { EXPLAIN_PATH } from '../src/http/routes/explain.ts'
import { ADMIN_TOKEN, serveFile } from './service.ts'

const PATIENT = { storeDeadlineMs: 5000 }
const STRICT = 'window_seconds: 3600, algorithm: fixed_window, consistency: strict'
const RULES = `
- { rule_id: per_user, scope: per_user, limit: 5, ${STRICT} }
- { rule_id: all, scope: global, limit: 100, ${STRICT} }
`

const KINDS: Record<string, () => Promise<string>> = {
  'a Cluster': async () => {
    const cluster = await startRedisCluster()
    onTestFinished(() => cluster.stop())
    return `redis+cluster://${cluster.addresses.map(({ host, port }) => `${host}:${port}`).join(',')}`
  },
  'a primary behind Sentinel': async () => {
    const { sentinels, name, stop } = await startSentinels({ sentinels: 1 })
    onTestFinished(stop)
    return `redis+sentinel://${sentinels.map(({ host, port }) => `${host}:${port}`).join(',')}/${name}`
  },
}

test.each(Object.entries(KINDS))('two nodes on %s share one limit', async (_name, start) => {
  const redis = await start()
  const nodes = [await serveFile(RULES, { ...PATIENT, redis }), await serveFile(RULES, { ...PATIENT, redis })]
  const answers = await Promise.all(
    Array.from({ length: 10 }, (_, index) => nodes[index % 2]?.check({ client_id: 'alice' })),
  )
  expect(answers.filter((answer) => answer?.allowed)).toHaveLength(5)
  expect((await nodes[0]?.get('/readyz'))?.body).toMatchObject({ status: 'ready', store: 'redis' })
})

test('answers that may come from replicas are marked stale, and checks never use replicas', async () => {
  const cluster = await startRedisCluster({ primaries: 1 })
  onTestFinished(() => cluster.stop())
  const redis = `redis+cluster://127.0.0.1:${cluster.addresses[0]?.port}`
  const { check, post } = await serveFile(RULES, { ...PATIENT, redis, redisReads: 'replicas' })
  expect((await check({ client_id: 'alice' })).stale).toBeUndefined()
  expect(await check({ client_id: 'alice', dry_run: true })).toMatchObject({ allowed: true, remaining: 4, stale: true })
  const explained = await post(EXPLAIN_PATH, { client_id: 'alice' }, ADMIN_TOKEN)
  expect(explained.body).toMatchObject({ answer: { allowed: true, stale: true }, source: 'store' })
})

test('a node with another number of slot groups does not start; a changed record degrades it', async () => {
  const cluster = await startRedisCluster({ primaries: 3 })
  onTestFinished(() => cluster.stop())
  const redis = `redis+cluster://127.0.0.1:${cluster.addresses[0]?.port}`
  const { get, logged } = await serveFile(RULES, { ...PATIENT, redis, redisSlotGroups: 2 })
  expect(logged).toContainEqual(
    expect.objectContaining({ event: 'store_primaries_idle', primaries: 3, slot_groups: 2 }),
  )
  const other = serveFile(RULES, { ...PATIENT, redis, redisSlotGroups: 64 })
  await expect(other).rejects.toThrow('--redis-slot-groups: use the 2 that Redis (store default) has on record')
  const doctor = await examineRedis('Redis', redis, 1000, 64)
  expect(doctor[0]).toMatchObject({ health: 'error', found: '64 for 3 primaries' })
  expect((await examineRedis('Redis', redis, 1000, 2))[0]?.fix).toContain('to 4, or 1 primaries stay idle')

  const client = new Cluster([...cluster.addresses])
  onTestFinished(() => client.disconnect())
  await client.set('sl:slot-groups', 64)
  const status = async () => (await get('/readyz')).body
  await expect.poll(status, { timeout: 10_000 }).toMatchObject({ status: 'degraded' })
  expect(JSON.stringify(await status())).toContain('slot groups differ')
  await serveFile(RULES, { ...PATIENT, redis, redisSlotGroups: 64 })
})

test('a rule is pinned to the Redis that --store names, and its memory is visible', async () => {
  const [first, second] = [
    await startRedis(),
    await startRedis(['--maxmemory', '1gb', '--maxmemory-policy', 'allkeys-lru']),
  ]
  onTestFinished(async () => void (await Promise.all([first.stop(), second.stop()])))
  const rules = `- { rule_id: all, scope: global, limit: 100, store: hot, ${STRICT} }`
  const { check, address, logged } = await serveFile(rules, {
    ...PATIENT,
    redis: first.url,
    stores: { hot: second.url },
  })
  expect((await check({ client_id: 'alice' })).allowed).toBe(true)
  const client = new Redis(second.url)
  onTestFinished(() => client.disconnect())
  expect(await client.dbsize()).toBe(1)
  expect(logged.find(({ store }) => store === 'hot')).toMatchObject({ event: 'store_may_evict' })
  const metrics = async () => (await fetch(`${address}/metrics`)).text()
  await expect.poll(metrics).toContain('sluice_redis_may_evict{store="hot"} 1')
})

/** Accepts connections, and stays silent until it is woken. */
async function silentRedis(): Promise<{ readonly url: string; wake(): void }> {
  const redis = await startRedis()
  onTestFinished(() => redis.stop())
  process.kill(redis.pid, 'SIGSTOP')
  return { url: redis.url, wake: () => void process.kill(redis.pid, 'SIGCONT') }
}

test('a node starts even if Redis is silent or no Sentinel is reachable, and uses it once it answers', async () => {
  const [well, silent, sleeper] = [await startRedis(), await silentRedis(), await silentRedis()]
  onTestFinished(() => well.stop())
  const regions = { region: 'eu', regionWeights: { eu: 1 }, globalRedis: silent.url }
  const rules = RULES.replaceAll(' }', ', on_fail: closed }')
  const [alone] = await Promise.all([
    serveFile(rules, { redis: sleeper.url }),
    serveFile(rules, { redis: 'redis+sentinel://127.0.0.1:1,127.0.0.1:2/mymaster' }),
    serveFile(rules, { ...PATIENT, redis: well.url, stores: { hot: silent.url } }),
    serveFile(rules, { ...PATIENT, redis: well.url, ...regions }),
  ])
  expect(await alone.check({ client_id: 'alice' })).toMatchObject({ allowed: false, source: 'policy' })
  expect((await alone.get('/readyz')).body).toMatchObject({ status: 'degraded' })
  sleeper.wake()
  await expect.poll(() => alone.check({ client_id: 'alice' }), { timeout: 20_000 }).toMatchObject({ allowed: true })
})
