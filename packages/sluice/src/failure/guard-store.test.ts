import { describe, expect, test } from 'vitest'
import { compileLimit, type LimitNumbers } from '../algorithms/limit.ts'
import { LimiterError } from '../errors.ts'
import { memoryStore } from '../store/memory.ts'
import type { Charge, Store, Taken } from '../store/store.ts'
import { type HandTimers, handTimers } from '../testing/hand-timers.ts'
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
  return { timers, guarded, next, store }
}

/** Lets promises settle. */
const settled = () => new Promise((resolve) => setImmediate(resolve))

/** Lets time pass in small steps, and promises settle in between. */
async function pass(timers: HandTimers, ms: number): Promise<void> {
  for (let passedMs = 0; passedMs < ms; passedMs += 5) {
    timers.advance(Math.min(5, ms - passedMs))
    await settled()
  }
}

describe('the breaker', () => {
  test('is closed by a background probe, at most 250 ms after the store is back', async () => {
    const { timers, guarded, next } = await openBreaker()
    await pass(timers, 60_000)
    next(() => memoryStore().take({ charges: [chargeOf()] }))
    await pass(timers, 250)
    expect(guarded.breaker).toBe('closed')
  })

  test('is not closed by a client: while it is open, no request reaches the store', async () => {
    const { guarded, next } = await openBreaker()
    let asked = 0
    next(() => {
      asked += 1
      return memoryStore().take({ charges: [chargeOf()] })
    })
    for (let times = 0; times < 100; times += 1) await guarded.take({ charges: [chargeOf()] })
    expect([asked, guarded.breaker]).toEqual([0, 'open'])
  })

  test('probes one at a time, at most every 125 ms', async () => {
    const { timers, next } = await openBreaker()
    let asked = 0
    next(() => {
      asked += 1
      return Promise.reject(OUTAGE)
    })
    await pass(timers, 10_000)
    expect(asked).toBeGreaterThanOrEqual(10_000 / 250)
    expect(asked).toBeLessThanOrEqual(10_000 / 125)
  })

  test('stays open while the store answers later than the deadline', async () => {
    const { timers, guarded, next } = await openBreaker()
    const replies: (() => void)[] = []
    next(
      () =>
        new Promise((resolve) => replies.push(() => resolve(memoryStore().take({ charges: [chargeOf()] }) as Taken))),
    )
    for (let ms = 0; ms < 5000; ms += 500) {
      await pass(timers, 500)
      replies.shift()?.()
      await settled()
      expect(guarded.breaker).toBe('open')
    }
    await pass(timers, 5)
    replies.shift()?.()
    await settled()
    expect(guarded.breaker).toBe('closed')
  })

  test('a probe that meets a bad value closes it: the store did answer', async () => {
    const { timers, guarded, next } = await openBreaker()
    next(() => Promise.reject(CORRUPT))
    await pass(timers, 250)
    expect(guarded.breaker).toBe('closed')
  })

  test('opens after one failed request and two failed probes: no traffic is needed to find an outage', async () => {
    const timers = handTimers()
    const { store, next } = scriptedStore()
    const guarded = guardStore(store, { timers })
    next(fails)
    await guarded.take({ charges: [chargeOf()] })
    expect(guarded.breaker).toBe('closed')
    await pass(timers, 500)
    expect(guarded.breaker).toBe('open')
  })

  test('a drill that begins while a probe is out ends all the same', async () => {
    const timers = handTimers()
    const { store, next } = scriptedStore()
    const guarded = guardStore(store, { timers })
    next(fails)
    await guarded.take({ charges: [chargeOf()] })
    let reply = () => {}
    next(
      () =>
        new Promise((resolve) => {
          reply = () => resolve(memoryStore().take({ charges: [chargeOf()] }) as Taken)
        }),
    )
    await pass(timers, 250)
    guarded.drill(300)
    next(() => memoryStore().take({ charges: [chargeOf()] }))
    reply()
    await settled()
    expect(guarded.breaker).toBe('open')
    await pass(timers, 600)
    expect(guarded.breaker).toBe('closed')
  })

  test('says nothing and probes nothing after close', async () => {
    const seen: string[] = []
    const timers = handTimers()
    const { store, next } = scriptedStore()
    const guarded = guardStore(store, { timers, onTransition: ({ state }) => void seen.push(state) })
    next(fails)
    for (let times = 0; times < 3; times += 1) await guarded.take({ charges: [chargeOf()] })
    let fail = () => {}
    next(() => new Promise((_resolve, reject) => (fail = () => reject(OUTAGE))))
    await pass(timers, 250)
    await guarded.close()
    let asked = 0
    next(() => {
      asked += 1
      return Promise.reject(new LimiterError('CLOSED', 'closed'))
    })
    fail() // the probe that was out
    await pass(timers, 1000)
    expect([seen, asked]).toEqual([['open'], 0])
  })

  test('a drill of 0 ms ends one, and opens nothing', async () => {
    const seen: string[] = []
    const timers = handTimers()
    const guarded = guardStore(memoryStore(), { timers, onTransition: ({ state }) => void seen.push(state) })
    guarded.drill(0)
    expect([guarded.breaker, seen]).toEqual(['closed', []])
    guarded.drill(60_000)
    guarded.drill(0)
    await pass(timers, 250)
    expect([guarded.breaker, seen]).toEqual(['closed', ['open', 'closed']])
  })

  test('a drill ends when it was meant to end', async () => {
    const timers = handTimers()
    const guarded = guardStore(memoryStore(), { timers })
    guarded.drill(1000)
    await pass(timers, 990)
    expect(guarded.breaker).toBe('open')
    await pass(timers, 260)
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
  const guarded = guardStore({ ...store, give: (gives, opId) => memory.give(gives, opId) }, { timers, deadlineMs: 15 })
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
    const guarded = guardStore(store, { timers, deadlineMs: 15 })
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
    const guarded = guardStore({ ...store, give: () => new Promise(() => {}) }, { timers, deadlineMs: 15 })
    next(never)
    const waiting = guarded.take({ charges: [chargeOf()] })
    const { limit, owner, detail } = chargeOf()
    const given = guarded.give([{ limit, owner, detail, units: 1, bookedUs: 0 }])
    timers.advance(15)
    await expect(given).rejects.toMatchObject({ code: 'STORE_UNAVAILABLE' })
    await guarded.close()
    expect(await waiting).toMatchObject({ source: 'policy' })
  })

  test.each([15, 100])('does not count a stall of this process: %i ms', async (deadlineMs) => {
    const timers = handTimers()
    const { store, next } = scriptedStore()
    const guarded = guardStore(store, { timers, deadlineMs })
    let reply = () => {}
    next(
      () => new Promise((resolve) => (reply = () => resolve(memoryStore().take({ charges: [chargeOf()] }) as Taken))),
    )
    const taken = guarded.take({ charges: [chargeOf()] })
    timers.advance(deadlineMs / 2)
    timers.stall(200)
    timers.advance(deadlineMs / 4)
    reply()
    expect(await taken).toMatchObject({ source: 'store' })
  })

  test.each([15, 100])('ends a wait at 250 ms more, however much this process stalls: %i ms', async (deadlineMs) => {
    const timers = handTimers()
    const { store, next } = scriptedStore()
    const guarded = guardStore(store, { timers, deadlineMs })
    next(never)
    let answeredMs: number | undefined
    void Promise.resolve(guarded.take({ charges: [chargeOf()] })).then(() => (answeredMs = timers.nowMs()))
    while (answeredMs === undefined) {
      timers.stall(100)
      await settled()
    }
    expect(answeredMs).toBeGreaterThanOrEqual(deadlineMs + 250)
    expect(answeredMs).toBeLessThan(deadlineMs + 250 + 100)
  })

  test.each([15, 100, 1000])('is kept to the millisecond while this process is on time: %i ms', async (deadlineMs) => {
    const timers = handTimers()
    const { store, next } = scriptedStore()
    const guarded = guardStore(store, { timers, deadlineMs })
    next(never)
    let answeredMs: number | undefined
    void Promise.resolve(guarded.take({ charges: [chargeOf()] })).then(() => (answeredMs = timers.nowMs()))
    for (let ms = 0; ms < 2 * deadlineMs && answeredMs === undefined; ms += 1) {
      timers.advance(1)
      await settled()
    }
    expect(answeredMs).toBe(deadlineMs)
  })

  test('is for resets too: late or with an open breaker they fail, and say so', async () => {
    const timers = handTimers()
    const { store } = scriptedStore()
    const guarded = guardStore({ ...store, reset: () => new Promise(() => {}) }, { timers, deadlineMs: 15 })
    const reset = guarded.reset(chargeOf())
    timers.advance(15)
    await expect(reset).rejects.toThrow(/STORE_UNAVAILABLE.*may or may not have been reset/)
    guarded.drill(1000)
    await expect(guarded.reset(chargeOf())).rejects.toThrow(/STORE_UNAVAILABLE.*nothing was reset/)
  })
})

test('a take that replaces what it reset keeps its units when the answer is late', async () => {
  const timers = handTimers()
  const memory = memoryStore()
  const { store, next } = scriptedStore()
  const given: unknown[] = []
  const guarded = guardStore({ ...store, give: (gives) => void given.push(gives) }, { timers, deadlineMs: 15 })
  const charge = chargeOf({}, 4)
  let answer = () => {}
  next(
    () =>
      new Promise((resolve) => {
        answer = () => resolve(memory.take({ charges: [charge] }))
      }),
  )
  for (const resets of [undefined, [charge]]) {
    const taken = guarded.take({ charges: [charge], resets })
    timers.advance(15)
    expect(await taken).toMatchObject({ source: 'policy' })
    memory.reset(charge)
    answer()
    await expect.poll(() => guarded.stats?.().late_replies).toBe(resets === undefined ? 1 : 2)
  }
  expect(given).toHaveLength(1)
})

describe('a give', () => {
  const { limit, owner, detail } = chargeOf()
  const gives = [{ limit, owner, detail, units: 1, bookedUs: 0 }]

  test('that the store does not confirm in time is an error, and its answer may still come', async () => {
    const timers = handTimers()
    let answer = (_error: Error) => {}
    const give = () =>
      new Promise<void>((_resolve, reject) => {
        answer = reject
      })
    const guarded = guardStore({ ...scriptedStore().store, give }, { timers, deadlineMs: 15 })
    const given = guarded.give(gives)
    timers.advance(15)
    await expect(given).rejects.toMatchObject({
      code: 'STORE_UNAVAILABLE',
      message: expect.stringContaining('in time'),
    })
    answer(OUTAGE) // an unhandled rejection would fail the run
  })

  test('while the circuit breaker is open is an error at once, and the store is not asked', async () => {
    const { guarded, store } = await openBreaker()
    store.give = () => expect.unreachable()
    await expect(guarded.give(gives)).rejects.toMatchObject({ code: 'STORE_UNAVAILABLE' })
  })

  test('that fails counts as a failure of the store, and one that meets a bad value does not', async () => {
    for (const [error, failures] of [
      [OUTAGE, 1],
      [CORRUPT, 0],
    ] as const) {
      const guarded = guardStore({ ...scriptedStore().store, give: () => Promise.reject(error) }, {})
      await expect(guarded.give(gives)).rejects.toBe(error)
      expect(guarded.stats?.()).toMatchObject({ failures })
    }
  })
})
