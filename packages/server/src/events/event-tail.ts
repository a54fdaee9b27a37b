// Follows the stored events of all nodes: polls the newest ones while there are subscribers, and sends each event once,
// or tells that events were left out. Stored events are the same on every node, so a tail works behind a load balancer
// and with workers.

import type { KeyHash } from '../log.ts'
import type { Analytics, EventsQuery } from './analytics.ts'
import { hashedTenant } from './batches.ts'
import { hashedName, storable } from './client-key.ts'
import type { ClientKind, DecisionEvent } from './event.ts'
import { NONE } from './event.ts'

const POLL_MS = 500
/** Events may be stored this long after they happened, and out of order. */
const LOOK_BACK_MS = 30_000
const CLOCK_SKEW_MS = 60_000
const POLLED_MAX = 1000
/** More than a query returns, because events are stored out of order. */
const SEEN_MAX = 4 * POLLED_MAX

export type TailFilter = EventsQuery['filter']

/** Undefined: events were left out. */
export type SendTail = (event: DecisionEvent | undefined) => unknown

export type EventTailDeps = {
  readonly analytics: Analytics
  readonly hash: KeyHash
  readonly nowMs: () => number
  /** Age of the oldest event of this node that waits to be stored. */
  readonly lagMs: () => number
}

/** Subscribers with equal filters. */
type Feed = {
  readonly filter: TailFilter
  readonly sends: Set<SendTail>
  /** When the first of them came. */
  readonly sinceMs: number
  /** Events that were sent, or found before. */
  readonly seen: SeenIds
}

export class EventTail {
  readonly #deps: EventTailDeps
  readonly #feeds = new Map<string, Feed>()
  readonly #seen = new SeenIds([])
  #timer: NodeJS.Timeout | undefined
  #isPolling = false
  #first: Promise<void> | undefined
  #stopped = false
  #answeredMs = 0
  /** Events may be stored too late to be found. */
  #isLate = false

  constructor(deps: EventTailDeps) {
    this.#deps = deps
  }

  /**
   * Sends the `last` newest events that match, then all new ones. Returns a function that ends the subscription. Calls
   * `onStored` in between, unless the sink does not answer: a reader then knows that there are no further ones.
   */
  subscribe(
    filter: TailFilter,
    last: number,
    send: SendTail,
    onStored: (count: number) => void = () => {},
  ): () => void {
    let held: (DecisionEvent | undefined)[] | undefined = []
    let ended = false
    let leave = () => {}
    const start = async () => {
      if (this.#feeds.size === 0) await this.#firstPoll()
      if (ended || this.#stopped) return
      leave = this.#join(filter, (event) => (held === undefined ? send(event) : held.push(event)))
      this.#pollLater()
      const range = { fromMs: 0, toMs: this.#deps.nowMs() + CLOCK_SKEW_MS }
      const found = last === 0 ? [] : await this.#find({ filter, ...range, limit: last })
      if (ended || this.#stopped) return
      const newest = found ?? []
      const sent = new Set(newest.map(({ event_id }) => event_id))
      const later = (held ?? []).filter((event) => event === undefined || !sent.has(event.event_id))
      held = undefined
      for (const event of newest.toReversed()) send(event)
      if (found !== undefined) onStored(found.length)
      for (const event of later) send(event)
    }
    void start()
    return () => {
      ended = true
      leave()
    }
  }

  stop(): void {
    this.#stopped = true
    clearTimeout(this.#timer)
    this.#feeds.clear()
  }

  /** Returns a function that leaves the feed. */
  #join(filter: TailFilter, send: SendTail): () => void {
    const key = JSON.stringify(Object.entries(filter).sort())
    const [sends, sinceMs, seen] = [new Set<SendTail>(), this.#deps.nowMs(), new SeenIds(this.#seen)]
    const feed = this.#feeds.get(key) ?? { filter, sends, sinceMs, seen }
    this.#feeds.set(key, feed)
    feed.sends.add(send)
    return () => {
      feed.sends.delete(send)
      if (feed.sends.size === 0 && this.#feeds.get(key) === feed) this.#feeds.delete(key)
    }
  }

  /** Skips stored events. Concurrent subscribers share one poll: a second poll would hide events. */
  #firstPoll(): Promise<void> {
    this.#answeredMs = this.#deps.nowMs()
    this.#isLate = false
    this.#first ??= this.#poll().finally(() => {
      this.#first = undefined
    })
    return this.#first
  }

  #pollLater(): void {
    if (this.#isPolling || this.#stopped) return
    this.#isPolling = true
    this.#timer = setTimeout(async () => {
      await this.#poll()
      this.#isPolling = false
      if (this.#feeds.size > 0) this.#pollLater()
    }, POLL_MS).unref()
  }

  /**
   * Sends to the subscribers at the time of the reply. One query serves all of them, unless events are too many for it:
   * a feed whose filter may match few of them then has a query of its own.
   */
  async #poll(): Promise<void> {
    const found = await this.#find({ filter: {}, ...this.#recent() })
    const isLate = this.#wasLate(found !== undefined)
    if (found === undefined) return
    const isTruncated = this.#seen.isTruncated(found)
    for (const event of found.toReversed()) this.#seen.add(event)
    // No feeds after `stop`.
    for (const feed of [...this.#feeds.values()]) {
      if (isTruncated && isSelective(feed.filter)) await this.#sendOwn(feed, isLate)
      else this.#send(feed, found, isTruncated || isLate)
    }
  }

  async #sendOwn(feed: Feed, isLate: boolean): Promise<void> {
    const found = await this.#find({ filter: feed.filter, ...this.#recent() })
    const later = found?.filter(({ timestamp }) => timestamp >= feed.sinceMs) ?? []
    const isTruncated = found === undefined || (later.length === found.length && feed.seen.isTruncated(found))
    this.#send(feed, later, isTruncated || isLate)
  }

  #send({ filter, sends, seen }: Feed, found: readonly DecisionEvent[], isIncomplete: boolean): void {
    if (isIncomplete) for (const send of sends) send(undefined)
    const fresh = found.filter((event) => !seen.has(event) && this.#matches(event, filter))
    for (const event of fresh.toReversed()) {
      seen.add(event)
      for (const send of sends) send(event)
    }
  }

  /**
   * Whether events may have been missed: the queries or the sink of this node were down for longer than a poll looks
   * back, and work again.
   */
  #wasLate(isAnswered: boolean): boolean {
    const nowMs = this.#deps.nowMs()
    const isLagging = this.#deps.lagMs() > LOOK_BACK_MS
    this.#isLate ||= isLagging || nowMs - this.#answeredMs > LOOK_BACK_MS
    if (!isAnswered) return false
    this.#answeredMs = nowMs
    const wasLate = this.#isLate && !isLagging
    if (wasLate) this.#isLate = false
    return wasLate
  }

  #recent() {
    const nowMs = this.#deps.nowMs()
    return { fromMs: nowMs - LOOK_BACK_MS, toMs: nowMs + CLOCK_SKEW_MS, limit: POLLED_MAX }
  }

  /** Undefined if the sink does not answer: its outage pauses the tail. */
  #find(query: EventsQuery): Promise<readonly DecisionEvent[] | undefined> {
    return this.#deps.analytics.events(query).catch(() => undefined)
  }

  #matches(event: DecisionEvent, filter: TailFilter): boolean {
    const { rule, endpoint, plan, tenant, result, source, kind = 'user', client } = filter
    const named = (stored: string | null, wanted: string | undefined) =>
      wanted === undefined || (stored ?? NONE) === wanted
    const tenants = tenant === undefined ? [undefined] : [tenant, hashedTenant(this.#deps.hash, storable(tenant))]
    return (
      named(event.rule_id, rule) &&
      named(event.endpoint_pattern, endpoint) &&
      named(event.plan, plan) &&
      tenants.some((wanted) => named(event.tenant, wanted)) &&
      (result === undefined || (event.operation === 'check' && event.allowed === (result === 'allowed'))) &&
      named(event.source, source) &&
      (client === undefined || this.#isOf(event, kind, client))
    )
  }

  #isOf({ client_id, api_key, ip }: DecisionEvent, kind: ClientKind, client: string): boolean {
    const stored = { user: client_id, api_key, ip }[kind]
    return stored !== null && (stored === client || stored === hashedName(this.#deps.hash, kind, storable(client)))
  }
}

/** Ids of the newest events that were found: the next queries find most of them again. */
class SeenIds implements Iterable<string> {
  readonly #ids: Set<string>

  constructor(ids: Iterable<string>) {
    this.#ids = new Set(ids)
  }

  has({ event_id }: DecisionEvent): boolean {
    return this.#ids.has(event_id)
  }

  /** Whether the result is truncated: it is full, and even its oldest event was not seen before. */
  isTruncated(found: readonly DecisionEvent[]): boolean {
    const oldest = found.at(-1)
    return oldest !== undefined && found.length === POLLED_MAX && !this.has(oldest)
  }

  add({ event_id }: DecisionEvent): void {
    this.#ids.add(event_id)
    if (this.#ids.size <= SEEN_MAX) return
    const [oldest] = this.#ids
    this.#ids.delete(oldest as string) // there is one
  }

  [Symbol.iterator](): Iterator<string> {
    return this.#ids.values()
  }
}

function isSelective(filter: TailFilter): boolean {
  return Object.values(filter).some((value) => value !== undefined)
}
