// Every store passes the contract: memory, a real Redis through both clients, and the wrappers.

import { Redis } from 'ioredis'
import { createClient } from 'redis'
import { type BucketName, memoryStore, type Store } from 'sluice'
import { redisStore } from 'sluice/redis'
import { type FakeClock, type RedisProcess, startRedis, storeContract } from 'sluice/testing'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { approximateStore } from '../src/approximate/approximate-store.ts'
import type { Timers } from '../src/clock.ts'
import { scatterStore, type Target } from '../src/scatter/scatter-store.ts'
import { shardStore } from '../src/shards/shard-store.ts'
import { COUNTERFACTUAL } from '../src/testing/counterfactual-cases.ts'
import { BARE } from './support/bare.ts'

let redis: RedisProcess
let stores = 0
beforeAll(async () => {
  redis = await startRedis()
})
afterAll(() => redis.stop())

storeContract('memory', { describe, test, expect, create: (clock) => memoryStore({ clock }) })

storeContract('memory with shards', {
  ...{ describe, test, expect },
  create: (clock) => shardStore(memoryStore({ clock })),
})

storeContract('scatter over memory stores', {
  ...{ describe, test, expect },
  skip: {
    'shadow never refuses, and counts only granted takes': 'a refused request queries no further target',
    'a take resets buckets and charges in one step': 'each limit has its own target here',
    'all counterfactual charges of a pair are charged, or none': 'limits of one version have one owner and one target',
  },
  create: (clock) => {
    const targets = new Map<string, Target>()
    // A counterfactual bucket has the target of its live bucket, as in a Cluster, where they have one owner.
    const targetOf = ({ limit }: BucketName): Target => {
      const { id } = limit.seed ?? limit
      const target = targets.get(id) ?? { id, store: memoryStore({ clock }) }
      targets.set(id, target)
      return target
    }
    return scatterStore({ targetOf, stores: () => [...targets.values()].map(({ store }) => store) })
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
    'force is always charged, and reports whether it was over the limit': 'a take refused by the model is not sent on',
    'a take resets buckets and charges in one step': 'the model and the store are reset separately',
    'a client that waits retryAfterUs is admitted, and not a microsecond earlier':
      'a model that was synced drops the part of a unit that has refilled, until its next sync: up to 200 ms late',
    ...Object.fromEntries(Object.keys(COUNTERFACTUAL).map((title) => [title, 'pairs are charged to strict limits'])),
  },
  create: (clock) => allApproximate(approximateStore(memoryStore({ clock }), { clock, timers: standingTimers(clock) })),
})

/** Makes every limit approximate that can be, without a sync before the end. */
function allApproximate(store: Store): Store {
  const asApproximate = <B extends BucketName>(bucket: B): B => {
    const { limit } = bucket
    if (limit.algorithm === 'leaky_bucket' || limit.algorithm === 'concurrency') return bucket
    const approximate = { syncMs: 1e9, unsyncedMax: 1e9, retentionMs: 1e9 }
    return { ...bucket, limit: { ...limit, approximate } }
  }
  return {
    take: (take) =>
      store.take({ ...take, charges: take.charges.map(asApproximate), resets: take.resets?.map(asApproximate) }),
    peek: (charges) => store.peek(charges.map(asApproximate)),
    give: (gives, opId, idempotencyKey) => store.give(gives.map(asApproximate), opId, idempotencyKey),
    reset: (bucket) => store.reset(asApproximate(bucket)),
    close: () => store.close(),
  }
}

/** Timers that never fire. */
function standingTimers(clock: FakeClock): Timers {
  return { nowMs: () => clock.nowUs() / 1000, after: () => () => {}, every: () => () => {}, soon: (work) => work() }
}
