import { getEventListeners } from 'node:events'
import { describe, expect, test } from 'vitest'
import { manualTimers } from '../testing/manual-timers.ts'
import type { ReportedLimit } from './limit-headers.ts'
import { Pace } from './pace.ts'

const PATIENT_MS = 600_000
const LIMIT: ReportedLimit = {
  name: 'default',
  unit: 'requests',
  quota: 10,
  remaining: 0,
  resetMs: 30_000,
  windowMs: undefined,
}

/** A pace after one call, with the limits that the server reported. */
async function paceAfter(reported: Partial<ReportedLimit>, holdMs?: number, random = 0) {
  const timers = manualTimers()
  const pace = new Pace({ timers, random: () => random })
  await pace.turn(PATIENT_MS, undefined)
  pace.completed([{ ...LIMIT, ...reported }], holdMs)
  return { timers, pace }
}

/** Time that a call waited, once it was sent. */
async function went(turn: Promise<number>): Promise<number | 'waits'> {
  return Promise.race([turn, Promise.resolve().then(() => 'waits' as const)])
}

describe('a call waits', () => {
  test('until the reset, plus up to a second of jitter', async () => {
    const { timers, pace } = await paceAfter({}, undefined, 0.5)
    const turn = pace.turn(PATIENT_MS, undefined)
    timers.advance(30_499)
    expect(await went(turn)).toBe('waits')
    timers.advance(1)
    expect(await turn).toBe(30_500)
  })

  test('until the next one passes, if the limit refills; others wait as long again, or for the response', async () => {
    const { timers, pace } = await paceAfter({ retryMs: 3000 })
    const turns = [1, 2, 3].map(() => pace.turn(PATIENT_MS, undefined))
    const sent = () => Promise.all(turns.map(went))
    timers.advance(2999)
    expect(await sent()).toEqual(['waits', 'waits', 'waits'])
    timers.advance(1)
    expect(await sent()).toEqual([3000, 'waits', 'waits'])
    timers.advance(2999)
    expect(await sent()).toEqual([3000, 'waits', 'waits'])
    timers.advance(1)
    expect(await sent()).toEqual([3000, 6000, 'waits'])
    pace.completed([{ ...LIMIT, remaining: 10, resetMs: 0 }])
    expect(await sent()).toEqual([3000, 6000, 6000])
  })

  test('as long as the server requests, even with units left', async () => {
    const { timers, pace } = await paceAfter({ remaining: 9 }, 5000)
    const turn = pace.turn(PATIENT_MS, undefined)
    timers.advance(4999)
    expect(await went(turn)).toBe('waits')
    timers.advance(1)
    expect(await turn).toBe(5000)
  })

  test('not at all without a reset time', async () => {
    const { pace } = await paceAfter({ resetMs: undefined })
    expect(await pace.turn(PATIENT_MS, undefined)).toBe(0)
  })

  test('not for units other than requests while some are left', async () => {
    const { pace } = await paceAfter({ unit: 'tokens', remaining: 1 })
    const turns = [1, 2, 3].map(() => pace.turn(PATIENT_MS, undefined))
    expect(await Promise.all(turns)).toEqual([0, 0, 0])
  })

  test('not if ten thousand calls are already waiting', async () => {
    const { pace } = await paceAfter({})
    for (let waiting = 0; waiting < 10_000; waiting += 1) void pace.turn(PATIENT_MS, undefined)
    expect(await went(pace.turn(PATIENT_MS, undefined))).toBe(0)
  })

  test('in order of arrival, except for calls that reach their longest wait first', async () => {
    const { timers, pace } = await paceAfter({})
    const order: string[] = []
    const patient = ['first', 'second'].map((name) => pace.turn(PATIENT_MS, undefined).then(() => order.push(name)))
    expect(await pace.turn(1000, undefined)).toBe(0)
    timers.advance(30_000)
    await Promise.all(patient)
    expect(order).toEqual(['first', 'second'])
  })
})

test('a response with more units ends the wait of other calls', async () => {
  const { pace } = await paceAfter({})
  const early = pace.turn(0, undefined)
  const turn = pace.turn(PATIENT_MS, undefined)
  await early
  pace.completed([{ ...LIMIT, remaining: 9 }])
  expect(await turn).toBe(0)
})

test('it is idle if no call is in flight or waiting', async () => {
  const { timers, pace } = await paceAfter({})
  expect(pace.idle).toBe(true)
  const turn = pace.turn(PATIENT_MS, undefined)
  expect(pace.idle).toBe(false)
  timers.advance(30_000)
  await turn
  expect(pace.idle).toBe(false)
  pace.completed()
  expect(pace.idle).toBe(true)
})

test('the listener of a signal is removed once the call is sent', async () => {
  const { pace } = await paceAfter({ remaining: 9 })
  const { signal } = new AbortController()
  await pace.turn(PATIENT_MS, signal)
  expect(getEventListeners(signal, 'abort')).toEqual([])
})
