import { Cluster, Redis } from 'ioredis'
import { expect, onTestFinished, test } from 'vitest'
import { compileLimit } from '../algorithms/limit.ts'
import { freePort } from '../testing/free-port.ts'
import type { RedisClient } from './client.ts'
import { redisStore } from './redis-store.ts'

const limit = compileLimit({ id: 'r', algorithm: 'fixed_window', units: 1, windowUs: 1_000_000 })
const CHARGE = { limit, owner: '', detail: '', min: 1, max: 1, kind: 'enforce' } as const

const CLIENTS: Record<string, (port: number) => RedisClient> = {
  'a server': (port) => new Redis(port, { lazyConnect: true }),
  'a Cluster': (port) => new Cluster([{ port }], { lazyConnect: true }),
}

test.each(Object.entries(CLIENTS))(
  'an error of an unreachable Redis (%s) names the reason',
  async (_name, clientOf) => {
    const store = redisStore(clientOf(await freePort()), { deadlineMs: 0 })
    onTestFinished(() => store.close())
    await expect(store.take({ charges: [CHARGE] })).rejects.toThrow(/can(not)? be reached: \w/)
  },
)
