// Every store keeps the contract: memory, a real Redis through both clients, and a single node that decides by itself.

import { Redis } from 'ioredis'
import { createClient } from 'redis'
import { type BucketName, memoryStore, type Store } from 'sluice'
import { redisStore } from 'sluice/redis'
import { type FakeClock, type RedisProcess, startRedis, storeContract } from 'sluice/testing'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { approximateStore } from '../src/approximate/approximate-store.ts'
import type { Timers } from '../src/clock.ts'
import { type Place, scatterStore } from '../src/scatter/scatter-store.ts'
import { shardStore } from '../src/shards/shard-store.ts'
import { BARE } from './support/bare.ts'

let redis: RedisProcess
let stores = 0
beforeAll(async () => {
  redis = await startRedis()
})
afterAll(() => redis.stop())

storeContract('memory', { describe, test, expect, create: (clock) => memoryStore({ clock }) })

storeContract('memory behind parts', {
  ...{ describe, test, expect },
  create: (clock) => shardStore(memoryStore({ clock })),
})

storeContract('memory in several places', {
  ...{ describe, test, expect },
  skip: {
    'shadow never refuses, and counts only what was granted': 'a refused request asks no further place',
    'a take forgets the buckets it resets, then charges, in one step': 'each limit lives in another place here',
  },
  create: (clock) => {
    const places = new Map<string, Place>()
    const placeOf = ({ limit: { id } }: BucketName): Place => {
      const place = places.get(id) ?? { id, store: memoryStore({ clock }) }
      places.set(id, place)
      return place
    }
    return scatterStore({ placeOf, stores: () => [...places.values()].map(({ store }) => store) })
  },
})

storeContract('redis through ioredis', {
  ...{ describe, test, expect },
  create: (clock) =>
    redisStore(new Redis(redis.url, { lazyConnect: true }), { ...BARE, clock, prefix: `contract-${stores++}` }),
})

storeContract('redis through node-redis', {
  ...{ describe, test, expect },
  create: (clock) => redisStore(createClient({ url: redis.url }), { ...BARE, clock, prefix: `contract-${stores++}` }),
})

storeContract('approximate, one node', {
  ...{ describe, test, expect },
  skip: {
    'force is always charged, and tells whether it was over': 'what is refused here is not told to the store',
    'a take forgets the buckets it resets, then charges, in one step': 'a model and the store are two places',
  },
  create: (clock) => allApproximate(approximateStore(memoryStore({ clock }), { clock, timers: standingTimers(clock) })),
})

/** Every limit that can be is approximate, and nothing is told to the store before the end. */
function allApproximate(store: Store): Store {
  const asApproximate = <B extends BucketName>(bucket: B): B => {
    const { limit } = bucket
    if (limit.algorithm === 'leaky_bucket' || limit.algorithm === 'concurrency') return bucket
    const approximate = { syncMs: 1e9, unsyncedMax: 1e9, remembersMs: 1e9 }
    return { ...bucket, limit: { ...limit, approximate } }
  }
  return {
    take: (take) =>
      store.take({ ...take, charges: take.charges.map(asApproximate), resets: take.resets?.map(asApproximate) }),
    peek: (charges) => store.peek(charges.map(asApproximate)),
    give: (gives, opId, once) => store.give(gives.map(asApproximate), opId, once),
    reset: (bucket) => store.reset(asApproximate(bucket)),
    close: () => store.close(),
  }
}

/** Time goes by the clock, and nothing happens by itself. */
function standingTimers(clock: FakeClock): Timers {
  return { nowMs: () => clock.nowUs() / 1000, after: () => () => {}, every: () => () => {}, soon: (work) => work() }
}
