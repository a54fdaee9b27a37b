// Runs a suite in memory and on a real Redis, both on a fake clock.

import { Redis } from 'ioredis'
import { memoryStore, type Store } from 'sluice'
import { type RedisStoreOptions, redisStore } from 'sluice/redis'
import { type FakeClock, fakeClock, type RedisProcess, startRedis } from 'sluice/testing'
import { afterAll, afterEach, beforeAll, beforeEach, describe } from 'vitest'

export type StoreBench = {
  readonly store: Store
  readonly clock: FakeClock
  /** A second store with the same counts, as in another process; the same store in memory. */
  another(): Store
}

/** Without leases, whose local state uses the real clock. */
const WITHOUT_LEASES: RedisStoreOptions = { leases: false, deadlineMs: 5000 }

export function onEachStore(suite: (bench: StoreBench) => void): void {
  describe('in memory', () => {
    let clock = fakeClock()
    let store = memoryStore({ clock })
    beforeEach(() => {
      clock = fakeClock()
      store = memoryStore({ clock })
    })
    suite({
      get store() {
        return store
      },
      get clock() {
        return clock
      },
      another: () => store,
    })
  })

  describe('on Redis', () => {
    let redis: RedisProcess
    let client: Redis
    let clock = fakeClock()
    let stores: Store[] = []
    const open = (options: RedisStoreOptions): Store => {
      const store = redisStore(client, { clock, ...options })
      stores.push(store)
      return store
    }
    beforeAll(async () => {
      redis = await startRedis()
      client = new Redis(redis.url)
    })
    afterAll(async () => {
      client.disconnect()
      await redis.stop()
    })
    beforeEach(async () => {
      clock = fakeClock()
      await client.flushall()
      open(WITHOUT_LEASES)
    })
    afterEach(async () => {
      for (const store of stores) await store.close()
      stores = []
    })
    suite({
      get store() {
        return stores[0] as Store // opened before each test
      },
      get clock() {
        return clock
      },
      another: () => open({ deadlineMs: 5000 }),
    })
  })
}

/** An unreachable store: its results come from the failure policy, which these libraries must treat as errors. */
export function unreachableStore(): { store: Store; close(): Promise<void> } {
  const client = new Redis({ port: 1, host: '127.0.0.1', lazyConnect: true, retryStrategy: () => null })
  client.on('error', () => {})
  const store = redisStore(client)
  return { store, close: () => store.close() }
}
