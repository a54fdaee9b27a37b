import { describe, expect, test } from 'vitest'
import { compileLimit, type LimitNumbers } from '../algorithms/limit.ts'
import { LimiterError } from '../errors.ts'
import { memoryStore } from '../store/memory.ts'
import type { Charge, Store, Taken } from '../store/store.ts'
import { handTimers } from '../testing/hand-timers.ts'
import { guardStore } from './guard-store.ts'

const OUTAGE = new LimiterError('STORE_UNAVAILABLE', 'gone')
const CORRUPT = new LimiterError('STORE_CORRUPT', 'not ours')

function chargeOf(numbers: Partial<LimitNumbers> = {}, max = 1): Charge {
  const limit = compileLimit({ id: 'r', algorithm: 'fixed_window', units: 4, windowUs: 3_600e6, ...numbers })
  return { limit, owner: 'a', detail: '', min: 1, max, kind: 'enforce' }
}

/** A store whose next takes do what they are told. */
function scriptedStore(): { store: Store; next: (answer: () => Taken | Promise<Taken>) => void } {
  const memory = memoryStore()
  let scripted: (() => Taken | Promise<Taken>) | undefined
  const store: Store = {
    ...memory,
    take: (take) => (scripted === undefined ? memory.take(take) : scripted()),
    peek: (charges) => (scripted === undefined ? memory.peek(charges) : scripted()),
    give: (gives) => memory.give(gives),
    reset: (bucket) => memory.reset(bucket),
    close: () => memory.close(),
  }
  return {
    store,
    next(answer) {
      scripted = answer
    },
  }
}

const fails = () => Promise.reject(OUTAGE)
const never = () => new Promise<Taken>(() => {})

async function openBreaker(numbers: Partial<LimitNumbers> = {}) {
  const timers = handTimers()
  const { store, next } = scriptedStore()
  const guarded = guardStore(store, { timers, random: () => 0.5, nodes: 2 })
  next(fails)
  for (let times = 0; times < 3; times += 1) await guarded.take({ charges: [chargeOf(numbers)] })
  expect(guarded.breaker).toBe('open')
  return { timers, guarded, next }
}

describe('the breaker', () => {
  test('a probe that meets a bad value closes it: the store did answer', async () => {
    const { timers, guarded, next } = await openBreaker()
    timers.advance(10_000)
    next(() => Promise.reject(CORRUPT))
    await expect(guarded.take({ charges: [chargeOf()] })).rejects.toThrow('STORE_CORRUPT')
    expect(guarded.breaker).toBe('closed')
  })

  test('somebody who listens and throws does no harm', async () => {
    const timers = handTimers()
    const { store, next } = scriptedStore()
    const onTransition = () => {
      throw new Error('mine')
    }
    const guarded = guardStore(store, { timers, onTransition })
    next(fails)
    for (let times = 0; times < 4; times += 1) {
      expect(await guarded.take({ charges: [chargeOf()] })).toMatchObject({ granted: true, source: 'policy' })
    }
  })
})

describe('while the store is away', () => {
  test('a peek says what would be decided, for each charge, and takes nothing', async () => {
    const { guarded } = await openBreaker({ onFail: 'closed' })
    const local = chargeOf({ id: 'local', onFail: 'local' })
    for (let times = 0; times < 5; times += 1) {
      const { granted, grants } = await guarded.peek([local, chargeOf({ id: 'open' })])
      expect([granted, grants.map(({ remaining }) => remaining)]).toEqual([true, [2, 4]])
    }
    expect(await guarded.peek([chargeOf({ onFail: 'closed' })])).toMatchObject({ granted: false })
  })

  test('a lease that asks ahead takes of the local part only what it needs', async () => {
    const { guarded } = await openBreaker()
    const charge = chargeOf({ id: 'local', onFail: 'local', units: 20 }, 8)
    const granted = []
    for (let times = 0; times < 12; times += 1) granted.push((await guarded.take({ charges: [charge] })).granted)
    expect(granted.filter(Boolean)).toHaveLength(10) // half of twenty
    expect(await guarded.take({ charges: [{ ...charge, kind: 'hold' }] })).toMatchObject({ granted: false })
  })
})

test('a permit that is granted too late is released: whoever was let pass meanwhile does not know of it', async () => {
  const timers = handTimers()
  const { store, next } = scriptedStore()
  const memory = memoryStore()
  const guarded = guardStore({ ...store, give: (gives, opId) => memory.give(gives, opId) }, { timers })
  const take = { charges: [chargeOf({ algorithm: 'concurrency' })], op: { id: 'request' } }
  let answer = () => {}
  next(async () => {
    const taken = memory.take(take)
    await new Promise<void>((resolve) => {
      answer = resolve
    })
    return taken
  })
  const taken = guarded.take(take)
  timers.advance(15)
  expect(await taken).toMatchObject({ granted: true, source: 'policy' })
  answer()
  await expect.poll(() => memory.peek(take.charges)).toMatchObject({ grants: [{ remaining: 4 }] })
})

describe('the deadline', () => {
  test('counts from when the check began to wait', async () => {
    const timers = handTimers()
    const { store, next } = scriptedStore()
    const guarded = guardStore(store, { timers })
    next(never)
    const fresh = guarded.take({ charges: [chargeOf()] })
    const waited = guarded.take({ charges: [chargeOf()], askedMs: -10 })
    timers.advance(6)
    expect(await waited).toMatchObject({ source: 'policy' })
    timers.advance(10)
    expect(await fresh).toMatchObject({ source: 'policy' })
  })

  test('ends with the store: whoever still waits is answered, and gives do not hold it up', async () => {
    const timers = handTimers()
    const { store, next } = scriptedStore()
    const guarded = guardStore({ ...store, give: () => new Promise(() => {}) }, { timers })
    next(never)
    const waiting = guarded.take({ charges: [chargeOf()] })
    const { limit, owner, detail } = chargeOf()
    const given = guarded.give([{ limit, owner, detail, units: 1, bookedUs: 0 }])
    timers.advance(15)
    await given
    await guarded.close()
    expect(await waiting).toMatchObject({ source: 'policy' })
  })
})
