// Sends events of this node to webhooks. Calls only configured URLs, follows no redirects and reads no response bodies.
// Each URL has its own queue, so that a failing one does not delay the others. Retries an event for about an hour;
// drops and counts events that fail all retries or find the queue full.

import { randomInt, randomUUID } from 'node:crypto'
import { hostname } from 'node:os'
import { type Clock, wallClock } from 'sluice'
import type { WebhookState } from '../fleet/webhook-state.ts'
import type { Log } from '../log.ts'
import { SIGNATURE_HEADER, signature } from './signature.ts'

export const EVENT_TYPES = [
  'rules.changed',
  'node.degraded',
  'node.recovered',
  'kill_switch.changed',
  'refusals.spike',
  'refusals.normal',
  'hot_key.found',
  'sink.down',
  'sink.up',
  'slo.burn',
  'slo.recovered',
  'rollout.started',
  'rollout.paused',
  'rollout.rolled_back',
  'rollout.done',
  'rollout.alert',
  'bypass.guessing',
  'incident.changed',
] as const

export type EventType = (typeof EVENT_TYPES)[number]
export type WebhookEvent = { readonly type: EventType; readonly data: Readonly<Record<string, unknown>> }

export type WebhookDeps = {
  readonly urls: readonly string[]
  readonly secret: string
  readonly log: Log
  readonly clock?: Clock | undefined
  /** Wait before the first retry; doubles with each retry, up to a cap. */
  readonly retryMs?: number | undefined
}

type Event = { readonly id: string; readonly type: EventType; readonly body: string }

const QUEUED_MAX = 1000
const ATTEMPTS_MAX = 15
const RETRY_MS = 1000
const RETRY_MS_MAX = 600_000
const RESPONSE_MS_MAX = 5000

export class Webhooks {
  readonly #clock: Clock
  readonly #queues: readonly WebhookQueue[]

  constructor(deps: WebhookDeps) {
    this.#clock = deps.clock ?? wallClock
    this.#queues = deps.urls.map((url) => new WebhookQueue(url, deps))
  }

  /** Queues an event; never waits or throws. */
  send(type: EventType, data: Readonly<Record<string, unknown>>): void {
    const id = randomUUID()
    const at = new Date(this.#clock.nowUs() / 1000).toISOString()
    const body = JSON.stringify({ id, type, at, node: hostname(), data })
    for (const queue of this.#queues) queue.add({ id, type, body })
  }

  get delivered(): number {
    return this.#queues.reduce((sum, { delivered }) => sum + delivered, 0)
  }

  get dropped(): number {
    return this.#queues.reduce((sum, { dropped }) => sum + dropped, 0)
  }

  /** One per URL, in the order of the setting. */
  states(): readonly WebhookState[] {
    return this.#queues.map((queue) => queue.state())
  }

  /** Drops events that have not been delivered. */
  async close(): Promise<void> {
    await Promise.all(this.#queues.map((queue) => queue.close()))
  }
}

class WebhookQueue {
  delivered = 0
  dropped = 0
  readonly #url: string
  readonly #deps: WebhookDeps
  readonly #waiting: Event[] = []
  readonly #closing = new AbortController()
  #sending: Promise<void> | undefined
  #deliveredAt: string | null = null
  #failed: WebhookState['last_error'] = null

  constructor(url: string, deps: WebhookDeps) {
    this.#url = url
    this.#deps = deps
  }

  add(event: Event): void {
    if (this.#waiting.length >= QUEUED_MAX || this.#closing.signal.aborted) {
      this.dropped += 1
      return
    }
    this.#waiting.push(event)
    this.#sending ??= this.#sendAll().finally(() => {
      this.#sending = undefined
    })
  }

  state(): WebhookState {
    const { delivered, dropped } = this
    const pending = this.#waiting.length
    const host = new URL(this.#url).host
    return { host, delivered, dropped, pending, last_delivered_at: this.#deliveredAt, last_error: this.#failed }
  }

  async close(): Promise<void> {
    this.#closing.abort()
    await this.#sending
    this.dropped += this.#waiting.length
  }

  /** In order: an event is sent after the previous one was delivered or dropped. */
  async #sendAll(): Promise<void> {
    for (let event = this.#waiting[0]; event !== undefined; event = this.#waiting[0]) {
      const delivered = await this.#deliver(event)
      if (this.#closing.signal.aborted && !delivered) return
      this.#waiting.shift()
      if (delivered) this.delivered += 1
      else this.dropped += 1
    }
  }

  async #deliver(event: Event): Promise<boolean> {
    const { retryMs = RETRY_MS, log } = this.#deps
    for (let attempt = 0; attempt < ATTEMPTS_MAX; attempt += 1) {
      const reason = await this.#attempt(event)
      const at = new Date((this.#deps.clock ?? wallClock).nowUs() / 1000).toISOString()
      this.#failed = reason === undefined ? null : { at, reason }
      if (reason === undefined) {
        this.#deliveredAt = at
        return true
      }
      if (attempt === 0) log.event('webhook_failed', { type: event.type, host: new URL(this.#url).host, reason })
      if (attempt === ATTEMPTS_MAX - 1) break
      // Jitter, so that nodes do not retry together.
      await this.#pause(Math.min(retryMs * 2 ** attempt, RETRY_MS_MAX) * (randomInt(50, 101) / 100))
      if (this.#closing.signal.aborted) return false
    }
    return false
  }

  /** Returns the reason for a failure; undefined if the event was delivered. */
  async #attempt({ id, type, body }: Event): Promise<string | undefined> {
    const { secret, clock = wallClock } = this.#deps
    try {
      const response = await fetch(this.#url, {
        method: 'POST',
        headers: {
          'content-type': 'application/json',
          'user-agent': 'sluice',
          'sluice-event': type,
          'sluice-event-id': id,
          [SIGNATURE_HEADER]: signature(secret, Math.floor(clock.nowUs() / 1e6), body),
        },
        body,
        redirect: 'manual',
        signal: AbortSignal.any([AbortSignal.timeout(RESPONSE_MS_MAX), this.#closing.signal]),
      })
      await response.body?.cancel()
      return response.ok ? undefined : `status ${response.status}`
    } catch (error) {
      return error instanceof Error && error.cause instanceof Error ? error.cause.message : String(error)
    }
  }

  #pause(ms: number): Promise<void> {
    const { signal } = this.#closing
    return new Promise((resolve) => {
      const done = () => {
        clearTimeout(timer)
        signal.removeEventListener('abort', done)
        resolve()
      }
      const timer = setTimeout(done, ms).unref()
      signal.addEventListener('abort', done)
      if (signal.aborted) done()
    })
  }
}
