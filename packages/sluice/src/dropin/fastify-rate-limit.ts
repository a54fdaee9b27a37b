// A store class for `@fastify/rate-limit`: `app.register(rateLimit, { max, timeWindow, store: storeClass() })`.
// An outage is an error to it, so its own `skipOnError` decides.

import { optionInvalid } from '../errors.ts'
import { HitCounter, type HitCounterOptions } from './hit-counter.ts'

export type { HitCounterOptions }

export type Counted = { current: number; ttl: number }
export type CountedCallback = (error: Error | null, result?: Counted) => void

export type FastifyStore = {
  incr(key: string, callback: CountedCallback, timeWindow: number, max: number): void
  read(key: string, callback: CountedCallback, timeWindow: number, max: number): void
  child(routeOptions: object): FastifyStore
}

/** What the plugin hands over, of the whole or of a route. */
type Params = {
  readonly continueExceeding?: boolean
  readonly exponentialBackoff?: boolean
  readonly groupId?: string
  readonly routeInfo?: { readonly method?: string | string[]; readonly url?: string }
}

/** The plugin makes an instance itself, so it is handed a class. */
export function storeClass(options: HitCounterOptions = {}): new (params: object) => FastifyStore {
  const counter = new HitCounter(options, 'fastify-rate-limit-')
  return class SluiceStore extends RouteStore {
    constructor(params: object) {
      super(counter, params)
    }
  }
}

class RouteStore implements FastifyStore {
  readonly #counter: HitCounter
  readonly #renews: boolean
  #apart = 0

  constructor(counter: HitCounter, params: Params) {
    if (params.exponentialBackoff) {
      throw optionInvalid(
        'exponentialBackoff',
        true,
        'leave it out, or use continueExceeding: windows do not grow here',
      )
    }
    this.#counter = counter
    this.#renews = params.continueExceeding ?? false
  }

  incr(key: string, callback: CountedCallback, timeWindow: number, max: number): void {
    settle(callback, this.#renews ? this.#hitAndRenew(key, timeWindow, max) : this.#hit(key, timeWindow))
  }

  read(key: string, callback: CountedCallback, timeWindow: number, max: number): void {
    settle(callback, this.#read(key, timeWindow, max))
  }

  /** A route with options of its own has counts of its own; routes of one group have theirs in common. */
  child(params: Params): FastifyStore {
    return new RouteStore(this.#counter.named(`${this.#nameOf(params)}-`), params)
  }

  /** Limiters without a route are told apart by their order, which is the same in every process of a program. */
  #nameOf({ groupId, routeInfo: { method, url } = {} }: Params): string {
    if (groupId !== undefined) return 'group'
    if (url !== undefined) return `${method}${url}`
    this.#apart += 1
    return `limiter${this.#apart}`
  }

  async #hit(key: string, timeWindow: number): Promise<Counted> {
    const { hits, resetMs } = await this.#counter.hit(key, timeWindow)
    return { current: hits, ttl: resetMs }
  }

  /** `continueExceeding`: each hit over the limit keeps the client out for another whole window. */
  async #hitAndRenew(key: string, timeWindow: number, max: number): Promise<Counted> {
    const [{ hits, resetMs }, { blockedMs }] = await Promise.all([
      this.#counter.hit(key, timeWindow),
      this.#counter.peek(key, timeWindow),
    ])
    if (hits <= max && blockedMs === 0) return { current: hits, ttl: resetMs }
    await this.#counter.block(key, timeWindow)
    return { current: Math.max(hits, max + 1), ttl: timeWindow }
  }

  async #read(key: string, timeWindow: number, max: number): Promise<Counted> {
    const { hits, resetMs, blockedMs } = await this.#counter.peek(key, timeWindow)
    if (blockedMs > 0) return { current: max + 1, ttl: blockedMs }
    return { current: hits, ttl: hits === 0 ? 0 : resetMs }
  }
}

function settle(callback: CountedCallback, counted: Promise<Counted>): void {
  counted.then(
    (result) => callback(null, result),
    (error) => callback(error),
  )
}
