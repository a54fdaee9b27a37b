// Follows the stored events of all nodes: polls the newest ones while there are subscribers, and sends each event once.
// Stored events are the same on every node, so a tail works behind a load balancer and with workers.

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

export type TailFilter = EventsQuery['filter']

/** Undefined: events were left out. */
export type SendTail = (event: DecisionEvent | undefined) => unknown

type Subscriber = { readonly filter: TailFilter; readonly send: SendTail }

export class EventTail {
  readonly #analytics: Analytics
  readonly #hash: KeyHash
  readonly #nowMs: () => number
  readonly #subscribers = new Set<Subscriber>()
  #seen = new Set<string>()
  #timer: NodeJS.Timeout | undefined
  #isPolling = false
  #first: Promise<void> | undefined
  #stopped = false

  constructor(analytics: Analytics, hash: KeyHash, nowMs: () => number) {
    this.#analytics = analytics
    this.#hash = hash
    this.#nowMs = nowMs
  }

  /** Sends the `last` newest events that match, then all new ones. Returns a function that ends the subscription. */
  subscribe(filter: TailFilter, last: number, send: SendTail): () => void {
    let held: (DecisionEvent | undefined)[] | undefined = []
    const subscriber: Subscriber = { filter, send: (event) => (held === undefined ? send(event) : held.push(event)) }
    let ended = false
    const start = async () => {
      if (this.#subscribers.size === 0) await this.#firstPoll()
      if (ended || this.#stopped) return
      this.#subscribers.add(subscriber)
      this.#pollLater()
      const range = { fromMs: 0, toMs: this.#nowMs() + CLOCK_SKEW_MS }
      const newest = last === 0 ? [] : await this.#find({ filter, ...range, limit: last })
      if (ended || this.#stopped) return
      const sent = new Set(newest.map(({ event_id }) => event_id))
      const later = (held ?? []).filter((event) => event === undefined || !sent.has(event.event_id))
      held = undefined
      for (const event of [...newest.toReversed(), ...later]) send(event)
    }
    void start()
    return () => {
      ended = true
      this.#subscribers.delete(subscriber)
    }
  }

  stop(): void {
    this.#stopped = true
    clearTimeout(this.#timer)
    this.#subscribers.clear()
  }

  /** Skips stored events. Concurrent subscribers share one poll: a second poll would hide events. */
  #firstPoll(): Promise<void> {
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
      if (this.#subscribers.size > 0) this.#pollLater()
    }, POLL_MS).unref()
  }

  /** Sends to the subscribers at the time of the reply. */
  async #poll(): Promise<void> {
    const nowMs = this.#nowMs()
    const range = { fromMs: nowMs - LOOK_BACK_MS, toMs: nowMs + CLOCK_SKEW_MS }
    const found = await this.#find({ filter: {}, ...range, limit: POLLED_MAX })
    const fresh = found.filter(({ event_id }) => !this.#seen.has(event_id))
    const isCut = found.length === POLLED_MAX && fresh.includes(found.at(-1) as DecisionEvent) // older ones may be new
    this.#seen = found.length === 0 && this.#seen.size > 0 ? this.#seen : idsOf(found, this.#seen)
    const subscribers = [...this.#subscribers] // none after `stop`
    if (isCut) for (const { send } of subscribers) send(undefined)
    for (const event of fresh.toReversed()) {
      for (const { filter, send } of subscribers) if (this.#matches(event, filter)) send(event)
    }
  }

  /** An outage of the sink pauses the tail; the events come later, if they are stored in time. */
  #find(query: EventsQuery): Promise<readonly DecisionEvent[]> {
    return this.#analytics.events(query).catch(() => [])
  }

  #matches(event: DecisionEvent, filter: TailFilter): boolean {
    const { rule, endpoint, plan, tenant, result, source, kind = 'user', client } = filter
    const named = (stored: string | null, wanted: string | undefined) =>
      wanted === undefined || (stored ?? NONE) === wanted
    const tenants = tenant === undefined ? [undefined] : [tenant, hashedTenant(this.#hash, storable(tenant))]
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
    return stored !== null && (stored === client || stored === hashedName(this.#hash, kind, storable(client)))
  }
}

/** Ids of the newest events, and those of the poll before: an event may leave the newest ones and come back. */
function idsOf(found: readonly DecisionEvent[], before: ReadonlySet<string>): Set<string> {
  const ids = new Set(found.map(({ event_id }) => event_id))
  if (before.size <= 2 * POLLED_MAX) for (const id of before) ids.add(id)
  return ids.size > 4 * POLLED_MAX ? new Set(found.map(({ event_id }) => event_id)) : ids
}
