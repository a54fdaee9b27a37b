// Short calls of the script (src/redis/single.ts): the same effect as a batch, in the cases they are made for. The
// differential test compares their decisions with the algorithms.

import { Redis } from 'ioredis'
import type { Charge, Limit, Taken } from 'sluice'
import { type FakeClock, fakeClock, type RedisProcess, startRedis } from 'sluice/testing'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { compileLimit } from '../src/algorithms/limit.ts'
import { BatchedStore } from '../src/redis/batched-store.ts'
import { KeyNames } from '../src/redis/key.ts'
import { APPLY } from '../src/redis/scripts.generated.ts'
import { singleCall } from '../src/redis/single.ts'

const SECOND_US = 1_000_000
const NAMES = ['short', 'batch'] as const

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
  const take: Trace['take'] = async (limits, owner, cost) => {
    const charges = limits.map((limit): Charge => ({ limit, owner, detail: '', min: cost, max: cost, kind: 'enforce' }))
    const other = [{ ...(charges[0] as Charge), owner: 'other' }] // takes are never empty
    const [batched] = await Promise.all([batch.take({ charges }), batch.peek(other)])
    return [await short.take({ charges }), batched]
  }
  try {
    await trace({ clock, take })
  } finally {
    await Promise.all([short.close(), batch.close()])
  }
}

async function storedUnder(prefix: string): Promise<Map<string, string>> {
  const keys = await client.keys(`${prefix}:*`)
  const values = keys.map(async (key): Promise<[string, string]> => {
    return [key.slice(prefix.length), `${(await client.getBuffer(key))?.toString('hex')} ttl ${await client.ttl(key)}`]
  })
  return new Map((await Promise.all(values)).toSorted())
}

function limitOf(id: string, algorithm: Limit['algorithm'], units: number, windowUs = 60 * SECOND_US): Limit {
  return compileLimit({ id, fact: 'user', algorithm, units, windowUs, detailBounded: true })
}

const token = limitOf('token', 'token_bucket', 10)
const leaky = limitOf('leaky', 'leaky_bucket', 5)
const fixed = limitOf('fixed-\u00e9', 'fixed_window', 20)
const SETS: readonly (readonly Limit[])[] = [[token], [fixed], [token, leaky], [leaky, fixed, token]]

test('a short call and a batch reply alike and write the same value with the same TTL', async () => {
  await onBoth(async ({ clock, take }) => {
    for (let step = 0; step < 60; step += 1) {
      const limits = SETS[step % SETS.length] ?? []
      const [alone, batched] = await take(limits, `user-${step % 3}`, 1 + (step % 2))
      expect(alone, `step ${step}`).toEqual(batched)
      expect(await storedUnder('short'), `step ${step}`).toEqual(await storedUnder('batch'))
      clock.advanceUs(step % 7 === 0 ? 20 * SECOND_US : 300_000)
    }
  })
})

test('a refused short call reports each limit, and writes nothing', async () => {
  await onBoth(async ({ take }) => {
    await take([token, leaky], 'alice', 4)
    const before = await storedUnder('short')
    const [alone, batched] = await take([token, leaky], 'alice', 4)
    expect(alone?.granted).toBe(false)
    expect(alone?.grants.map(({ short }) => short)).toEqual([false, 'now'])
    expect(alone).toEqual(batched)
    const [never] = await take([token, leaky], 'alice', 6)
    expect(never?.grants.map(({ short }) => short)).toEqual([false, 'never'])
    expect(await storedUnder('short')).toEqual(before)
  })
})

test('a short call leaves an unreadable value, and one of another type, to the batch', async () => {
  await onBoth(async ({ take }) => {
    await client.mset('short:{user:bad}', '\x7f\0\0garbage', 'batch:{user:bad}', '\x7f\0\0garbage')
    await expect(take([token], 'bad', 1)).rejects.toThrow('cannot be read')
    for (const prefix of NAMES) await client.rpush(`${prefix}:{user:list}`, 'x')
    const [alone, batched] = await take([token], 'list', 1)
    expect(alone).toEqual(batched)
  })
})

test('new values, TTL renewals, refusals and values with further buckets are decided without the batch', async () => {
  const BATCH = 'local function run_batch()\n'
  expect(APPLY.text).toContain(BATCH)
  const text = APPLY.text.replace(BATCH, `${BATCH}  error('decided by the batch')\n`)
  const names = new KeyNames('alone', 'sluice', undefined)
  const take = (limits: readonly Limit[], units: number, nowUs: number) => {
    const charges = limits.map((limit): Charge => {
      return { limit, owner: 'alice', detail: '', min: units, max: units, kind: 'enforce' }
    })
    const request = { verb: 'take', charges, opId: undefined, gives: undefined, resets: undefined } as const
    const { keys, args } = singleCall(names, 'plain', request)
    return client.eval(text, keys.length, ...keys, ...args, nowUs)
  }
  const nowUs = 1_000_000 * SECOND_US
  expect(await take([token, leaky], 1, nowUs), 'new value').toHaveLength(3)
  expect(await take([token, leaky], 1, nowUs), 'update in place').toHaveLength(3)
  expect(await take([leaky], 1, nowUs), 'further buckets').toHaveLength(2)
  expect(await take([token, leaky], 9, nowUs), 'refusal').toHaveLength(4 + 2 * 4)
  expect(await take([token, leaky], 1, nowUs + 20 * SECOND_US), 'TTL renewal').toHaveLength(3)
  await expect(take([fixed], 1, nowUs + 20 * SECOND_US), 'new bucket in a value').rejects.toThrow('by the batch')
})
