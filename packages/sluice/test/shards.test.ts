// A split bucket keeps the guarantees of a whole one: with random requests in memory, and with a fleet on a real Redis.

import { readFileSync } from 'node:fs'
import fc from 'fast-check'
import { Redis } from 'ioredis'
import { type Charge, compileLimit, type LimitNumbers, memoryStore, type Store, type Taken } from 'sluice'
import { redisStore } from 'sluice/redis'
import { fakeClock, type RedisProcess, seededRandom, startRedis } from 'sluice/testing'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { KeyNames } from '../src/redis/key.ts'
import { SlotGroups } from '../src/redis/slot-groups.ts'
import { shardStore } from '../src/shards/shard-store.ts'
import { Oracle } from './simulation/oracle.ts'

const YEAR_US = 366 * 86_400_000_000
const NUMBERS: LimitNumbers = { id: 'r', fact: 'user', algorithm: 'token_bucket', units: 1000, windowUs: YEAR_US }

function chargeOf(numbers: LimitNumbers, more: Partial<Charge> = {}): Charge {
  return { limit: compileLimit(numbers), owner: 'alice', detail: '', min: 1, max: 1, kind: 'enforce', ...more }
}

describe('over random requests', () => {
  const SPLITTABLE = ['token_bucket', 'leaky_bucket', 'fixed_window', 'sliding_window', 'sliding_window_log'] as const
  const rule = fc
    .record({
      algorithm: fc.constantFrom(...SPLITTABLE),
      shards: fc.integer({ min: 1, max: 6 }),
      units: fc.integer({ min: 6, max: 40 }),
      burst: fc.integer({ min: 6, max: 40 }),
      windowUs: fc.integer({ min: 1, max: 20 }).map((seconds) => seconds * 1_000_000),
    })
    .map(({ burst, ...rest }) => (rest.algorithm.endsWith('bucket') ? { ...rest, burst } : rest))
  const step = fc.record({
    waitUs: fc.oneof(fc.constant(0), fc.integer({ min: 0, max: 5_000_000 })),
    cost: fc.integer({ min: 1, max: 4 }),
    /** Rules that match the request, as a bit mask. */
    matched: fc.integer({ min: 1, max: 7 }),
    givesBack: fc.boolean(),
  })
  const trace = fc.tuple(
    fc.array(rule, { minLength: 1, maxLength: 3 }),
    fc.array(step, { minLength: 1, maxLength: 150 }),
  )

  test('no interval admits more than the limit, refusals consume nothing, and gives return all units', () => {
    fc.assert(
      fc.property(trace, ([rules, steps]) => {
        const clock = fakeClock()
        const store = shardStore(memoryStore({ clock }), { random: () => 0.5 })
        const limits = rules.map((numbers, index) => compileLimit({ id: `r${index}`, ...numbers }))
        const oracle = new Oracle()
        for (const { waitUs, cost, matched, givesBack } of steps) {
          clock.advanceUs(waitUs)
          const charges = limits
            .filter((_, index) => (matched >> index) % 2 === 1)
            .map((limit): Charge => ({ limit, owner: 'a', detail: '', min: cost, max: cost, kind: 'enforce' }))
          const before = remaining(store, charges)
          const { granted, grants, nowUs } = store.take({ charges }) as Taken
          const after = remaining(store, charges)
          expect(after).toEqual(granted ? before.map((left) => left - cost) : before)
          if (granted && givesBack) {
            const gives = charges.map((charge, index) => ({
              ...charge,
              limit: grants[index]?.sublimit ?? charge.limit,
            }))
            store.give(gives.map((charge) => ({ ...charge, units: cost, bookedUs: nowUs })))
            expect(remaining(store, charges)).toEqual(before)
          } else if (granted) for (const { limit } of charges) oracle.admit(limit, 'a', cost, clock.nowUs())
        }
        expect(oracle.violations(new Map())).toEqual([])
      }),
    )
  })

  function remaining(store: Store, charges: readonly Charge[]): number[] {
    return (store.peek(charges) as Taken).grants.map((grant) => grant.remaining)
  }
})

describe('docs/guides/leases.md', () => {
  const page = readFileSync(new URL('../../../docs/guides/leases.md', import.meta.url), 'utf8')

  test.each(['1000 | 4', '1000 | 16', '1000 | 64', '100 | 4', '100 | 16'])('has the admitted share of %s', (row) => {
    const [units = 0, shards = 0] = row.split(' | ').map(Number)
    const shares = [0.9, 1, 1.1, 1.5].map((demand) => `${admittedShare(units, shards, demand).toFixed(1)} %`)
    expect(page.split('\n').find((line) => line.startsWith(`| ${row} |`))).toBe(`| ${[row, ...shares].join(' | ')} |`)
  })

  /** Percentage of the limit that eight nodes admit of `demand` × the limit, within one window. */
  function admittedShare(units: number, shards: number, demand: number): number {
    const random = seededRandom(1)
    const ROUNDS = 20
    let admitted = 0
    for (let round = 0; round < ROUNDS; round += 1) {
      const memory = memoryStore({ clock: fakeClock() })
      const nodes = Array.from({ length: 8 }, () => shardStore(memory, { random: random.next }))
      const charges = [chargeOf({ ...NUMBERS, algorithm: 'fixed_window', units, shards })]
      for (let check = 0; check < units * demand; check += 1) {
        if (random.pick(nodes).takeSync?.({ charges })?.granted) admitted += 1
      }
    }
    return (100 * admitted) / (ROUNDS * units)
  }
})

describe('on Redis', () => {
  let redis: RedisProcess
  let prefixes = 0
  beforeAll(async () => {
    redis = await startRedis()
  })
  afterAll(() => redis.stop())

  function fleet(leases: boolean, nodes = 4) {
    const prefix = `s${prefixes++}`
    const stores = Array.from({ length: nodes }, () => {
      return redisStore(new Redis(redis.url, { lazyConnect: true }), { leases, prefix, deadlineMs: 5000 })
    })
    return { prefix, stores, close: () => Promise.all(stores.map((store) => store.close())) }
  }

  /** Number of granted takes until each node has been refused a hundred times in a row. */
  async function drain(stores: readonly Store[], charges: readonly Charge[]): Promise<number> {
    const ends = stores.map(async (store) => {
      let granted = 0
      for (let refused = 0; refused < 100; ) {
        const taken = await store.take({ charges })
        if (taken.granted) granted += 1
        refused = taken.granted ? 0 : refused + 1
      }
      return granted
    })
    return (await Promise.all(ends)).reduce((sum, granted) => sum + granted)
  }

  test.each(['token_bucket', 'fixed_window', 'sliding_window', 'sliding_window_log'] as const)(
    '%s: a fleet without leases admits exactly the limit, with one key per shard',
    async (algorithm) => {
      const { prefix, stores, close } = fleet(false)
      expect(await drain(stores, [chargeOf({ ...NUMBERS, algorithm, shards: 4 })])).toBe(1000)
      const client = new Redis(redis.url)
      const tags = (await client.keys(`${prefix}:*`)).map((key) => /\{(.*)\}/.exec(key)?.[1])
      expect(tags.sort()).toEqual(['user:alice#1', 'user:alice#2', 'user:alice#3', 'user:alice#4'])
      client.disconnect()
      await close()
    },
  )

  test('a fleet with leases admits no more than the limit, and nearly all of it', async () => {
    const { stores, close } = fleet(true)
    const admitted = await drain(stores, [chargeOf({ ...NUMBERS, shards: 4, lease: {} })])
    expect(admitted).toBeLessThanOrEqual(1000)
    // The rest is on lease to other nodes, at most a fifth of a shard each.
    expect(admitted).toBeGreaterThanOrEqual(800)
    await close()
  })

  test.each([false, true])(
    'two split limits of one owner each charge their own shards (leases: %s)',
    async (leases) => {
      const { stores, close } = fleet(leases, 1)
      const charges = [200, 120].map((units) => chargeOf({ ...NUMBERS, id: `r${units}`, units, shards: 4, lease: {} }))
      expect(await drain(stores, charges)).toBe(120)
      expect((await stores[0]?.peek(charges))?.grants.map((grant) => grant.remaining)).toEqual([80, 0])
      await close()
    },
  )
})

test('four consecutive shards are in different quarters of the Cluster slots', async () => {
  const redis = await startRedis(['--cluster-enabled', 'yes'])
  const client = new Redis(redis.url)
  const names = new KeyNames('sl', 'secret', new SlotGroups('secret'))
  const shards = compileLimit({ ...NUMBERS, shards: 4 }).shards ?? []
  for (const owner of ['alice', 'bob', '192.0.2.1', '2001:db8::/64', 'ü', 'x'.repeat(500)]) {
    const slots = await Promise.all(shards.map((shard) => client.cluster('KEYSLOT', names.keyOf(shard, owner, ''))))
    expect(slots.map((slot) => Math.floor(slot / 4096)).sort()).toEqual([0, 1, 2, 3])
  }
  client.disconnect()
  await redis.stop()
})
