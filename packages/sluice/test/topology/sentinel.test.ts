// Redis behind Sentinel: a failover needs no restart and loses at most what the replica had not seen.

import { Redis } from 'ioredis'
import { createSentinel } from 'redis'
import type { RedisClient } from 'sluice/redis'
import { type SentinelFleet, startSentinels } from 'sluice/testing'
import { describe, expect, onTestFinished, test } from 'vitest'
import { FailoverLoad, LIMIT } from './failover-load.ts'

const REPLICATION_LAG_MS = 1000

const CLIENTS: Record<string, (fleet: SentinelFleet) => RedisClient> = {
  ioredis: ({ sentinels, name }) => new Redis({ sentinels: [...sentinels], name, lazyConnect: true }),
  'node-redis': ({ sentinels, name }) => createSentinel({ sentinelRootNodes: [...sentinels], name }),
}

describe.each(Object.entries(CLIENTS))('through %s', (_name, clientOf) => {
  test('a failover under load loses at most what the replica had not seen', async () => {
    const fleet = await startSentinels()
    onTestFinished(() => fleet.stop())
    const load = new FailoverLoad(clientOf(fleet), 20)
    await load.rounds(20)
    await fleet.primary.stop()
    const killedMs = performance.now()
    await load.untilSpent()
    for (const user of load.users) {
      const over = load.admitted(user) - LIMIT
      expect(over, user).toBeLessThanOrEqual(load.admittedBefore(user, killedMs, REPLICATION_LAG_MS))
    }
    expect(
      load.users.some((user) => !load.wasAlwaysRedis(user)),
      'the outage was noticed',
    ).toBe(true)
  })
})
