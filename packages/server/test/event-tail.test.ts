// Races of the live tail: subscribers that come and go while a query runs.

import { describe, expect, test, vi } from 'vitest'
import type { Analytics } from '../src/events/analytics.ts'
import type { DecisionEvent } from '../src/events/event.ts'
import { EventTail } from '../src/events/event-tail.ts'
import { keyHash } from '../src/log.ts'
import { eventRow } from './event-rows.ts'

/** A tail whose queries are answered by the test, in order. */
function startTail() {
  const asked: ((events: readonly DecisionEvent[]) => void)[] = []
  const events = () => new Promise<readonly DecisionEvent[]>((resolve) => asked.push(resolve))
  const tail = new EventTail({ events } as Partial<Analytics> as Analytics, keyHash('secret'), () =>
    Date.UTC(2030, 0, 31),
  )
  const answer = async (...found: readonly DecisionEvent[]) => {
    await vi.waitFor(() => expect(asked.length).toBeGreaterThan(0), 5000)
    asked.shift()?.(found)
    await new Promise((resolve) => setImmediate(resolve))
  }
  const subscribe = (last = 0) => {
    const sent: (DecisionEvent | undefined)[] = []
    const end = tail.subscribe({}, last, (event) => sent.push(event))
    return { sent, end }
  }
  const isAsked = () => vi.waitFor(() => expect(asked).toHaveLength(1), 5000)
  return { tail, subscribe, answer, isAsked, asked }
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
