import { describe, expect, test } from 'vitest'
import { compileLimit, type LimitNumbers } from '../algorithms/limit.ts'
import { LimiterError } from '../errors.ts'
import { memoryStore } from '../store/memory.ts'
import type { Charge, Store, Take, Taken } from '../store/store.ts'
import { type ManualTimers, manualTimers } from '../testing/manual-timers.ts'
import { guardStore } from './guard-store.ts'

const OUTAGE = new LimiterError('STORE_UNAVAILABLE', 'unreachable')
const CORRUPT = new LimiterError('STORE_CORRUPT', 'unreadable')

function chargeOf(numbers: Partial<LimitNumbers> = {}, max = 1): Charge {
  const limit = compileLimit({ id: 'r', algorithm: 'fixed_window', units: 4, windowUs: 3_600e6, ...numbers })
  return { limit, owner: 'a', detail: '', min: 1, max, kind: 'enforce' }
}

/** A memory store whose next takes and peeks can be scripted. */
function scriptedStore(): { store: Store; next: (reply: () => Taken | Promise<Taken>) => void } {
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
    next(reply) {
      scripted = reply
    },
  }
}

const fails = () => Promise.reject(OUTAGE)
const never = () => new Promise<Taken>(() => {})
const memoryTake = () => memoryStore().take({ charges: [chargeOf()] }) as Taken

async function openBreaker(numbers: Partial<LimitNumbers> = {}) {
  const timers = manualTimers()
  const { store, next } = scriptedStore()
  const guarded = guardStore(store, { timers, random: () => 0.5, nodes: 2 })
  next(fails)
  for (let times = 0; times < 3; times += 1) await guarded.take({ charges: [chargeOf(numbers)] })
  expect(guarded.breaker).toBe('open')
  return { timers, guarded, next, store }
}

/** Lets promises settle. */
const settled = () => new Promise((resolve) => setImmediate(resolve))

/** Advances time in steps of 5 ms, and lets promises settle in between. */
async function pass(timers: ManualTimers, ms: number): Promise<void> {
  for (let passedMs = 0; passedMs < ms; passedMs += 5) {
    timers.advance(Math.min(5, ms - passedMs))
    await settled()
  }
}

describe('the circuit breaker', () => {
  test('is closed by a background probe within 250 ms after the store has recovered', async () => {
    const { timers, guarded, next } = await openBreaker()
    await pass(timers, 60_000)
    next(() => memoryStore().take({ charges: [chargeOf()] }))
    await pass(timers, 250)
    expect(guarded.breaker).toBe('closed')
  })

  test('sends no client request to the store while it is open', async () => {
    const { guarded, next } = await openBreaker()
    let requests = 0
    next(() => {
      requests += 1
      return memoryStore().take({ charges: [chargeOf()] })
    })
    for (let times = 0; times < 100; times += 1) await guarded.take({ charges: [chargeOf()] })
    expect([requests, guarded.breaker]).toEqual([0, 'open'])
  })

  test('probes one at a time, at most every 125 ms', async () => {
    const { timers, next } = await openBreaker()
    let requests = 0
    next(() => {
      requests += 1
      return Promise.reject(OUTAGE)
    })
    await pass(timers, 10_000)
    expect(requests).toBeGreaterThanOrEqual(10_000 / 250)
    expect(requests).toBeLessThanOrEqual(10_000 / 125)
  })

  test('stays open while replies take longer than the deadline', async () => {
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

  test('is closed by a probe that finds an unreadable value: the store did reply', async () => {
    const { timers, guarded, next } = await openBreaker()
    next(() => Promise.reject(CORRUPT))
    await pass(timers, 250)
    expect(guarded.breaker).toBe('closed')
  })

  test('opens after one failed request and two failed probes, without further traffic', async () => {
    const timers = manualTimers()
    const { store, next } = scriptedStore()
    const guarded = guardStore(store, { timers })
    next(fails)
    await guarded.take({ charges: [chargeOf()] })
    expect(guarded.breaker).toBe('closed')
    await pass(timers, 500)
    expect(guarded.breaker).toBe('open')
  })

  test('opens without any traffic, when probes of the idle store fail or have no reply', async () => {
    for (const reply of [fails, never]) {
      const timers = manualTimers()
      const { store, next } = scriptedStore()
      const guarded = guardStore(store, { timers })
      await guarded.take({ charges: [chargeOf()] })
      next(reply)
      for (let seconds = 1; seconds <= 3; seconds += 1) {
        await pass(timers, 1000)
        guarded.probeIdle(500)
      }
      await pass(timers, 200)
      expect(guarded.breaker).toBe('open')
    }
  })

  test('stays closed while an idle store replies, and a busy one is not probed', async () => {
    const timers = manualTimers()
    const { store } = scriptedStore()
    let requests = 0
    const counted = { ...store, peek: (charges: Charge[]) => ++requests && store.peek(charges) } as Store
    const guarded = guardStore(counted, { timers })
    for (let seconds = 1; seconds <= 10; seconds += 1) {
      await pass(timers, 1000)
      guarded.probeIdle(500)
    }
    await settled()
    expect([guarded.breaker, requests]).toEqual(['closed', 10])
    for (let seconds = 1; seconds <= 10; seconds += 1) {
      await guarded.take({ charges: [chargeOf()] })
      await pass(timers, 400)
      guarded.probeIdle(500)
    }
    expect(requests).toBe(10)
  })

  test('does not hold up a check while the probe of an idle store waits for its reply', async () => {
    const timers = manualTimers()
    const { store, next } = scriptedStore()
    const guarded = guardStore(store, { timers })
    next(never)
    timers.advance(1000)
    guarded.probeIdle(500)
    next(memoryTake)
    expect(await guarded.take({ charges: [chargeOf()] })).toMatchObject({ granted: true, source: 'store' })
    await pass(timers, 1000)
    expect(guarded.breaker, 'one probe without a reply is no outage').toBe('closed')
  })

  test('ends a drill that began while a probe was in flight', async () => {
    const timers = manualTimers()
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

  test('reports no transition and sends no probe after close', async () => {
    const seen: string[] = []
    const timers = manualTimers()
    const { store, next } = scriptedStore()
    const guarded = guardStore(store, { timers, onTransition: ({ state }) => void seen.push(state) })
    next(fails)
    for (let times = 0; times < 3; times += 1) await guarded.take({ charges: [chargeOf()] })
    let fail = () => {}
    next(() => new Promise((_resolve, reject) => (fail = () => reject(OUTAGE))))
    await pass(timers, 250)
    await guarded.close()
    let requests = 0
    next(() => {
      requests += 1
      return Promise.reject(new LimiterError('CLOSED', 'closed'))
    })
    fail() // the probe that was in flight
    await pass(timers, 1000)
    expect([seen, requests]).toEqual([['open'], 0])
  })

  test('is not opened by a drill of 0 ms, which ends a running drill', async () => {
    const seen: string[] = []
    const timers = manualTimers()
    const guarded = guardStore(memoryStore(), { timers, onTransition: ({ state }) => void seen.push(state) })
    guarded.drill(0)
    expect([guarded.breaker, seen]).toEqual(['closed', []])
    guarded.drill(60_000)
    guarded.drill(0)
    await pass(timers, 250)
    expect([guarded.breaker, seen]).toEqual(['closed', ['open', 'closed']])
  })

  test('is closed after the duration of a drill', async () => {
    const timers = manualTimers()
    const guarded = guardStore(memoryStore(), { timers })
    guarded.drill(1000)
    await pass(timers, 990)
    expect(guarded.breaker).toBe('open')
    await pass(timers, 260)
    expect(guarded.breaker).toBe('closed')
  })

  test('ignores a listener that throws', async () => {
    const timers = manualTimers()
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

describe('while the store is unavailable', () => {
  test('a peek returns what on_fail would decide for each charge, and takes nothing', async () => {
    const { guarded } = await openBreaker({ onFail: 'closed' })
    const local = chargeOf({ id: 'local', onFail: 'local' })
    for (let times = 0; times < 5; times += 1) {
      const { granted, grants } = await guarded.peek([local, chargeOf({ id: 'open' })])
      expect([granted, grants.map(({ remaining }) => remaining)]).toEqual([true, [2, 4]])
    }
    expect(await guarded.peek([chargeOf({ onFail: 'closed' })])).toMatchObject({ granted: false })
  })

  test('a lease refill takes only the units needed now from the node share, and no hold', async () => {
    const { guarded } = await openBreaker()
    const charge = chargeOf({ id: 'local', onFail: 'local', units: 20 }, 8)
    const granted = []
    for (let times = 0; times < 12; times += 1) granted.push((await guarded.take({ charges: [charge] })).granted)
    expect(granted.filter(Boolean)).toHaveLength(10) // half of twenty
    expect(await guarded.take({ charges: [{ ...charge, kind: 'hold' }] })).toMatchObject({ granted: false })
  })
})

test('a permit granted by a late reply is released, because the caller does not know of it', async () => {
  const timers = manualTimers()
  const { store, next } = scriptedStore()
  const memory = memoryStore()
  const guarded = guardStore({ ...store, give: (gives, opId) => memory.give(gives, opId) }, { timers, deadlineMs: 15 })
  const take = { charges: [chargeOf({ algorithm: 'concurrency' })], op: { id: 'request' } }
  let reply = () => {}
  next(async () => {
    const taken = memory.take(take)
    await new Promise<void>((resolve) => {
      reply = resolve
    })
    return taken
  })
  const taken = guarded.take(take)
  timers.advance(15)
  expect(await taken).toMatchObject({ granted: true, source: 'policy' })
  reply()
  await expect.poll(() => memory.peek(take.charges)).toMatchObject({ grants: [{ remaining: 4 }] })
})

describe('the deadline', () => {
  test('covers all requests of a check: each adds the time that the store took', async () => {
    const timers = manualTimers()
    const { store, next } = scriptedStore()
    const guarded = guardStore(store, { timers, deadlineMs: 100 })
    const spent = { ms: 0 }
    const slow = () => new Promise<Taken>((resolve) => timers.after(60, () => resolve(memoryTake())))
    next(slow)
    const first = guarded.take({ charges: [chargeOf()], spent })
    await pass(timers, 60)
    expect(await first).toMatchObject({ source: 'store' })
    const second = guarded.take({ charges: [chargeOf()], spent })
    const fresh = guarded.take({ charges: [chargeOf()], spent: { ms: 0 } })
    await pass(timers, 60)
    expect(await second).toMatchObject({ source: 'policy', policyReason: 'timeout' })
    expect(await fresh).toMatchObject({ source: 'store' })
    const sent = [] as unknown[]
    next(() => {
      sent.push(1)
      return memoryTake()
    })
    const third = (await guarded.take({ charges: [chargeOf()], spent })) as Taken
    expect([third.policyReason, sent], 'no time is left: not sent').toEqual(['timeout', []])
  })

  test('starts again where it was when the store writes a request that waited for another reply', async () => {
    const timers = { ...manualTimers(), soon: (work: () => void) => void setImmediate(work) }
    const { store } = scriptedStore()
    let written = () => {}
    const take = ({ onSent = () => {} }: Take) => {
      written = onSent
      return never()
    }
    const guarded = guardStore({ ...store, take }, { timers, deadlineMs: 100 })
    let taken: Taken | undefined
    void Promise.resolve(guarded.take({ charges: [chargeOf()] })).then((reply) => {
      taken = reply
    })
    await pass(timers, 50) // the store's time: it owes a reply that the request waits for
    timers.stall(1000) // that reply arrived at once, but nothing has read it
    written()
    await pass(timers, 30)
    expect(taken).toBeUndefined()
    await pass(timers, 65)
    expect(taken).toMatchObject({ source: 'policy', policyReason: 'timeout' })
  })

  test('of a caller that gives up earlier is an error: no decision by policy, no failure of the store', async () => {
    const timers = manualTimers()
    const memory = memoryStore()
    const { store, next } = scriptedStore()
    const guarded = guardStore({ ...store, give: (gives) => memory.give(gives) }, { timers, deadlineMs: 100 })
    next(
      () => new Promise((resolve) => timers.after(50, () => resolve(memory.take({ charges: [chargeOf()] }) as Taken))),
    )
    for (let times = 0; times < 10; times += 1) {
      const failures: unknown[] = []
      const take = { charges: [chargeOf({ onFail: 'open' })], expiresMs: timers.nowMs() + 17 }
      Promise.resolve(guarded.take(take)).catch(({ code }) => failures.push(code))
      await pass(timers, 15)
      expect(failures).toEqual([])
      await pass(timers, 45)
      expect(failures).toEqual(['DEADLINE_EXCEEDED'])
    }
    expect(guarded.stats?.()).toMatchObject({ timeouts: 0, policy_decisions: 0, failures: 0, late_returns: 10 })
    expect(memory.peek([chargeOf()]), 'the units of late replies are given back').toMatchObject({
      grants: [{ remaining: 4 }],
    })
    next(() => expect.unreachable('a caller that is already gone is not sent to the store'))
    const expiresMs = timers.nowMs()
    await expect(guarded.take({ charges: [chargeOf()], expiresMs })).rejects.toMatchObject({
      code: 'DEADLINE_EXCEEDED',
    })
    await expect(guarded.peek([chargeOf()], false, expiresMs)).rejects.toMatchObject({ code: 'DEADLINE_EXCEEDED' })
  })

  test('runs on when a caller gives up: a frozen store opens the breaker, however impatient the callers', async () => {
    const timers = manualTimers()
    const { store, next } = scriptedStore()
    const guarded = guardStore(store, { timers, deadlineMs: 100 })
    next(never)
    for (let times = 0; times < 20 && guarded.breaker === 'closed'; times += 1) {
      Promise.resolve(guarded.take({ charges: [chargeOf()], expiresMs: timers.nowMs() + 17 })).catch(() => {})
      await pass(timers, 30)
    }
    expect(guarded.breaker).toBe('open')
    expect(await guarded.take({ charges: [chargeOf()] })).toMatchObject({ policyReason: 'breaker_open' })
  })

  test('is over for a caller that asks not to wait for the store: on_fail decides', async () => {
    const { store, next } = scriptedStore()
    next(() => expect.unreachable('the store is not asked'))
    const guarded = guardStore(store, { timers: manualTimers() })
    const wanted = { source: 'policy', policyReason: 'unavailable' }
    expect(await guarded.take({ charges: [chargeOf()], expiresMs: 0 })).toMatchObject(wanted)
    expect(await guarded.peek([chargeOf()], false, 0)).toMatchObject(wanted)
  })

  test('runs other requests: none while the breaker is open, and their failures open it', async () => {
    const timers = manualTimers()
    const { store, next } = scriptedStore()
    const guarded = guardStore(store, { timers, deadlineMs: 100 })
    next(never) // probes
    expect(await guarded.request(async () => 'reply')).toBe('reply')
    let sent = 0
    for (let times = 0; times < 5; times += 1) {
      const failed = guarded.request(() => {
        sent += 1
        return new Promise(() => {})
      })
      failed.catch(() => {})
      await pass(timers, 130)
      await expect(failed).rejects.toMatchObject({ code: 'STORE_UNAVAILABLE' })
    }
    expect([guarded.breaker, sent]).toEqual(['open', 3])
  })

  test('is not extended by a caller that has more time', async () => {
    const timers = manualTimers()
    const { store, next } = scriptedStore()
    const guarded = guardStore(store, { timers, deadlineMs: 100 })
    next(never)
    const decided: string[] = []
    const take = { charges: [chargeOf()], expiresMs: timers.nowMs() + 60_000 }
    void Promise.resolve(guarded.take(take)).then(({ source }) => decided.push(source))
    await pass(timers, 130)
    expect(decided).toEqual(['policy'])
  })

  test('expires with the store: waiting takes are decided by on_fail, and gives do not block close', async () => {
    const timers = manualTimers()
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

  test.each([15, 100])('of %i ms does not include a stall of this process, however long', async (deadlineMs) => {
    // As in an event loop: a late timer fires, then replies that have arrived are read, then immediates run.
    const timers = { ...manualTimers(), soon: (work: () => void) => void setImmediate(work) }
    const { store, next } = scriptedStore()
    const guarded = guardStore(store, { timers, deadlineMs })
    let reply = () => {}
    next(
      () =>
        new Promise((resolve) => {
          reply = () => resolve(memoryTake())
        }),
    )
    for (const turns of [0, 1, 2, 3, 4]) {
      const taken = guarded.take({ charges: [chargeOf()] })
      for (let turn = 0; turn < turns; turn += 1) await settled()
      timers.advance(deadlineMs / 2)
      timers.stall(5000)
      reply()
      expect(await taken).toMatchObject({ source: 'store' })
    }
    expect(guarded.stats?.()).toMatchObject({ timeouts: 0, policy_decisions: 0 })
  })

  test.each([15, 100])(
    'of %i ms ends with the stall if the store really did not reply during it',
    async (deadlineMs) => {
      const timers = manualTimers()
      const { store, next } = scriptedStore()
      const guarded = guardStore(store, { timers, deadlineMs })
      next(never)
      const taken = guarded.take({ charges: [chargeOf()] })
      timers.stall(5000) // replies are read at its end, before the request is judged
      expect(await taken).toMatchObject({ source: 'policy', policyReason: 'timeout' })
    },
  )

  test.each([15, 100, 1000])('of %i ms is kept to the millisecond without stalls', async (deadlineMs) => {
    const timers = manualTimers()
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

  test('applies to resets: after it, or with an open breaker, they reject', async () => {
    const timers = manualTimers()
    const { store } = scriptedStore()
    const guarded = guardStore({ ...store, reset: () => new Promise(() => {}) }, { timers, deadlineMs: 15 })
    const reset = guarded.reset(chargeOf())
    timers.advance(15)
    await expect(reset).rejects.toThrow(/STORE_UNAVAILABLE.*may or may not have been reset/)
    guarded.drill(1000)
    await expect(guarded.reset(chargeOf())).rejects.toThrow(/STORE_UNAVAILABLE.*nothing was reset/)
  })
})

test('a take with resets keeps its units when the reply is late', async () => {
  const timers = manualTimers()
  const memory = memoryStore()
  const { store, next } = scriptedStore()
  const given: unknown[] = []
  const guarded = guardStore({ ...store, give: (gives) => void given.push(gives) }, { timers, deadlineMs: 15 })
  const charge = chargeOf({}, 4)
  let reply = () => {}
  next(
    () =>
      new Promise((resolve) => {
        reply = () => resolve(memory.take({ charges: [charge] }))
      }),
  )
  for (const resets of [undefined, [charge]]) {
    const taken = guarded.take({ charges: [charge], resets })
    timers.advance(15)
    expect(await taken).toMatchObject({ source: 'policy' })
    memory.reset(charge)
    reply()
    await expect.poll(() => guarded.stats?.().late_replies).toBe(resets === undefined ? 1 : 2)
  }
  expect(given).toHaveLength(1)
})

describe('a give', () => {
  const { limit, owner, detail } = chargeOf()
  const gives = [{ limit, owner, detail, units: 1, bookedUs: 0 }]

  test('that the store does not confirm within the deadline rejects; a later reply is ignored', async () => {
    const timers = manualTimers()
    let reply = (_error: Error) => {}
    const give = () =>
      new Promise<void>((_resolve, reject) => {
        reply = reject
      })
    const guarded = guardStore({ ...scriptedStore().store, give }, { timers, deadlineMs: 15 })
    const given = guarded.give(gives)
    timers.advance(15)
    await expect(given).rejects.toMatchObject({
      code: 'STORE_UNAVAILABLE',
      message: expect.stringContaining('within the deadline'),
    })
    reply(OUTAGE) // an unhandled rejection would fail the run
  })

  test('while the circuit breaker is open rejects without a request to the store', async () => {
    const { guarded, store } = await openBreaker()
    store.give = () => expect.unreachable()
    await expect(guarded.give(gives)).rejects.toMatchObject({ code: 'STORE_UNAVAILABLE' })
  })

  test('that fails counts as a failure of the store, unless it finds an unreadable value', async () => {
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
