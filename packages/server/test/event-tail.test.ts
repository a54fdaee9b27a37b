// The live tail: subscribers that come and go while a query runs, and events that it cannot send.

import { afterEach, beforeEach, describe, expect, onTestFinished, test, vi } from 'vitest'
import type { Analytics, EventsQuery } from '../src/events/analytics.ts'
import type { DecisionEvent } from '../src/events/event.ts'
import { EventTail, type TailFilter } from '../src/events/event-tail.ts'
import { keyHash } from '../src/log.ts'
import { eventRow } from './event-rows.ts'

const NOW_MS = Date.UTC(2030, 0, 31)

type Asked = {
  readonly filter: EventsQuery['filter']
  readonly answer: (events: readonly DecisionEvent[]) => void
  readonly fail: () => void
}

/** A tail whose queries are answered by the test, in order. */
function startTail() {
  const asked: Asked[] = []
  const clock = { nowMs: NOW_MS, lagMs: 0 }
  const events = ({ filter }: EventsQuery) =>
    new Promise<readonly DecisionEvent[]>((answer, reject) => {
      asked.push({ filter, answer, fail: () => reject(new Error('down')) })
    })
  const tail = new EventTail({
    analytics: { events } as Partial<Analytics> as Analytics,
    hash: keyHash('secret'),
    nowMs: () => clock.nowMs,
    lagMs: () => clock.lagMs,
  })
  onTestFinished(() => tail.stop())
  const next = async (respond: (query: Asked) => void) => {
    await vi.waitFor(() => expect(asked.length).toBeGreaterThan(0), 5000)
    const query = asked.shift() as Asked
    respond(query)
    await new Promise((resolve) => setImmediate(resolve))
    return query.filter
  }
  const answer = (...found: readonly DecisionEvent[]) => next((query) => query.answer(found))
  const fail = () => next((query) => query.fail())
  const subscribe = (last = 0, filter: TailFilter = {}) => {
    const sent: (DecisionEvent | undefined)[] = []
    const stored: number[] = []
    const end = tail.subscribe(
      filter,
      last,
      (event) => sent.push(event),
      (count) => stored.push(count),
    )
    return { sent, stored, end }
  }
  const isAsked = () => vi.waitFor(() => expect(asked).toHaveLength(1), 5000)
  return { tail, clock, subscribe, answer, fail, isAsked, asked }
}

/** As many as a query returns, newest first. */
function manyEvents(fields: Partial<DecisionEvent> = {}): DecisionEvent[] {
  return Array.from({ length: 1000 }, () => eventRow({ timestamp: NOW_MS, ...fields })).reverse()
}

describe('a live tail', () => {
  test('loses no event between two subscribers that come at once', async () => {
    const { tail, subscribe, answer, asked } = startTail()
    const event = eventRow()
    const [one, other] = [subscribe(), subscribe()]
    await answer()
    if (asked.length > 0) await answer(event) // stored between the two
    await answer(event)
    expect([one.sent, other.sent]).toEqual([[event], [event]])
    tail.stop()
  })

  test('sends events to a subscriber that came during the query', async () => {
    const { tail, subscribe, answer, isAsked } = startTail()
    const event = eventRow()
    subscribe()
    await answer()
    await isAsked()
    const late = subscribe()
    await answer(event)
    expect(late.sent).toEqual([event])
    tail.stop()
  })

  test('says when the stored events are complete, and nothing of them while the sink does not answer', async () => {
    const { subscribe, answer, fail } = startTail()
    const one = subscribe(5)
    await answer()
    await answer(eventRow())
    expect([one.sent.length, one.stored]).toEqual([1, [1]])
    const other = subscribe(5, { rule: 'none such' })
    await fail()
    expect([other.sent, other.stored]).toEqual([[], []])
  })

  test.each([0, 5])('sends nothing after it was stopped: the responses have ended (last %i)', async (last) => {
    const { tail, subscribe, answer, isAsked } = startTail()
    const { sent } = subscribe(last)
    await answer()
    await isAsked()
    tail.stop()
    await answer(eventRow())
    expect(sent).toEqual([])
  })
})

describe('a live tail that cannot send all events', () => {
  beforeEach(() => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] }) // `vi.waitFor` advances them
  })
  afterEach(() => {
    vi.useRealTimers()
  })

  test('says so if they were stored later than it looks back', async () => {
    const { clock, subscribe, answer } = startTail()
    const { sent } = subscribe()
    await answer()
    const event = eventRow()
    clock.lagMs = 30_001
    await answer(event)
    expect(sent).toEqual([event])
    clock.lagMs = 0
    await answer(event)
    await answer(event)
    expect(sent).toEqual([event, undefined])
  })

  test('says so after an outage of its queries, if that was longer than it looks back', async () => {
    const { clock, subscribe, answer, fail } = startTail()
    const { sent } = subscribe()
    await answer()
    for (const outageMs of [29_000, 31_000]) {
      clock.nowMs += outageMs - 1000
      await fail()
      clock.nowMs += 1000
      await answer()
    }
    expect(sent).toEqual([undefined])
  })

  test('sends all events of a filter that matches few of them, and each once', async () => {
    const { subscribe, answer } = startTail()
    const filter = { rule: 'rare' }
    const all = subscribe()
    await answer()
    const [one, other] = [subscribe(0, filter), subscribe(0, filter)]
    const [before, rare] = [NOW_MS - 1, NOW_MS].map((timestamp) => eventRow({ rule_id: 'rare', timestamp }))
    const [first, second] = [manyEvents(), manyEvents()]
    for (const [busy, found] of [
      [first, [rare, before]],
      [second, [rare, before]],
    ] as [DecisionEvent[], DecisionEvent[]][]) {
      expect(await answer(...busy)).toEqual({})
      expect(await answer(...found)).toEqual(filter) // one query for both
    }
    await answer(...second.slice(0, 10), rare as DecisionEvent)
    expect([one.sent, other.sent]).toEqual([[rare], [rare]])
    expect(all.sent).toEqual([undefined, ...first.toReversed(), undefined, ...second.toReversed(), rare])
  })

  test('says so if a filter matches too many of them', async () => {
    const { subscribe, answer } = startTail()
    const { sent } = subscribe(0, { rule: 'demo' })
    await answer()
    const busy = manyEvents()
    await answer(...busy)
    await answer(...busy)
    expect(sent).toEqual([undefined, ...busy.toReversed()])
  })
})
