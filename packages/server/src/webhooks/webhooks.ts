// Tells other systems what happens on this node. Only the URLs of the settings are ever called, redirects are not
// followed and answers are not read. Each URL has a queue of its own, so that one that is down holds up no other; an
// event is retried for about an hour, and what does not fit or never arrives is dropped and counted.

import { randomInt, randomUUID } from 'node:crypto'
import { hostname } from 'node:os'
import { type Clock, wallClock } from 'sluice'
import type { Log } from '../log.ts'
import { SIGNATURE_HEADER, signature } from './signature.ts'

export type EventType = 'rules.changed' | 'node.degraded' | 'node.recovered' | 'kill_switch.changed'

export type WebhookParts = {
  readonly urls: readonly string[]
  readonly secret: string
  readonly log: Log
  readonly clock?: Clock | undefined
  /** The first wait before an event is sent again; each one after it is twice as long, up to a cap. */
  readonly retryMs?: number | undefined
}

type Event = { readonly id: string; readonly type: EventType; readonly body: string }

const QUEUED_MAX = 1000
const ATTEMPTS_MAX = 15
const RETRY_MS = 1000
const RETRY_MS_MAX = 600_000
const ANSWER_MS_MAX = 5000

export class Webhooks {
  readonly #clock: Clock
  readonly #queues: readonly WebhookQueue[]

  constructor(parts: WebhookParts) {
    this.#clock = parts.clock ?? wallClock
    this.#queues = parts.urls.map((url) => new WebhookQueue(url, parts))
  }

  /** Never waits and never fails. */
  tell(type: EventType, data: Readonly<Record<string, unknown>>): void {
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

  /** What has not arrived by now is dropped. */
  async close(): Promise<void> {
    await Promise.all(this.#queues.map((queue) => queue.close()))
  }
}

class WebhookQueue {
  delivered = 0
  dropped = 0
  readonly #url: string
  readonly #parts: WebhookParts
  readonly #waiting: Event[] = []
  readonly #closing = new AbortController()
  #sending: Promise<void> | undefined

  constructor(url: string, parts: WebhookParts) {
    this.#url = url
    this.#parts = parts
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

  async close(): Promise<void> {
    this.#closing.abort()
    await this.#sending
    this.dropped += this.#waiting.length
  }

  /** In order: an event is sent when the one before it has arrived, or was given up. */
  async #sendAll(): Promise<void> {
    for (let event = this.#waiting[0]; event !== undefined; event = this.#waiting[0]) {
      const arrived = await this.#deliver(event)
      if (this.#closing.signal.aborted && !arrived) return
      this.#waiting.shift()
      if (arrived) this.delivered += 1
      else this.dropped += 1
    }
  }

  async #deliver(event: Event): Promise<boolean> {
    const { retryMs = RETRY_MS, log } = this.#parts
    for (let attempt = 0; attempt < ATTEMPTS_MAX; attempt += 1) {
      const trouble = await this.#attempt(event)
      if (trouble === undefined) return true
      if (attempt === 0) log.warn({ event: event.type, host: new URL(this.#url).host, trouble }, 'a webhook failed')
      // Spread, so that nodes that failed together do not come back together.
      await this.#pause(Math.min(retryMs * 2 ** attempt, RETRY_MS_MAX) * (randomInt(50, 101) / 100))
      if (this.#closing.signal.aborted) return false
    }
    return false
  }

  /** Undefined when it has arrived. */
  async #attempt({ id, type, body }: Event): Promise<string | undefined> {
    const { secret, clock = wallClock } = this.#parts
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
        signal: AbortSignal.any([AbortSignal.timeout(ANSWER_MS_MAX), this.#closing.signal]),
      })
      await response.body?.cancel()
      return response.ok ? undefined : `it answered ${response.status}`
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
