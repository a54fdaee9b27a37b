import { Redis } from 'ioredis'
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest'
import { compileLimit } from '../algorithms/limit.ts'
import { guardStore } from '../failure/guard-store.ts'
import { createLimiter } from '../limiter.ts'
import { redisStore } from '../redis/redis-store.ts'
import { memoryStore } from '../store/memory.ts'
import type { Charge, Store, Take, Taken } from '../store/store.ts'
import { fakeClock } from '../testing/fake-clock.ts'
import { manualTimers } from '../testing/manual-timers.ts'
import { type RedisProcess, startRedis } from '../testing/redis-process.ts'
import { remote } from '../testing/remote.ts'
import { leaseStore } from './lease-store.ts'

let redis: RedisProcess
let prefixes = 0
beforeAll(async () => {
  redis = await startRedis()
})
afterAll(() => redis.stop())

const limit = compileLimit({
  ...{ id: 'r', fact: 'user', algorithm: 'token_bucket', units: 100, windowUs: 3_600e6 },
  ...{ onFail: 'closed', lease: { ttlUs: 2_000_000 } },
})
const charge: Charge = { limit, owner: 'alice', detail: '', min: 1, max: 1, kind: 'enforce' }

function storeOf(prefix: string, leases = true) {
  return redisStore(new Redis(redis.url, { lazyConnect: true }), { prefix, leases, deadlineMs: 5000 })
}

test('with a full lease table, units of one bucket are never spent as units of another', async () => {
  const node = leaseStore(remote(memoryStore()), { leasesMax: 1 })
  const chargeOf = (id: string, units: number): Charge => {
    const window = { algorithm: 'fixed_window', windowUs: 86_400e6 } as const
    return { ...charge, limit: compileLimit({ id, fact: 'user', units, lease: {}, ...window }) }
  }
  const [wide, narrow] = [chargeOf('wide', 1000), chargeOf('narrow', 40)]
  await node.take({ charges: [wide] }) // the next query then requests a batch
  await node.take({ charges: [wide, narrow] })
  let admitted = 1
  for (let checks = 0; checks < 200; checks += 1) if ((await node.take({ charges: [narrow] })).granted) admitted += 1
  expect(admitted).toBe(40)
  await node.close()
})

test.each(['token_bucket', 'fixed_window', 'sliding_window', 'sliding_window_log'])(
  'the request that takes the last unit knows when the next one passes, as its refusal then says (%s)',
  async (algorithm) => {
    const clock = fakeClock()
    const prefix = `next-${algorithm}`
    const store = redisStore(new Redis(redis.url, { lazyConnect: true }), { prefix, deadlineMs: 5000, clock })
    const rules = [{ rule_id: 'r', scope: 'per_user', limit: 100, window: '10m', algorithm }]
    const limiter = createLimiter({ rules, store, clock })
    const check = () => limiter.check({ user: 'alice' })
    let last = await check()
    let refused = last
    for (; refused.allowed; refused = await check()) {
      last = refused
      clock.advanceMs(10)
    }
    expect([last.source, last.remaining]).toEqual(['lease', 0])
    const knownMs = last.outcomes[0]?.retryAfterMs ?? Number.NaN
    expect(Math.abs(knownMs - Number(refused.retryAfterMs))).toBeLessThan(100)
    expect(last.fullAfterMs).toBeGreaterThanOrEqual(knownMs)
    await limiter.close()
  },
)

describe("one deadline covers the store's time for all requests of a check", () => {
  /** A node whose store replies when the test says so, with a deadline of 100 ms. */
  function slowNode() {
    const timers = manualTimers()
    const memory = memoryStore()
    const replies: (() => void)[] = []
    const take = async (request: Take) => {
      await new Promise<void>((resolve) => replies.push(resolve))
      return memory.take(request)
    }
    const node = leaseStore(guardStore({ ...remote(memory), take }, { timers, deadlineMs: 100 }), { timers })
    const pass = async (ms: number) => {
      for (let passedMs = 0; passedMs < ms; passedMs += 5) {
        timers.advance(5)
        await new Promise((resolve) => setImmediate(resolve))
      }
    }
    return { node, replies, pass }
  }
  test('a take that has used up its time does not wait for the query of another', async () => {
    const { node, replies, pass } = slowNode()
    void node.take({ charges: [charge] })
    await pass(5)
    let source: string | undefined
    void Promise.resolve(node.take({ charges: [charge], spent: { ms: 90 } })).then((taken) => {
      source = taken.source
    })
    await pass(20)
    expect([source, replies.length]).toEqual(['policy', 2])
  })

  test('a take that has time left waits, and the wait counts even if it needs no query of its own', async () => {
    const { node, replies, pass } = slowNode()
    const window = { algorithm: 'fixed_window', windowUs: 86_400e6 } as const
    const wide = { ...charge, limit: compileLimit({ id: 'wide', fact: 'user', units: 1000, lease: {}, ...window }) }
    const before = node.take({ charges: [wide] }) // the next query then requests a batch
    await pass(5)
    replies[0]?.()
    await before
    const first = node.take({ charges: [wide] })
    const spent = { ms: 0 }
    const second = node.take({ charges: [wide], spent })
    await pass(50)
    replies[1]?.()
    const sources = [(await first).source, (await second).source]
    expect([sources, replies.length]).toEqual([['store', 'lease'], 2])
    expect(spent.ms).toBeGreaterThanOrEqual(45)
  })
})

test('concurrent requests to a slow store are admitted: their batches do not empty the bucket', async () => {
  const memory = memoryStore()
  const waiting: (() => void)[] = []
  const slow: Store = {
    ...remote(memory),
    take: async (take) => {
      await new Promise<void>((resolve) => waiting.push(resolve))
      return memory.take(take)
    },
  }
  const timers = manualTimers()
  const node = leaseStore(slow, { timers })
  const window = { algorithm: 'fixed_window', windowUs: 86_400e6 } as const
  const busy = { ...charge, limit: compileLimit({ id: 'busy', fact: 'user', units: 200, lease: {}, ...window }) }
  const answered: boolean[] = []
  const sendRequests = (count: number) => {
    for (let index = 0; index < count; index += 1) {
      void Promise.resolve(node.take({ charges: [busy] })).then(({ granted }) => answered.push(granted))
    }
  }
  /** Each reply takes longer than takes wait for the query of another take. */
  const answerAll = async () => {
    timers.advance(10)
    for (const answer of waiting.splice(0)) answer()
    await new Promise((resolve) => setImmediate(resolve))
  }
  for (let round = 0; round < 10; round += 1) {
    sendRequests(20)
    await vi.waitUntil(async () => {
      await answerAll()
      return answered.length === (round + 1) * 20
    })
  }
  expect(answered.filter((granted) => granted)).toHaveLength(200)
  const closed = node.close()
  await answerAll() // pending refills
  await closed
})

describe('leases on Redis', () => {
  test('a lease is refilled when it has too few units for another request of the same cost', async () => {
    const node = storeOf(`l${prefixes++}`)
    const fast = { id: 'f', fact: 'user', algorithm: 'token_bucket', units: 100, windowUs: 1e6, lease: {} } as const
    const costly: Charge = { ...charge, limit: compileLimit(fast), min: 3, max: 3 }
    await node.take({ charges: [costly] })
    expect(node.takeSync?.({ charges: [costly] }), 'from the first batch of four').toMatchObject({
      granted: true,
    })
    await vi.waitUntil(() => node.stats?.().requests === 2)
    await node.close()
  })

  test('repeated use is paid from a lease, and closing returns all units', async () => {
    const prefix = `l${prefixes++}`
    const node = storeOf(prefix)
    const sources: string[] = []
    for (let checks = 0; checks < 10; checks += 1) sources.push((await node.take({ charges: [charge] })).source)
    expect(sources.slice(0, 2)).toEqual(['store', 'store'])
    expect(sources).toContain('lease')
    await node.close()
    const other = storeOf(prefix, false)
    expect((await other.peek([charge])).grants[0]?.remaining).toBe(90)
    await other.close()
  })

  test('units granted by the store go back to the store, units of a lease to the lease', async () => {
    const prefix = `l${prefixes++}`
    const node = storeOf(prefix)
    const taken: Taken[] = []
    for (let checks = 0; checks < 10; checks += 1) taken.push(await node.take({ charges: [charge] }))
    for (const { nowUs, grants } of taken) {
      const [grant] = grants
      const bookedUs = grant?.bookedUs ?? nowUs
      await node.give([{ ...charge, units: 1, bookedUs, leasedUs: grant?.bookedUs }])
    }
    await node.close()
    const other = storeOf(prefix, false)
    expect((await other.peek([charge])).grants[0]?.remaining).toBeGreaterThanOrEqual(99)
    await other.close()
  })

  test('a node with leases and a node without admit exactly the limit together', async () => {
    const prefix = `l${prefixes++}`
    const [leased, strict] = [storeOf(prefix), storeOf(prefix, false)]
    for (let checks = 0; checks < 5; checks += 1) await leased.take({ charges: [charge] })
    await strict.take({ charges: [charge] })
    let granted = 6
    while ((await strict.take({ charges: [charge] })).granted) granted += 1
    while ((await leased.take({ charges: [charge] })).granted) granted += 1
    expect(granted).toBe(100)
    await Promise.all([leased.close(), strict.close()])
  })
})
