// A Store for `express-rate-limit`: `rateLimit({ windowMs, limit, store: new SluiceStore() })`.
// An outage is an error to it, so its own `passOnStoreError` decides.

import { wallClock } from '../clock.ts'
import { optionInvalid } from '../errors.ts'
import { HitCounter, type HitCounterOptions, type Standing } from './hit-counter.ts'

export type { HitCounterOptions }

export type ClientHits = { totalHits: number; resetTime: Date }

export class SluiceStore {
  readonly prefix: string
  /** Whether no other instance can count the same hits: so it is with a memory of its own. */
  readonly localKeys: boolean
  readonly #counter: HitCounter
  #windowMs: number | undefined

  constructor(options: HitCounterOptions = {}) {
    this.#counter = new HitCounter(options, 'rl:')
    this.prefix = options.prefix ?? 'rl:'
    this.localKeys = options.store === undefined
  }

  /** Called by the library with its options. */
  init({ windowMs }: { readonly windowMs: number }): void {
    this.#windowMs = windowMs
  }

  async get(key: string): Promise<ClientHits | undefined> {
    const standing = await this.#counter.peek(key, this.#window())
    return standing.hits === 0 ? undefined : clientHits(standing)
  }

  async increment(key: string): Promise<ClientHits> {
    return clientHits(await this.#counter.hit(key, this.#window()))
  }

  async decrement(key: string): Promise<void> {
    await this.#counter.giveBack(key, this.#window())
  }

  async resetKey(key: string): Promise<void> {
    await this.#counter.forget(key, this.#window())
  }

  #window(): number {
    if (this.#windowMs !== undefined) return this.#windowMs
    throw optionInvalid('windowMs', undefined, 'hand the store to rateLimit, which tells it the window')
  }
}

/** By the clock of this process, which is the one that headers are made with. */
function clientHits({ hits, resetMs }: Standing): ClientHits {
  return { totalHits: hits, resetTime: new Date(wallClock.nowUs() / 1000 + resetMs) }
}
