// Reads stored events for a simulation, page by page and newest first: small pages, so that checks are not delayed.

import type { EventsQuery, Range } from '../events/analytics.ts'
import type { DecisionEvent } from '../events/event.ts'
import type { Feed } from './simulator.ts'

const PAGE = 1000

export type FindEvents = (query: EventsQuery) => Promise<readonly DecisionEvent[]>

/** The newest `limit` events of a range. */
export function storedEvents(find: FindEvents, range: Range, limit: number): Feed {
  return async (send, signal) => {
    let before: DecisionEvent | undefined
    for (let left = limit; left > 0; ) {
      signal.throwIfAborted()
      const wanted = Math.min(PAGE, left)
      const events = await find({ filter: {}, ...range, before, limit: wanted })
      send({ events })
      left -= events.length
      before = events.at(-1)
      if (events.length < wanted) return { source: 'events', truncated: false }
    }
    const [older] = await find({ filter: {}, ...range, before, limit: 1 })
    return { source: 'events', truncated: older !== undefined }
  }
}
