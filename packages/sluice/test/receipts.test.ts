// A receipt describes what an admitted request took, as plain data. Any limiter on the same store can redeem it, once.

import { Redis } from 'ioredis'
import { createLimiter, type Decision, type Limiter, memoryStore, type Receipt, type Store } from 'sluice'
import { type RedisStoreOptions, redisStore } from 'sluice/redis'
import { regionStore } from 'sluice/regions'
import { type FakeClock, fakeClock, startFaultProxy, startRedis, startRedisCluster } from 'sluice/testing'
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import { leaseStore } from '../src/lease/lease-store.ts'
import { ReferenceStore } from './differential/reference-store.ts'

let redis: Awaited<ReturnType<typeof startRedis>>
let prefixes = 0

beforeAll(async () => {
  redis = await startRedis()
})

afterAll(() => redis.stop())

const PATIENT: RedisStoreOptions = { deadlineMs: 5000 }
const STRICT = { rule_id: 'strict', scope: 'per_user', limit: 100, window: '30d', consistency: 'strict' }
const WINDOW = { ...STRICT, rule_id: 'window', algorithm: 'fixed_window' }
const LEASED = { rule_id: 'leased', scope: 'per_user', limit: 100, window: '1h', consistency: 'leased' }
const PERMITS = { rule_id: 'permits', scope: 'per_user', limit: 1, window: '5m', algorithm: 'concurrency' }

/** Nodes that share one Redis. */
function nodes(
  rules: readonly object[],
  count = 2,
  options: RedisStoreOptions = PATIENT,
  port = redis.port,
): Limiter[] {
  const prefix = `r${prefixes++}`
  return Array.from({ length: count }, () => {
    const client = new Redis(port, { lazyConnect: true })
    const limiter = createLimiter({ rules, store: redisStore(client, { ...options, prefix }) })
    onTestFinished(() => limiter.close())
    return limiter
  })
}

/** A receipt after a round trip through JSON. */
function sent(receipt: Receipt): Receipt {
  return JSON.parse(JSON.stringify(receipt)) as Receipt
}

const remaining = async (limiter: Limiter) => (await limiter.peek({ user: 'a' })).outcomes.map((one) => one.remaining)

describe('a receipt', () => {
  test('is redeemed on another node, once', async () => {
    const [one, other] = nodes([STRICT, WINDOW]) as [Limiter, Limiter]
    const receipt = sent(one.receipt(await one.check({ user: 'a', cost: 40 })))
    expect(await remaining(other)).toEqual([60, 60])
    expect(await other.redeem(receipt)).toEqual({ outcome: 'given', leftOut: [] })
    expect(await remaining(one)).toEqual([100, 100])
    await one.check({ user: 'a', cost: 40 })
    expect(await one.redeem(receipt)).toEqual({ outcome: 'repeated', leftOut: [] })
    expect(await other.redeem(receipt, 3)).toEqual({ outcome: 'repeated', leftOut: [] })
    expect(await remaining(one)).toEqual([60, 60])
  })

  test('is redeemed once by many at the same time', async () => {
    const fleet = nodes([WINDOW], 4)
    const [first] = fleet as [Limiter]
    const receipt = sent(first.receipt(await first.check({ user: 'a', cost: 10 })))
    await first.check({ user: 'a', cost: 90 })
    const redeemed = await Promise.all([...fleet, ...fleet].map((limiter) => limiter.redeem(receipt)))
    expect(redeemed.filter(({ outcome }) => outcome === 'given')).toHaveLength(1)
    expect(await remaining(first)).toEqual([10])
  })

  test('and the decision that it came from are refunded once together', async () => {
    const [one, other] = nodes([WINDOW]) as [Limiter, Limiter]
    const decision = await one.check({ user: 'a', cost: 10 })
    await one.check({ user: 'a', cost: 90 })
    await one.give(decision)
    expect(await other.redeem(sent(one.receipt(decision)))).toMatchObject({ outcome: 'repeated' })
    expect(await remaining(one)).toEqual([10])
  })

  test('redeemed for some units returns that many', async () => {
    const [one, other] = nodes([WINDOW]) as [Limiter, Limiter]
    const receipt = sent(one.receipt(await one.check({ user: 'a', cost: 10 })))
    expect(await other.redeem(receipt, 4)).toMatchObject({ outcome: 'given' })
    expect(await remaining(one)).toEqual([94])
    await expect(other.redeem(receipt, -1)).rejects.toMatchObject({ code: 'OPTION_INVALID' })
  })

  test('releases permits on another node; with 0 units, any number of times', async () => {
    const [one, other] = nodes([WINDOW, PERMITS]) as [Limiter, Limiter]
    const check = async (limiter: Limiter) => limiter.check({ user: 'a' })
    const receipt = sent(one.receipt(await check(one)))
    expect(await check(other)).toMatchObject({ allowed: false, ruleId: 'permits' })
    for (let times = 0; times < 2; times += 1)
      expect(await other.redeem(receipt, 0)).toMatchObject({ outcome: 'given' })
    expect(await remaining(one)).toEqual([99, 1])
    expect(await other.redeem(receipt)).toMatchObject({ outcome: 'given' })
    expect(await remaining(one)).toEqual([100, 1])
  })

  test('of a request that took nothing returns nothing', async () => {
    const [one, other] = nodes([{ ...STRICT, plan: 'pro' }]) as [Limiter, Limiter]
    const receipt = sent(one.receipt(await one.check({ user: 'a' })))
    expect(await other.redeem(receipt)).toEqual({ outcome: 'given', leftOut: [] })
  })

  test('skips limits that were edited or removed, and is outdated if none is left', async () => {
    const [one, other] = nodes([STRICT, WINDOW]) as [Limiter, Limiter]
    const receipt = sent(one.receipt(await one.check({ user: 'a', cost: 10 })))
    other.setRules([{ ...STRICT, limit: 200 }])
    expect(await other.redeem(receipt)).toEqual({ outcome: 'outdated', leftOut: ['strict', 'window'] })
    other.setRules([{ ...STRICT, limit: 200 }, WINDOW])
    expect(await other.redeem(receipt)).toEqual({ outcome: 'given', leftOut: ['strict'] })
  })

  test('of a permit stays valid after an edit', async () => {
    const [one, other] = nodes([PERMITS]) as [Limiter, Limiter]
    const receipt = sent(one.receipt(await one.check({ user: 'a' })))
    other.setRules([{ ...PERMITS, limit: 2 }])
    await other.redeem(receipt, 0)
    expect(await remaining(other)).toEqual([2])
  })

  test('of a local rule is valid only in the process that admitted the request', async () => {
    const rules = [{ ...WINDOW, consistency: 'local' }]
    const [one, other] = nodes(rules) as [Limiter, Limiter]
    const receipt = sent(one.receipt(await one.check({ user: 'a', cost: 10 })))
    expect(await other.redeem(receipt)).toEqual({ outcome: 'outdated', leftOut: ['window'] })
    expect(await one.redeem(receipt)).toEqual({ outcome: 'given', leftOut: [] })
    expect(await one.redeem(receipt)).toEqual({ outcome: 'repeated', leftOut: [] })
    expect(await remaining(one)).toEqual([100])
  })

  test('of an approximate rule returns units admitted by another node', async () => {
    const rules = [{ ...WINDOW, consistency: 'approximate', approximate: { sync_ms: 20, max_unsynced: 50 } }]
    const [one, other] = nodes(rules) as [Limiter, Limiter]
    const receipt = sent(one.receipt(await one.check({ user: 'a', cost: 10 })))
    await one.check({ user: 'a', cost: 10 })
    const stored = async () => {
      other.setRules([WINDOW]) // reads the same bucket in the store
      const [left] = await remaining(other)
      other.setRules(rules)
      return left
    }
    await expect.poll(stored).toBe(80)
    expect(await other.redeem(receipt)).toMatchObject({ outcome: 'given' })
    expect(await one.redeem(receipt)).toMatchObject({ outcome: 'repeated' })
    expect(await stored()).toBe(90)
  })
})

test('units of a split bucket go back to their shard', async () => {
  const [one, other] = nodes([{ ...WINDOW, limit: 40, shards: 4 }]) as [Limiter, Limiter]
  const receipts: Receipt[] = []
  for (let checks = 0; checks < 24; checks += 1) receipts.push(sent(one.receipt(await one.check({ user: 'a' }))))
  expect(new Set(receipts.map(({ items }) => items[0]?.limit)).size).toBe(4)
  expect(await remaining(other)).toEqual([16])
  for (const receipt of receipts) expect(await other.redeem(receipt)).toEqual({ outcome: 'given', leftOut: [] })
  for (const receipt of receipts) expect(await one.redeem(receipt)).toMatchObject({ outcome: 'repeated' })
  expect(await remaining(one)).toEqual([40])
})

test('units shared by regions go back to the sublimit that paid, through any node of the region', async () => {
  const clock = fakeClock()
  const [regional, global] = [memoryStore({ clock }), memoryStore({ clock })]
  const shares = { weights: { eu: 0.5, us: 0.5 }, homeShare: 0.5 }
  const rules = [{ ...WINDOW, limit: 40, spread: 'global' }]
  const [one, other] = [0, 1].map(() => {
    const store = regionStore({ name: 'eu', shares, regional, global, clock })
    const limiter = createLimiter({ rules, store })
    onTestFinished(() => limiter.close())
    return limiter
  }) as [Limiter, Limiter]
  const receipts: Receipt[] = []
  for (;;) {
    const decision = await one.check({ user: 'a' })
    if (!decision.allowed) break
    receipts.push(sent(one.receipt(decision)))
  }
  expect(new Set(receipts.map(({ items }) => items[0]?.limit))).toEqual(new Set(['window', 'pool%window']))
  for (const receipt of receipts) expect(await other.redeem(receipt)).toEqual({ outcome: 'given', leftOut: [] })
  for (const receipt of receipts) expect(await other.redeem(receipt)).toMatchObject({ outcome: 'repeated' })
  let admitted = 0
  while ((await other.check({ user: 'a' })).allowed) admitted += 1
  expect(admitted).toBe(receipts.length)
})

describe('units of a lease', () => {
  const RULE = { ...LEASED, limit: 600, window: '1m' }

  /** Two nodes with leases on one store, on a fake clock. */
  function leasing() {
    const clock = fakeClock()
    const central = new ReferenceStore(clock)
    const timers = {
      ...{ nowMs: () => clock.nowUs() / 1000, soon: (work: () => void) => work() },
      ...{ after: () => () => {}, every: () => () => {} },
    }
    const remote: Store = {
      take: async (take) => central.take(take),
      peek: async (charges) => central.peek(charges),
      give: async (gives, opId, idempotencyKey) => central.give(gives, opId, idempotencyKey),
      reset: () => {},
      close: async () => {},
    }
    const [one, other] = [0, 1].map(() =>
      createLimiter({ rules: [RULE], store: leaseStore(remote, { clock, timers }) }),
    )
    return { clock, one, other } as { clock: FakeClock; one: Limiter; other: Limiter }
  }

  /** Checks until one is served from a lease. */
  async function leased(limiter: Limiter, clock: FakeClock): Promise<Decision> {
    for (let checks = 0; checks < 60; checks += 1) {
      clock.advanceMs(2)
      const decision = await limiter.check({ user: 'a' })
      if (decision.source === 'lease') return decision
    }
    throw new Error('no check was served from a lease')
  }

  test('go back through another node, however old the lease was when they were spent', async () => {
    const { clock, one, other } = leasing()
    await one.check({ user: 'a', cost: 300 })
    await leased(one, clock)
    clock.advanceMs(500) // five units refill
    const decision = await one.check({ user: 'a', cost: 3 })
    expect(decision.source).toBe('lease')
    const [before = 0] = await remaining(other)
    const receipt = sent(one.receipt(decision))
    expect(await other.redeem(receipt)).toEqual({ outcome: 'given', leftOut: [] })
    expect((await remaining(other))[0]).toBeGreaterThanOrEqual(before + 2) // 50 ms less: a clock step is detected late
    expect(await one.redeem(receipt)).toEqual({ outcome: 'repeated', leftOut: [] })
  })

  test('go back to the lease in the process that holds it, once', async () => {
    const { clock, one, other } = leasing()
    const receipt = sent(one.receipt(await leased(one, clock)))
    const [before = 0] = await remaining(one)
    expect(await one.redeem(receipt)).toMatchObject({ outcome: 'given' })
    expect(await remaining(one)).toEqual([before + 1])
    expect(await other.redeem(receipt)).toMatchObject({ outcome: 'repeated' })
    expect(await one.redeem(receipt)).toMatchObject({ outcome: 'repeated' })
    expect(await remaining(one)).toEqual([before + 1])
  })
})

describe('when the store does not confirm', () => {
  async function behindProxy(rules: readonly object[], options: RedisStoreOptions) {
    const proxy = await startFaultProxy(redis.port)
    onTestFinished(() => proxy.stop())
    const [limiter] = nodes(rules, 1, options, proxy.port) as [Limiter]
    return { proxy, limiter }
  }

  test('a give fails, and a retry succeeds: units are returned once', async () => {
    const { proxy, limiter } = await behindProxy([WINDOW, PERMITS], { deadlineMs: 2000 })
    const decision = await limiter.check({ user: 'a', cost: 1 })
    await limiter.check({ user: 'b', cost: 1 })
    proxy.cutNextReply(0) // Redis has applied it, but the reply is lost
    await expect(limiter.give(decision)).rejects.toMatchObject({ code: 'STORE_UNAVAILABLE' })
    const given = async () => {
      await limiter.give(decision)
      return true
    }
    await expect.poll(() => given().catch(() => false), { timeout: 10_000 }).toBe(true)
    expect(await remaining(limiter)).toEqual([100, 1])
  })

  test('a release fails while Redis is unreachable, and succeeds later', async () => {
    const { proxy, limiter } = await behindProxy([PERMITS], { deadlineMs: 2000 })
    const decision = await limiter.check({ user: 'a' })
    proxy.shut()
    await expect(limiter.release(decision)).rejects.toMatchObject({ code: 'STORE_UNAVAILABLE' })
    await expect(limiter.redeem(limiter.receipt(decision), 0)).rejects.toMatchObject({ code: 'STORE_UNAVAILABLE' })
    proxy.open()
    const released = async () => {
      await limiter.release(decision)
      return true
    }
    await expect.poll(() => released().catch(() => false), { timeout: 10_000 }).toBe(true)
    expect(await remaining(limiter)).toEqual([1])
  })
})

test('in a Cluster, a receipt over several slots is redeemed once', async () => {
  const cluster = await startRedisCluster()
  onTestFinished(() => cluster.stop())
  const { Cluster } = await import('ioredis')
  const global = { ...WINDOW, rule_id: 'global', scope: 'global' }
  const tenant = { ...STRICT, rule_id: 'tenant', scope: 'per_tenant' }
  const fleet = Array.from({ length: 2 }, () => {
    const limiter = createLimiter({
      rules: [STRICT, global, tenant, PERMITS],
      store: redisStore(new Cluster([...cluster.addresses], { lazyConnect: true }), PATIENT),
    })
    onTestFinished(() => limiter.close())
    return limiter
  })
  const [one, other] = fleet as [Limiter, Limiter]
  const subject = { user: 'a', tenant: 't' }
  const receipt = sent(one.receipt(await one.check(subject)))
  await one.check({ user: 'b', tenant: 't' })
  expect(await other.redeem(receipt)).toEqual({ outcome: 'given', leftOut: [] })
  expect(await one.redeem(receipt)).toEqual({ outcome: 'repeated', leftOut: [] })
  const numbers = (await one.peek(subject)).outcomes.map(({ ruleId, remaining: left }) => [ruleId, left])
  expect(Object.fromEntries(numbers)).toEqual({ strict: 100, global: 99, tenant: 99, permits: 1 })
})

test('the idempotency key of a give without a receipt is kept for minutes, however long the window', async () => {
  const [limiter] = nodes([{ ...WINDOW, window: '30d' }]) as [Limiter]
  await limiter.give(await limiter.check({ user: 'brief' }))
  const client = new Redis(redis.port)
  onTestFinished(() => client.disconnect())
  const keys = await client.keys(`r${prefixes - 1}:*`)
  const lives = await Promise.all(keys.map((key) => client.ttl(key)))
  expect(lives.filter((seconds) => seconds <= 12 * 60)).toHaveLength(1) // the other key is the bucket
})
