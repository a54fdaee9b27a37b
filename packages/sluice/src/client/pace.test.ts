import { getEventListeners } from 'node:events'
import { describe, expect, test } from 'vitest'
import { handTimers } from '../testing/hand-timers.ts'
import { Pace } from './pace.ts'
import type { ToldLimit } from './told-limits.ts'

const PATIENT_MS = 600_000
const LIMIT: ToldLimit = {
  name: 'default',
  unit: 'requests',
  quota: 10,
  remaining: 0,
  resetMs: 30_000,
  windowMs: undefined,
}

/** A pace that one call has been through, with what the server told it. */
async function paceAfter(told: Partial<ToldLimit>, holdMs?: number, random = 0) {
  const timers = handTimers()
  const pace = new Pace({ timers, random: () => random })
  await pace.turn(PATIENT_MS, undefined)
  pace.answered([{ ...LIMIT, ...told }], holdMs)
  return { timers, pace }
}

/** How long a call has waited, once it went. */
async function went(turn: Promise<number>): Promise<number | 'waits'> {
  return Promise.race([turn, Promise.resolve().then(() => 'waits' as const)])
}

describe('a call waits', () => {
  test('until what is spent is renewed, and a random part of a second more', async () => {
    const { timers, pace } = await paceAfter({}, undefined, 0.5)
    const turn = pace.turn(PATIENT_MS, undefined)
    timers.advance(30_499)
    expect(await went(turn)).toBe('waits')
    timers.advance(1)
    expect(await turn).toBe(30_500)
  })

  test('while the server asks to be left alone, whatever is left', async () => {
    const { timers, pace } = await paceAfter({ remaining: 9 }, 5000)
    const turn = pace.turn(PATIENT_MS, undefined)
    timers.advance(4999)
    expect(await went(turn)).toBe('waits')
    timers.advance(1)
    expect(await turn).toBe(5000)
  })

  test('not at all, when it is not said when there is more', async () => {
    const { pace } = await paceAfter({ resetMs: undefined })
    expect(await pace.turn(PATIENT_MS, undefined)).toBe(0)
  })

  test('not for units that calls are not counted in, while some are left', async () => {
    const { pace } = await paceAfter({ unit: 'tokens', remaining: 1 })
    const turns = [1, 2, 3].map(() => pace.turn(PATIENT_MS, undefined))
    expect(await Promise.all(turns)).toEqual([0, 0, 0])
  })

  test('not when ten thousand wait before it', async () => {
    const { pace } = await paceAfter({})
    for (let waiting = 0; waiting < 10_000; waiting += 1) void pace.turn(PATIENT_MS, undefined)
    expect(await went(pace.turn(PATIENT_MS, undefined))).toBe(0)
  })

  test('behind those that came before it, but not behind their patience', async () => {
    const { timers, pace } = await paceAfter({})
    const order: string[] = []
    const patient = ['first', 'second'].map((name) => pace.turn(PATIENT_MS, undefined).then(() => order.push(name)))
    expect(await pace.turn(1000, undefined)).toBe(0)
    timers.advance(30_000)
    await Promise.all(patient)
    expect(order).toEqual(['first', 'second'])
  })
})

test('an answer that tells more ends the waits of others', async () => {
  const { pace } = await paceAfter({})
  const early = pace.turn(0, undefined)
  const turn = pace.turn(PATIENT_MS, undefined)
  await early
  pace.answered([{ ...LIMIT, remaining: 9 }])
  expect(await turn).toBe(0)
})

test('it is idle when nothing is on its way and nobody waits', async () => {
  const { timers, pace } = await paceAfter({})
  expect(pace.idle).toBe(true)
  const turn = pace.turn(PATIENT_MS, undefined)
  expect(pace.idle).toBe(false)
  timers.advance(30_000)
  await turn
  expect(pace.idle).toBe(false)
  pace.answered()
  expect(pace.idle).toBe(true)
})

test('a signal is let go of once the call went', async () => {
  const { pace } = await paceAfter({ remaining: 9 })
  const { signal } = new AbortController()
  await pace.turn(PATIENT_MS, signal)
  expect(getEventListeners(signal, 'abort')).toEqual([])
})
