// Faults of a real Redis: flushed scripts, connections cut in mid-reply and corrupt values. Also the TTLs of keys.

import { Redis } from 'ioredis'
import { createClient, createClientPool } from 'redis'
import { createClientPool as createClientPool5 } from 'redis5'
import { compileLimit, createLimiter, type Limiter, LimiterError } from 'sluice'
import { type RedisClient, type RedisStore, redisStore } from 'sluice/redis'
import { type FaultProxy, fakeClock, type RedisProcess, startFaultProxy, startRedis } from 'sluice/testing'
import { afterAll, beforeAll, beforeEach, describe, expect, onTestFinished, test } from 'vitest'
import { BARE } from './support/bare.ts'

// A fixed window that does not end during the test: the units in use are exactly the units counted.
const RULE = {
  rule_id: 'per_user',
  scope: 'per_user',
  algorithm: 'fixed_window',
  limit: 1_000_000,
  window_seconds: 366 * 86_400,
}

let redis: RedisProcess
let proxy: FaultProxy
let admin: Redis
beforeAll(async () => {
  redis = await startRedis()
  proxy = await startFaultProxy(redis.port)
  admin = new Redis(redis.url)
})
beforeEach(() => admin.flushall())
afterAll(async () => {
  admin.disconnect()
  await proxy.stop()
  await redis.stop()
})

const clients: Record<string, (url: string) => RedisClient | Promise<RedisClient>> = {
  ioredis: (url) => new Redis(url, { lazyConnect: true }),
  'node-redis': (url) => createClient({ url }),
  'a node-redis pool': pooled,
}

/** The caller connects a pool. */
async function pooled(url: string): Promise<RedisClient> {
  const pool = createClientPool({ url })
  pool.on('error', () => {}) // Redis is stopped below
  onTestFinished(() => pool.destroy())
  await pool.connect()
  return pool
}

async function withLimiter(
  client: RedisClient,
  run: (limiter: Limiter, store: RedisStore) => Promise<void>,
): Promise<void> {
  const store = redisStore(client, BARE)
  const limiter = createLimiter({ rules: [RULE], store })
  try {
    await run(limiter, store)
  } finally {
    await limiter.close()
  }
}

async function used(user: string): Promise<number> {
  let remaining = 0
  await withLimiter(new Redis(redis.url, { lazyConnect: true }), async (limiter) => {
    remaining = (await limiter.peek({ user })).remaining ?? 0
  })
  return RULE.limit - remaining
}

describe.each(Object.entries(clients))('through %s', (_name, clientOf) => {
  test('a connection cut in mid-reply loses the reply, and nothing is counted twice', async () => {
    const url = `redis://127.0.0.1:${proxy.port}`
    await withLimiter(await clientOf(url), async (limiter) => {
      const answers = { admitted: 0, lost: 0 }
      for (let round = 0; round < 20; round += 1) {
        if (round % 4 === 1) proxy.cutNextReply(round)
        const settled = await Promise.allSettled(Array.from({ length: 10 }, () => limiter.check({ user: 'cut' })))
        for (const { status } of settled) answers[status === 'fulfilled' ? 'admitted' : 'lost'] += 1
        const [reason] = settled.flatMap((one) => (one.status === 'rejected' ? [one.reason] : []))
        if (reason !== undefined) expect(reason).toMatchObject({ code: 'STORE_UNAVAILABLE' })
      }
      expect(answers.lost).toBeGreaterThan(0)
      expect(answers.admitted + answers.lost).toBe(200)
      const counted = await used('cut')
      expect(counted, 'every admitted request is counted').toBeGreaterThanOrEqual(answers.admitted)
      expect(counted, 'and none of them twice').toBeLessThanOrEqual(200)
    })
  })

  test('repeated SCRIPT FLUSH fails no decision', async () => {
    await withLimiter(await clientOf(redis.url), async (limiter) => {
      for (let round = 0; round < 50; round += 1) {
        if (round % 5 === 0) await admin.script('FLUSH')
        const decisions = await Promise.all(Array.from({ length: 20 }, () => limiter.check({ user: 'flush' })))
        expect(decisions.every(({ allowed }) => allowed)).toBe(true)
      }
    })
    expect(await used('flush')).toBe(1000)
  })

  test('checks of one event loop turn share one round trip, whatever the number of rules', async () => {
    const rules = ['a', 'b', 'c', 'd', 'e'].map((id) => ({ ...RULE, rule_id: id }))
    const store = redisStore(await clientOf(redis.url), BARE)
    const limiter = createLimiter({ rules, store })
    await limiter.check({ user: 'warm' })
    await admin.config('RESETSTAT')
    await Promise.all(Array.from({ length: 20 }, (_, index) => limiter.check({ user: `user-${index}` })))
    const calls = /cmdstat_evalsha:calls=(\d+)/.exec(await admin.info('commandstats'))?.[1]
    expect(Number(calls)).toBe(1)
    await limiter.close()
  })

  test('an unreachable Redis fails checks immediately, and the store recovers with it', async () => {
    const own = await startRedis()
    const store = redisStore(await clientOf(own.url), BARE)
    const limiter = createLimiter({ rules: [RULE], store })
    expect((await limiter.check({ user: 'down' })).allowed).toBe(true)
    await own.stop()
    await expect(limiter.check({ user: 'down' })).rejects.toMatchObject({ code: 'STORE_UNAVAILABLE', status: 503 })
    const again = await startRedis(['--port', String(own.port)])
    await expect
      .poll(
        () =>
          limiter.check({ user: 'down' }).then(
            (one) => one.allowed,
            () => false,
          ),
        { timeout: 20_000 },
      )
      .toBe(true)
    await limiter.close()
    await again.stop()
  })
})

test.each([
  ['a pool', () => createClientPool({ url: redis.url })],
  ['a pool of node-redis 5', () => createClientPool5({ url: redis.url })],
])('%s decides once its caller connects it, over one connection of the store', async (_name, open) => {
  const pool = open()
  onTestFinished(() => pool.destroy())
  await withLimiter(pool, async (limiter) => {
    const error = await limiter.check({ user: 'pool' }).catch((reason: Error) => reason)
    expect(error).toMatchObject({ code: 'STORE_UNAVAILABLE', message: expect.stringContaining('call connect() on it') })
    await pool.connect()
    await expect
      .poll(() =>
        limiter.check({ user: 'pool' }).then(
          ({ allowed }) => allowed,
          () => false,
        ),
      )
      .toBe(true)
    const connections = pool.totalClients
    await Promise.all(Array.from({ length: 50 }, (_, index) => limiter.check({ user: `pool-${index}` })))
    expect(pool.totalClients, 'no connection was added to the pool').toBe(connections)
  })
  expect(pool.isOpen, 'closing the store leaves the pool open').toBe(true)
})

test('a corrupt value fails only the requests that need it', async () => {
  await withLimiter(new Redis(redis.url, { lazyConnect: true }), async (limiter) => {
    for (const [user, value] of Object.entries({ text: 'not msgpack', number: '\x05', odd: '\x81\xa1x\x91\x01' })) {
      await admin.set(`sl:{user:${user}}`, Buffer.from(value, 'latin1'))
      const [bad, good] = await Promise.allSettled([limiter.check({ user }), limiter.check({ user: `fine-${user}` })])
      expect(bad).toMatchObject({ status: 'rejected', reason: { code: 'STORE_CORRUPT' } })
      expect(String((bad as PromiseRejectedResult).reason)).toContain(`sl:{user:${user}}`)
      expect(good).toMatchObject({ status: 'fulfilled', value: { allowed: true } })
      expect(await admin.getBuffer(`sl:{user:${user}}`), 'not overwritten').toEqual(Buffer.from(value, 'latin1'))
      await limiter.reset('per_user', user)
      expect((await limiter.check({ user })).allowed, 'a reset clears it').toBe(true)
    }
  })
})

test('a corrupt list fails only the requests that need it', async () => {
  const store = redisStore(new Redis(redis.url, { lazyConnect: true }), BARE)
  const rule = { rule_id: 'log', scope: 'per_user', algorithm: 'sliding_window_log', limit: 5, window_seconds: 30 }
  const limiter = createLimiter({ rules: [rule], store })
  await limiter.check({ user: 'x' })
  const [key = ''] = await admin.keys('*')
  for (const value of ['\x94\x00\x01\x00\xa1x', '\x01', 'text']) {
    await admin.set(key, Buffer.from(value, 'latin1'))
    const [bad, good] = await Promise.allSettled([limiter.check({ user: 'x' }), limiter.check({ user: 'y' })])
    expect(bad).toMatchObject({ status: 'rejected', reason: { code: 'STORE_CORRUPT' } })
    expect(good).toMatchObject({ status: 'fulfilled', value: { allowed: true } })
    await limiter.reset('log', 'y')
  }
  await limiter.close()
})

test('every key has a TTL that covers its state', async () => {
  const store = redisStore(new Redis(redis.url, { lazyConnect: true }), BARE)
  const rules = ['token_bucket', 'leaky_bucket', 'fixed_window', 'sliding_window', 'sliding_window_log', 'concurrency']
  const limits = rules.map((algorithm, index) => ({
    rule_id: `r${index}`,
    scope: 'per_user',
    algorithm,
    limit: 5,
    window_seconds: 30,
  }))
  const limiter = createLimiter({ rules: limits, store })
  await limiter.check({ user: 'ttl' })
  const keys = await admin.keys('*')
  expect(keys.length, 'one value for all packed buckets, one each for log and permits').toBe(3)
  for (const key of keys) {
    const ttlMs = await admin.pttl(key)
    expect(ttlMs).toBeGreaterThan(30_000)
    expect(ttlMs).toBeLessThanOrEqual(2 * 30_000 + 61_000)
  }
  await limiter.close()
})

test.each(['token_bucket', 'fixed_window'])('the TTL of a %s in use is renewed', async (algorithm) => {
  const clock = fakeClock()
  const store = redisStore(new Redis(redis.url, { lazyConnect: true }), { ...BARE, clock })
  const rule = { rule_id: 'r', scope: 'per_user', algorithm, limit: 100, window_seconds: 60 }
  const limiter = createLimiter({ rules: [rule], store })
  await limiter.check({ user: 'ttl' })
  for (let period = 0; period < 3; period += 1) {
    await admin.pexpire('sl:{user:ttl}', 5000) // as if most of it had passed
    clock.advanceMs(60_000)
    await limiter.check({ user: 'ttl' })
    expect(await admin.pttl('sl:{user:ttl}')).toBeGreaterThan(60_000)
  }
  await limiter.close()
})

test.each([60, 3600, 86_400])('no bucket with a window of %d s expires before it is full again', async (seconds) => {
  const clock = fakeClock()
  const store = redisStore(new Redis(redis.url, { lazyConnect: true }), { ...BARE, clock })
  const rule = { rule_id: 'r', scope: 'per_user', algorithm: 'token_bucket', limit: 100, window_seconds: seconds }
  const limiter = createLimiter({ rules: [rule], store })
  const windowMs = seconds * 1000
  let lifeMs = 0
  for (let step = 0; step < 40; step += 1) {
    const sinceMs = Math.round((windowMs * ((step * 7) % 11)) / 100)
    clock.advanceMs(sinceMs)
    if (step > 0) await admin.pexpire('sl:{user:ttl}', lifeMs - sinceMs) // the real clock of Redis did not move
    const { fullAfterMs } = await limiter.check({ user: 'ttl', cost: 1 + ((step * 13) % 29) })
    lifeMs = await admin.pttl('sl:{user:ttl}')
    expect(lifeMs).toBeGreaterThan(fullAfterMs ?? Number.NaN)
    expect(lifeMs, 'and is not kept much longer').toBeLessThan(1.13 * windowMs + 80_000)
  }
  await limiter.close()
})

test.each([
  ['token_bucket', 3240],
  ['fixed_window', 3630],
  ['sliding_window', 3630],
])('units of a %s used after a reset do not expire early', async (algorithm, laterSeconds) => {
  const clock = fakeClock()
  const store = redisStore(new Redis(redis.url, { lazyConnect: true }), { ...BARE, clock })
  const limit = { algorithm, limit: 100, window_seconds: 3600 }
  const limiter = createLimiter({ rules: [{ rule_id: 'r', scope: 'per_user', ...limit }], store })
  clock.advanceMs(3_600_000 - ((clock.nowUs() / 1000) % 3_600_000))
  await limiter.check({ user: 'ttl' })
  clock.advanceMs(laterSeconds * 1000)
  // The real clock of Redis did not move.
  await admin.pexpire('sl:{user:ttl}', (await admin.pttl('sl:{user:ttl}')) - laterSeconds * 1000)
  await limiter.reset('r', 'ttl')
  const { fullAfterMs } = await limiter.check({ user: 'ttl', cost: 100 })
  expect(await admin.pttl('sl:{user:ttl}')).toBeGreaterThan(fullAfterMs ?? Number.NaN)
  await limiter.close()
})

test('an unusable client is rejected with the reason', async () => {
  expect(() => redisStore({} as RedisClient)).toThrow(LimiterError)
  expect(() => redisStore(new Redis({ lazyConnect: true }), { connections: 0 })).toThrow(/connections/)
  expect(() => redisStore(new Redis({ lazyConnect: true }), { prefix: 'a{b}' })).toThrow(/prefix/)
})

test('several connections share the load and one count', async () => {
  const store = redisStore(new Redis(redis.url, { lazyConnect: true }), { ...BARE, connections: 4 })
  const limit = compileLimit({ id: 'r', fact: 'user', algorithm: 'token_bucket', units: 100, windowUs: 86_400_000_000 })
  const charge = { limit, owner: 'many', detail: '', min: 1, max: 1, kind: 'enforce' } as const
  const taken = await Promise.all(Array.from({ length: 150 }, () => store.take({ charges: [charge] })))
  expect(taken.filter(({ granted }) => granted).length).toBe(100)
  await store.close()
})
