// The store contract, the documented ACL and slot groups on a real Redis Cluster.

import { readFileSync } from 'node:fs'
import { Cluster, Redis } from 'ioredis'
import { createCluster } from 'redis'
import { createLimiter } from 'sluice'
import { type RedisClient, redisStore } from 'sluice/redis'
import { type RedisCluster, startRedisCluster, storeContract } from 'sluice/testing'
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from 'vitest'
import { BARE } from '../support/bare.ts'

let cluster: RedisCluster
let stores = 0

beforeAll(async () => {
  cluster = await startRedisCluster()
})
afterAll(() => cluster.stop())

storeContract('cluster through ioredis', {
  ...{ describe, test, expect },
  create: (clock) => {
    const client = new Cluster([...cluster.addresses], { lazyConnect: true })
    return redisStore(client, { ...BARE, clock, prefix: `contract-${stores++}` })
  },
})

storeContract('cluster through node-redis', {
  ...{ describe, test, expect },
  create: (clock) => {
    const client = createCluster({ rootNodes: cluster.addresses.map((socket) => ({ socket })) })
    return redisStore(client, { ...BARE, clock, prefix: `contract-${stores++}` })
  },
})

describe('the ACL of docs/guides/redis.md', () => {
  const user = { username: 'sluice', password: 'secret' }
  const CLIENTS: Record<string, () => RedisClient> = {
    ioredis: () => new Cluster([...cluster.addresses], { lazyConnect: true, redisOptions: user }),
    'node-redis': () =>
      createCluster({ rootNodes: cluster.addresses.map((socket) => ({ socket })), defaults: { ...user } }),
  }

  beforeAll(async () => {
    const guide = readFileSync(new URL('../../../../docs/guides/redis.md', import.meta.url), 'utf8')
    const commands = [...guide.matchAll(/^(ACL SETUSER sluice .*)$/gm)].map(([line]) => line.split(' '))
    expect(commands).toHaveLength(3)
    for (const { url } of cluster.nodes) {
      const admin = new Redis(url)
      for (const [name = '', ...args] of commands) await admin.call(name, ...args)
      admin.disconnect()
    }
  })

  test.each(Object.entries(CLIENTS))('is enough through %s', async (_name, clientOf) => {
    const store = redisStore(clientOf(), { deadlineMs: 5000, readFrom: 'replicas' })
    const shared = { scope: 'per_user', limit: 10, window: '1h', consistency: 'strict', on_fail: 'closed' }
    const algorithms = ['token_bucket', 'sliding_window_log', 'concurrency']
    const rules = algorithms.map((algorithm) => ({ rule_id: algorithm, algorithm, ...shared }))
    const limiter = createLimiter({ rules, store })
    onTestFinished(() => limiter.close())
    const checked = await limiter.check({ user: 'alice' })
    expect(checked).toMatchObject({ allowed: true, source: 'store' })
    expect(await limiter.peek({ user: 'alice' })).toMatchObject({ source: 'store', stale: true })
    await limiter.give(checked)
    await limiter.reset('token_bucket', 'alice')
    expect(await store.info()).toMatchObject({ default: { mayEvict: false } })
  })
})

describe('slot groups', () => {
  const PER_USER = { rule_id: 'per_user', scope: 'per_user', limit: 5, window: '1h', consistency: 'strict' }

  async function node(prefix: string, slotGroups?: number) {
    const client = new Cluster([...cluster.addresses], { lazyConnect: true })
    const store = redisStore(client, { prefix, deadlineMs: 5000, ...(slotGroups === undefined ? {} : { slotGroups }) })
    const limiter = createLimiter({ rules: [{ ...PER_USER, on_fail: 'closed' }], store })
    onTestFinished(() => limiter.close())
    await store.ready()
    return { store, limiter }
  }

  async function keysByPrimary(prefix: string): Promise<number[]> {
    const client = new Cluster([...cluster.addresses])
    onTestFinished(() => client.disconnect())
    await client.ping() // the slots are known
    const keys = await Promise.all(client.nodes('master').map((primary) => primary.keys(`${prefix}:{*`)))
    return keys.map(({ length }) => length)
  }

  test.each([1, 64])('a limit holds with %d, and they are served by as many primaries as possible', async (count) => {
    const prefix = `groups-${count}`
    const nodes = [await node(prefix, count), await node(prefix, count)]
    for (let user = 0; user < 60; user += 1) {
      const checks = nodes.flatMap(({ limiter }) => [1, 2, 3, 4].map(() => limiter.check({ user: `user-${user}` })))
      expect((await Promise.all(checks)).filter(({ allowed }) => allowed)).toHaveLength(5)
    }
    const busy = (await keysByPrimary(prefix)).filter((keys) => keys > 0)
    expect(busy).toHaveLength(count === 1 ? 1 : 3)
  })

  test('a node that uses another number than the first one is warned', async () => {
    const warned = vi.spyOn(process, 'emitWarning').mockImplementation(() => {})
    onTestFinished(() => warned.mockRestore())
    const first = await node('differ')
    await expect.poll(() => first.store.info()).toMatchObject({ default: { slotGroups: { own: 16, recorded: 16 } } })
    const second = await node('differ', 64)
    expect(await second.store.info()).toMatchObject({ default: { slotGroups: { own: 64, recorded: 16 } } })
    await expect.poll(() => warned.mock.calls).toHaveLength(1)
    const text = expect.stringContaining('store default with 64 slot groups, not 16')
    expect(warned.mock.calls[0]).toEqual([text, { code: 'SLUICE_SLOT_GROUPS' }])
  })

  test.each([3, 2048, '16'])('%s of them are refused', (slotGroups) => {
    const client = new Cluster([...cluster.addresses], { lazyConnect: true })
    const fix = 'slotGroups: use a power of two from 1 to 1024, with a Cluster client'
    expect(() => redisStore(client, { slotGroups: slotGroups as number })).toThrow(fix)
  })

  test('they are refused for a Redis that is no Cluster', () => {
    expect(() => redisStore(new Redis({ lazyConnect: true }), { slotGroups: 16 })).toThrow('with a Cluster client')
  })
})
