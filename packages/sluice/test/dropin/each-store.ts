// Runs a suite in memory and on a real Redis, each time with stores whose time is moved by hand.

import { Redis } from 'ioredis'
import { memoryStore, type Store } from 'sluice'
import { type RedisStoreOptions, redisStore } from 'sluice/redis'
import { type FakeClock, fakeClock, type RedisProcess, startRedis } from 'sluice/testing'
import { afterAll, afterEach, beforeAll, beforeEach, describe } from 'vitest'

export type StoreBench = {
  readonly store: Store
  readonly clock: FakeClock
  /** A store of another process that shares the counts, or the same one in memory. */
  another(): Store
}

/** What is remembered here of Redis lives by the clock of this machine, which is not moved by hand. */
const BY_HAND: RedisStoreOptions = { leases: false, deadlineMs: 5000 }

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
      open(BY_HAND)
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

/** A store that cannot be reached: what it says is up to policy, which these libraries must not take for an answer. */
export function unreachableStore(): { store: Store; close(): Promise<void> } {
  const client = new Redis({ port: 1, host: '127.0.0.1', lazyConnect: true, retryStrategy: () => null })
  client.on('error', () => {})
  const store = redisStore(client)
  return { store, close: () => store.close() }
}
