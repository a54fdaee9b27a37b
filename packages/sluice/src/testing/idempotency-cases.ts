// Store contract, idempotency keys: a give with a key succeeds once, however often it is retried.

import type { Give, GiveReply } from '../store/store.ts'
import { type Bench, bucket, charge, limitOf } from './contract-fixture.ts'

const MINUTE = 60_000_000
const PACKED_AND_LOG = ['token_bucket', 'fixed_window', 'sliding_window', 'sliding_window_log'] as const

export const IDEMPOTENCY: Record<string, (bench: Bench) => Promise<void>> = {
  'a give with an idempotency key is applied once': async (bench) => {
    for (const algorithm of PACKED_AND_LOG) {
      const limit = limitOf(algorithm)
      const give = await taken(bench, { limit, owner: 'alice', detail: '' }, 3)
      await bench.take([charge(limit, { min: 4, max: 4 })])
      bench.equal(await giveOnce(bench, [give], `first-${algorithm}`), 'given', algorithm)
      bench.equal(await giveOnce(bench, [give], `first-${algorithm}`), 'repeated', algorithm)
      bench.equal(await bench.remaining(limit), 6, algorithm)
      bench.equal(await giveOnce(bench, [{ ...give, units: 1 }], `second-${algorithm}`), 'given', algorithm)
    }
  },

  'concurrent gives with one idempotency key are applied once': async (bench) => {
    const limit = limitOf('fixed_window')
    const give = await taken(bench, bucket(limit), 2)
    await bench.take([charge(limit, { min: 8, max: 8 })])
    const outcomes = await Promise.all(Array.from({ length: 5 }, () => giveOnce(bench, [give], 'same')))
    bench.equal(outcomes.filter((outcome) => outcome === 'given').length, 1)
    bench.equal(await bench.remaining(limit), 2)
  },

  'a give with an idempotency key returns the units of several buckets, once': async (bench) => {
    const limits = [limitOf('token_bucket'), limitOf('sliding_window'), limitOf('sliding_window_log')]
    const owners = ['alice', 'bob', 'carol']
    const gives: Give[] = []
    for (const limit of limits) for (const owner of owners) gives.push(await taken(bench, bucket(limit, owner), 5))
    bench.equal(await giveOnce(bench, gives, 'all'), 'given')
    bench.equal(await giveOnce(bench, gives, 'all'), 'repeated')
    for (const limit of limits) for (const owner of owners) bench.equal(await bench.remaining(limit, owner), 10)
  },

  'a give is rejected after the TTL of its idempotency key': async (bench) => {
    const limit = limitOf('fixed_window', { windowUs: 60 * MINUTE })
    const give = await taken(bench, bucket(limit), 3)
    bench.clock.advanceMs(61_000)
    bench.equal(await giveOnce(bench, [give], 'late'), 'expired')
    bench.equal(await bench.remaining(limit), 7)
    bench.equal(await giveOnce(bench, [give], 'late', 2 * MINUTE), 'given', 'a rejected give is not recorded')
  },

  'a give with an idempotency key also releases a permit': async (bench) => {
    const limit = limitOf('concurrency', { units: 1 })
    const { nowUs } = await bench.take([charge(limit)], 'a')
    const give = { ...bucket(limit), units: 1, bookedUs: nowUs }
    bench.equal((await bench.store.give([give], 'a', { id: 'once', ttlUs: MINUTE })) ?? 'given', 'given')
    bench.equal((await bench.take([charge(limit)], 'b')).granted, true)
  },
}

async function taken(bench: Bench, name: ReturnType<typeof bucket>, units: number): Promise<Give> {
  const { nowUs } = await bench.take([{ ...name, min: units, max: units, kind: 'enforce' }])
  return { ...name, units, bookedUs: nowUs }
}

async function giveOnce(bench: Bench, gives: readonly Give[], id: string, ttlUs = MINUTE): Promise<GiveReply> {
  return bench.store.give(gives, undefined, { id, ttlUs })
}
