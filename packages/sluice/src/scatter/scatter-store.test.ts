import { expect, test } from 'vitest'
import { compileLimit, type Limit, type LimitNumbers } from '../algorithms/limit.ts'
import { LimiterError } from '../errors.ts'
import { guardStore } from '../failure/guard-store.ts'
import { memoryStore } from '../store/memory.ts'
import type { Charge, Give, Store, Take, Taken } from '../store/store.ts'
import { fakeClock } from '../testing/fake-clock.ts'
import { manualTimers } from '../testing/manual-timers.ts'
import { remote } from '../testing/remote.ts'
import { scatterStore } from './scatter-store.ts'

const DEADLINE_MS = 15
const DAY_US = 86_400_000_000
const mine = limitOf({ id: 'mine', fact: 'user', onFail: 'open' })
const permit = limitOf({ id: 'permit', fact: 'user', algorithm: 'concurrency' })
const spent = limitOf({ id: 'spent', units: 0, fact: '' })

function limitOf(numbers: Partial<LimitNumbers>): Limit {
  return compileLimit({ id: 'r', algorithm: 'fixed_window', units: 10, windowUs: DAY_US, ...numbers })
}

function chargeOf(limit: Limit): Charge {
  return { limit, owner: 'a', detail: '', min: 1, max: 1, kind: 'enforce' }
}

/** One target for buckets of a user and one for shared buckets; both are asynchronous, as Redis is. */
function bench(wrap: (store: Store) => Store = (store) => store) {
  const clock = fakeClock()
  const narrow = remote(memoryStore({ clock }))
  const shared = remote(memoryStore({ clock }))
  const targets = { narrow: { id: 'narrow', store: wrap(narrow) }, shared: { id: 'shared', store: shared } }
  const store = scatterStore({
    targetOf: ({ limit }) => (limit.fact === '' ? targets.shared : targets.narrow),
    stores: () => [narrow, shared],
  })
  const remaining = async (limit: Limit) => (await narrow.peek([chargeOf(limit)])).grants[0]?.remaining
  return { clock, narrow, store, remaining }
}

test('units charged by a late reply are given back if another target refuses', async () => {
  const timers = manualTimers()
  let reply = () => {}
  const slow = (store: Store): Store => ({
    ...store,
    take: async (take) => {
      const taken = await store.take(take)
      await new Promise<void>((resolve) => {
        reply = resolve
      })
      return taken
    },
  })
  const { store, remaining } = bench((inner) => guardStore(slow(inner), { deadlineMs: DEADLINE_MS, timers }))
  const taken = Promise.resolve(store.take({ charges: [chargeOf(mine), chargeOf(spent)] }))
  await expect.poll(() => remaining(mine)).toBe(9)
  timers.advance(DEADLINE_MS)
  expect(await taken).toMatchObject({ granted: false })
  reply()
  await expect.poll(() => remaining(mine)).toBe(10)
})

test('units counted locally during an outage are given back if another target refuses', async () => {
  const down = () => Promise.reject(new LimiterError('STORE_UNAVAILABLE', 'unreachable'))
  const local = limitOf({ id: 'local', fact: 'user', onFail: 'local' })
  const { store } = bench((inner) => guardStore({ ...inner, take: down, peek: down }, { timers: manualTimers() }))
  for (let times = 0; times < 20; times += 1) await store.take({ charges: [chargeOf(local), chargeOf(spent)] })
  const peeked = await store.peek([chargeOf(local)])
  expect(peeked).toMatchObject({ source: 'local', grants: [{ remaining: 10 }] })
})

test('a rollback keeps a permit that an earlier take of the same operation holds', async () => {
  const { store, remaining } = bench()
  const op = { id: 'request' }
  expect(await store.take({ charges: [chargeOf(permit), chargeOf(mine)], op })).toMatchObject({ granted: true })
  const again = await store.take({ charges: [chargeOf(permit), chargeOf(mine), chargeOf(spent)], op })
  expect(again).toMatchObject({ granted: false })
  expect([await remaining(permit), await remaining(mine)]).toEqual([9, 9])
})

test('a permit is released before the refusal is returned, so that an immediate retry can take it', async () => {
  const slow = (store: Store): Store => ({
    ...store,
    give: async (gives, opId) => {
      await new Promise((resolve) => setImmediate(resolve))
      await store.give(gives, opId)
    },
  })
  const { store, remaining } = bench(slow)
  await store.take({ charges: [chargeOf(permit), chargeOf(spent)], op: { id: 'request' } })
  expect(await remaining(permit)).toBe(10)
})

test('gives that travel with a take are given at most once, even if the reply to the take is lost', async () => {
  const lossy = (store: Store): Store => ({
    ...store,
    take: async (take: Take): Promise<Taken> => {
      await store.take(take)
      throw new Error('the connection broke before the reply arrived')
    },
  })
  const { clock, narrow, store, remaining } = bench(lossy)
  for (let times = 0; times < 5; times += 1) await narrow.take({ charges: [chargeOf(mine)] })
  const gives: Give[] = [{ limit: mine, owner: 'a', detail: '', units: 1, bookedUs: clock.nowUs() }]
  const all = limitOf({ id: 'all', fact: '' })
  await expect(store.take({ charges: [chargeOf(mine), chargeOf(all)], gives })).rejects.toThrow('broke')
  await new Promise((resolve) => setImmediate(resolve))
  expect(await remaining(mine)).toBe(5) // one given, one taken
})
