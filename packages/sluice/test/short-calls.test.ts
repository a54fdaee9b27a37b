// Short calls of the script (src/redis/single.ts): the same effect as a batch, in the cases they are made for. The
// differential test compares their decisions with the algorithms.

import { Redis } from 'ioredis'
import type { Charge, Give, Limit, Taken } from 'sluice'
import { type FakeClock, fakeClock, type RedisProcess, seededRandom, startRedis } from 'sluice/testing'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { compileLimit } from '../src/algorithms/limit.ts'
import { BatchedStore } from '../src/redis/batched-store.ts'
import { KeyNames } from '../src/redis/key.ts'
import { formOf } from '../src/redis/request.ts'
import { APPLY } from '../src/redis/scripts.generated.ts'
import { isSingleCall, singleCall } from '../src/redis/single.ts'

const SECOND_US = 1_000_000
const NAMES = ['short', 'batch'] as const
/** TTLs count real time, which passes between the two writes. */
const TTL_TOLERANCE_S = 5
const TTL_MARK_S = 1_000_000

let redis: RedisProcess
let client: Redis
beforeAll(async () => {
  redis = await startRedis()
  client = new Redis(redis.url)
})
afterAll(async () => {
  client.disconnect()
  await redis.stop()
})

type Trace = {
  readonly clock: FakeClock
  take(limits: readonly Limit[], owner: string, cost: number): Promise<Taken[]>
  takeLeased(charges: readonly Charge[], gives?: readonly Give[]): Promise<Taken[]>
}

/** Runs a trace on two stores: one sends each take alone, the other with a peek, which needs a batch. */
async function onBoth(trace: (both: Trace) => Promise<void>): Promise<void> {
  await client.flushall()
  const clock = fakeClock()
  const open = (name: (typeof NAMES)[number]) => {
    const names = new KeyNames(name, 'sluice', undefined)
    return new BatchedStore(client, { connections: 1, names, clock, readsReplicas: false, store: 'default' })
  }
  const [short, batch] = [open('short'), open('batch')]
  await Promise.all([short.ready, batch.ready])
  const takeLeased: Trace['takeLeased'] = async (charges, gives) => {
    const other = [{ ...(charges[0] as Charge), owner: 'other' }] // takes are never empty
    const [batched] = await Promise.all([batch.take({ charges, gives }), batch.peek(other)])
    return [await short.take({ charges, gives }), batched]
  }
  const take: Trace['take'] = (limits, owner, cost) => takeLeased(chargesOf(limits, owner, cost))
  try {
    await trace({ clock, take, takeLeased })
  } finally {
    await Promise.all([short.close(), batch.close()])
  }
}

function chargesOf(limits: readonly Limit[], owner: string, min: number, more: Partial<Charge> = {}): Charge[] {
  return limits.map((limit) => ({ limit, owner, detail: '', min, max: min, kind: 'enforce', ...more }))
}

type Stored = { readonly value: string; readonly ttlS: number }

async function storedUnder(prefix: string): Promise<Map<string, Stored>> {
  const keys = await client.keys(`${prefix}:*`)
  const values = keys.map(async (key): Promise<[string, Stored]> => {
    const [value, ttlS] = await Promise.all([client.getBuffer(key), client.ttl(key)])
    return [key.slice(prefix.length), { value: value?.toString('hex') ?? '', ttlS }]
  })
  return new Map(await Promise.all(values))
}

async function valuesUnder(prefix: string): Promise<Record<string, string>> {
  return Object.fromEntries([...(await storedUnder(prefix))].map(([key, { value }]) => [key, value]))
}

/** Compares values and TTLs, then sets all TTLs to one that no write sets: the next renewal shows. */
async function expectSameStored(where: string): Promise<void> {
  expect(await valuesUnder('short'), where).toEqual(await valuesUnder('batch'))
  const [short, batch] = [await storedUnder('short'), await storedUnder('batch')]
  for (const [key, { ttlS }] of short) {
    expect(Math.abs(ttlS - (batch.get(key)?.ttlS ?? 0)), `${where}, TTL of ${key}`).toBeLessThan(TTL_TOLERANCE_S)
    for (const name of NAMES) await client.expire(`${name}${key}`, TTL_MARK_S)
  }
}

function limitOf(id: string, algorithm: Limit['algorithm'], units: number, windowUs = 60 * SECOND_US): Limit {
  return compileLimit({ id, fact: 'user', algorithm, units, windowUs, detailBounded: true })
}

const token = limitOf('token', 'token_bucket', 10)
const leaky = limitOf('leaky', 'leaky_bucket', 5)
const fixed = limitOf('fixed-\u00e9', 'fixed_window', 20)
const SETS: readonly (readonly Limit[])[] = [[token], [fixed], [leaky], [token, leaky], [leaky, fixed, token]]

/** A token bucket counts units on lease for 5 s; a leased window is an ordinary one. */
const leased: Limit = { ...token, id: 'leased', holdTicks: Math.ceil((5 * SECOND_US) / token.tickUs) }
const strict = limitOf('strict', 'token_bucket', 30)
const LEASED_SETS: readonly (readonly Limit[])[] = [
  [leased],
  [leased, fixed],
  [fixed],
  [strict],
  [leased, strict, fixed],
]

test('a short call and a batch reply alike and write the same value with the same TTL', async () => {
  await onBoth(async ({ clock, take }) => {
    for (let step = 0; step < 60; step += 1) {
      const limits = SETS[step % SETS.length] ?? []
      const [alone, batched] = await take(limits, `user-${step % 3}`, 1 + (step % 2))
      expect(alone, `step ${step}`).toEqual(batched)
      await expectSameStored(`step ${step}`)
      clock.advanceUs(step % 7 === 0 ? 20 * SECOND_US : step % 11 === 5 ? -2 * SECOND_US : 300_000)
    }
  })
})

test('a short call and a batch of a lease reply alike and write the same value with the same TTL', async () => {
  await onBoth(async ({ clock, takeLeased }) => {
    const random = seededRandom(1)
    let booked: Give[] = []
    for (let step = 0; step < 100; step += 1) {
      const owner = `user-${step % 3}`
      const limits = LEASED_SETS[step % LEASED_SETS.length] ?? []
      const min = 1 + (step % 2)
      const charges = limits.map((limit): Charge => {
        const max = min + random.between(0, 4)
        return { limit, owner, detail: '', min, max, kind: random.next() < 0.3 ? 'hold' : 'enforce' }
      })
      const gives = booked.filter((give) => give.owner === owner && limits.includes(give.limit))
      const [alone, batched] = await takeLeased(charges, gives)
      expect(alone, `step ${step}`).toEqual(batched)
      await expectSameStored(`step ${step}`)
      const returned = charges.map(({ limit }, index): Give => {
        const settled = alone?.grants[index]?.units ?? 0
        return { limit, owner, detail: '', units: Math.min(settled, step % 4), bookedUs: clock.nowUs(), settled }
      })
      booked = [...booked.filter((give) => !gives.includes(give)), ...returned]
      clock.advanceUs(random.pick([0, 300_000, 300_000, 2 * SECOND_US, 20 * SECOND_US, -100_000]))
    }
  })
})

test('a refused short call reports each limit, and writes nothing', async () => {
  await onBoth(async ({ take }) => {
    await take([token, leaky], 'alice', 4)
    const before = await valuesUnder('short')
    const [alone, batched] = await take([token, leaky], 'alice', 4)
    expect(alone?.granted).toBe(false)
    expect(alone?.grants.map(({ short }) => short)).toEqual([false, 'now'])
    expect(alone).toEqual(batched)
    const [never] = await take([token, leaky], 'alice', 6)
    expect(never?.grants.map(({ short }) => short)).toEqual([false, 'never'])
    expect(await valuesUnder('short')).toEqual(before)
  })
})

test('a refused short call of a lease charges nothing, and applies the gives that travel with it', async () => {
  await onBoth(async ({ clock, takeLeased }) => {
    const bookedUs = clock.nowUs()
    const charges = [...chargesOf([leased], 'alice', 6, { max: 8 }), ...chargesOf([strict], 'alice', 6)]
    await takeLeased(charges)
    const before = await valuesUnder('short')
    const [refused, batched] = await takeLeased(charges)
    expect(refused?.grants.map(({ short, units }) => [short, units])).toEqual([
      ['now', 0],
      [false, 0],
    ])
    expect(refused).toEqual(batched)
    expect(await valuesUnder('short')).toEqual(before)
    const gives = [{ limit: leased, owner: 'alice', detail: '', units: 1, bookedUs, settled: 2 }]
    const [given, givenInBatch] = await takeLeased(charges, gives)
    expect(given?.granted).toBe(false)
    expect(given?.grants[0]?.remaining).toBe(3)
    expect(given).toEqual(givenInBatch)
    await expectSameStored('at the end')
  })
})

test('an unreadable value fails a short call and stays; one of another type is replaced as by a batch', async () => {
  await onBoth(async ({ take, takeLeased }) => {
    const garbage = '\x7f\0\0garbage'
    for (const prefix of NAMES) {
      await client.set(`${prefix}:{user:bad}`, garbage)
      for (const owner of ['plain', 'leased']) await client.rpush(`${prefix}:{user:${owner}}`, 'x')
    }
    await expect(take([token], 'bad', 1)).rejects.toThrow('cannot be read')
    await expect(takeLeased(chargesOf([leased], 'bad', 1))).rejects.toThrow('cannot be read')
    const [plainAlone, plainBatched] = await take([token], 'plain', 1)
    const [alone, batched] = await takeLeased(chargesOf([leased], 'leased', 1))
    expect([plainAlone, alone]).toEqual([plainBatched, batched])
    for (const prefix of NAMES) {
      expect(await client.get(`${prefix}:{user:bad}`)).toBe(garbage)
      for (const owner of ['plain', 'leased']) expect(await client.type(`${prefix}:{user:${owner}}`)).toBe('string')
    }
    await expectSameStored('at the end')
  })
})

test('new values, TTL renewals, refusals and values with further buckets are decided without the batch', async () => {
  const nowUs = 1_000_000 * SECOND_US
  const take = (limits: readonly Limit[], units: number, atUs: number) =>
    decidedAlone('plain', chargesOf(limits, 'alice', units), [], atUs)
  expect(await take([token, leaky], 1, nowUs), 'new value').toHaveLength(3)
  expect(await take([token, leaky], 1, nowUs), 'update in place').toHaveLength(3)
  expect(await take([leaky], 1, nowUs), 'further buckets').toHaveLength(2)
  expect(await take([token, leaky], 9, nowUs), 'refusal').toHaveLength(4 + 2 * 4)
  expect(await take([token, leaky], 1, nowUs + 20 * SECOND_US), 'TTL renewal').toHaveLength(3)
  await expect(take([fixed], 1, nowUs + 20 * SECOND_US), 'new bucket in a value').rejects.toThrow('by the batch')
})

test('first takes, refills, gives with them, and refusals of leases are decided without the batch', async () => {
  const nowUs = 2_000_000 * SECOND_US
  const take = (limits: readonly Limit[], min: number, max: number, atUs: number, more: Partial<Charge> = {}) =>
    decidedAlone('leased', chargesOf(limits, 'bob', min, { max, ...more }), [], atUs)
  const give = { limit: leased, owner: 'bob', detail: '', units: 1, bookedUs: nowUs, settled: 3 }
  const refill = (atUs: number) =>
    decidedAlone('leased', chargesOf([leased], 'bob', 1, { max: 3, kind: 'hold' }), [give], atUs)
  expect(await take([leased, fixed], 1, 4, nowUs), 'new value').toHaveLength(2 + 2 * 3)
  expect(await take([leased, fixed], 1, 1, nowUs), 'units on lease').toHaveLength(2 + 2 * 3)
  expect(await refill(nowUs), 'refill with a give').toHaveLength(2 + 3)
  expect((await take([leased], 10, 10, nowUs))[1], 'refusal').toBe(0)
  expect(await take([leased, fixed], 1, 2, nowUs + 20 * SECOND_US), 'TTL renewal').toHaveLength(2 + 2 * 3)
  expect(await take([fixed], 1, 20, nowUs + 20 * SECOND_US, { kind: 'hold' }), 'further buckets').toHaveLength(2 + 3)
  for (const [what, decided] of [
    ['TTL renewal by one of two buckets', () => take([leased, fixed], 1, 2, nowUs + 36 * SECOND_US, { kind: 'hold' })],
    ['further buckets and a TTL renewal', () => refill(nowUs + 40 * SECOND_US)],
    ['new bucket in a value', () => take([strict], 1, 2, nowUs + 20 * SECOND_US)],
    ['cost above the capacity', () => take([leased, fixed], 11, 11, nowUs + 20 * SECOND_US)],
    ['clock that stepped back', () => take([leased, fixed], 1, 2, nowUs)],
  ] as const) {
    await expect(decided(), what).rejects.toThrow('by the batch')
  }
})

/** Runs the short call of a take with a script whose batch is an error. */
async function decidedAlone(
  form: 'plain' | 'leased',
  charges: readonly Charge[],
  gives: readonly Give[],
  nowUs: number,
): Promise<readonly number[]> {
  const BATCH = 'local function run_batch()\n'
  expect(APPLY.text).toContain(BATCH)
  const text = APPLY.text.replace(BATCH, `${BATCH}  error('decided by the batch')\n`)
  const request = { verb: 'take', charges, gives, opId: undefined, resets: undefined } as const
  expect(formOf(request)).toBe(form)
  expect(isSingleCall(request, form)).toBe(true)
  const { keys, args } = singleCall(new KeyNames('alone', 'sluice', undefined), form, request)
  return (await client.eval(text, keys.length, ...keys, ...args, nowUs)) as readonly number[]
}
