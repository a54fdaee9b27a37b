// On a real Redis Cluster: every check is right whatever slots it touches.

import { readFileSync } from 'node:fs'
import { Cluster, Redis } from 'ioredis'
import { createCluster } from 'redis'
import { createLimiter } from 'sluice'
import { type RedisClient, redisStore } from 'sluice/redis'
import { type RedisCluster, startRedisCluster, storeContract } from 'sluice/testing'
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest'
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

describe('a user that may do no more than the guide says', () => {
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
    expect(await store.facts()).toMatchObject({ default: { mayEvict: false } })
  })
})
