// Every store keeps the contract: memory, and a real Redis through both clients.

import { Redis } from 'ioredis'
import { createClient } from 'redis'
import { memoryStore } from 'sluice'
import { redisStore } from 'sluice/redis'
import { type RedisProcess, startRedis, storeContract } from 'sluice/testing'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { BARE } from './support/bare.ts'

let redis: RedisProcess
let stores = 0
beforeAll(async () => {
  redis = await startRedis()
})
afterAll(() => redis.stop())

storeContract('memory', { describe, test, expect, create: (clock) => memoryStore({ clock }) })

storeContract('redis through ioredis', {
  ...{ describe, test, expect },
  create: (clock) =>
    redisStore(new Redis(redis.url, { lazyConnect: true }), { ...BARE, clock, prefix: `contract-${stores++}` }),
})

storeContract('redis through node-redis', {
  ...{ describe, test, expect },
  create: (clock) => redisStore(createClient({ url: redis.url }), { ...BARE, clock, prefix: `contract-${stores++}` }),
})
