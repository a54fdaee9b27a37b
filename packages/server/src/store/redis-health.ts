// Tracks whether Redis answers, for the log and /readyz. The store reports batches, errors and its circuit breaker.

import type { ErrorCode, LimiterError } from 'sluice'
import type { RedisStore, ServerTransition } from 'sluice/redis'
import type { Log } from '../log.ts'

export class RedisHealth {
  readonly #log: Log
  #store: Pick<RedisStore, 'breaker'> | undefined
  #failure: ErrorCode | undefined
  #reason: string | undefined
  #drilledMs = 0

  constructor(log: Log) {
    this.#log = log
  }

  watch(store: Pick<RedisStore, 'breaker'>): void {
    this.#store = store
  }

  /** The code of the last failure, until Redis answers again. */
  get failure(): ErrorCode | undefined {
    return this.#failure ?? (this.#isClosed() ? undefined : 'STORE_UNAVAILABLE')
  }

  changed({ state, afterMs, answered, store, server }: ServerTransition): void {
    const facts = { after_ms: Math.round(afterMs), store, server }
    const isDrill = performance.now() < this.#drilledMs
    const reason = isDrill ? 'a drill' : (this.#reason ?? 'no answer within the deadline (--store-deadline-ms)')
    if (state === 'open') this.#log.event('breaker_opened', { ...facts, reason })
    else this.#log.event('breaker_closed', { ...facts, answered })
    this.answered()
  }

  /** With several servers, another one may still be unreachable. */
  answered(): void {
    if (this.#failure === undefined || !this.#isClosed()) return
    this.#log.event('store_available', {})
    this.#failure = undefined
    this.#reason = undefined
  }

  failed({ code, message }: LimiterError): void {
    if (code !== 'STORE_UNAVAILABLE') return // affects one request only
    if (this.#failure === undefined) this.#log.event('store_unavailable', { code, reason: message })
    this.#failure = code
    this.#reason = message
  }

  drilled(forMs: number): void {
    this.#drilledMs = performance.now() + forMs
  }

  #isClosed(): boolean {
    return this.#store === undefined || this.#store.breaker() === 'closed'
  }
}
