// A Store for `express-rate-limit`: `rateLimit({ windowMs, limit, store: new SluiceStore() })`.
// Store failures throw, so `passOnStoreError` of the library applies.

import { wallClock } from '../clock.ts'
import { optionInvalid } from '../errors.ts'
import { HitCounter, type HitCounterOptions, type HitState } from './hit-counter.ts'

export type { HitCounterOptions }

export type ClientHits = { totalHits: number; resetTime: Date }

export class SluiceStore {
  readonly prefix: string
  /** Whether hits are local to this instance, which is the case without a shared store. */
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
    const state = await this.#counter.peek(key, this.#window())
    return state.hits === 0 ? undefined : clientHits(state)
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
    throw optionInvalid('windowMs', undefined, 'pass the store to rateLimit, which sets the window')
  }
}

/** On the clock of this process, which the library uses for headers. */
function clientHits({ hits, resetMs }: HitState): ClientHits {
  return { totalHits: hits, resetTime: new Date(wallClock.nowUs() / 1000 + resetMs) }
}
