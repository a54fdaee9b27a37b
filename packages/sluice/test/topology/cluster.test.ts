// On a real Redis Cluster: every check is right whatever slots it touches.

import { Cluster } from 'ioredis'
import { createCluster } from 'redis'
import { redisStore } from 'sluice/redis'
import { type RedisCluster, startRedisCluster, storeContract } from 'sluice/testing'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
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
