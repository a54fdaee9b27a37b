// A store class for `@fastify/rate-limit`: `app.register(rateLimit, { max, timeWindow, store: storeClass() })`.
// Store failures throw, so `skipOnError` of the plugin applies.

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

/** Options of the plugin or of a route. */
type Params = {
  readonly continueExceeding?: boolean
  readonly exponentialBackoff?: boolean
  readonly groupId?: string
  readonly routeInfo?: { readonly method?: string | string[]; readonly url?: string }
}

/** The plugin creates the instance itself, so it needs a class. */
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
  #unnamedChildren = 0

  constructor(counter: HitCounter, params: Params) {
    if (params.exponentialBackoff) {
      throw optionInvalid(
        'exponentialBackoff',
        true,
        'remove it, or use continueExceeding: exponential windows are not supported',
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

  /** A route with its own options has its own counts; routes of one group share theirs. */
  child(params: Params): FastifyStore {
    return new RouteStore(this.#counter.named(`${this.#nameOf(params)}-`), params)
  }

  /** Limiters without a route are numbered in the order of creation, which is the same in every process. */
  #nameOf({ groupId, routeInfo: { method, url } = {} }: Params): string {
    if (groupId !== undefined) return 'group'
    if (url !== undefined) return `${method}${url}`
    this.#unnamedChildren += 1
    return `limiter${this.#unnamedChildren}`
  }

  async #hit(key: string, timeWindow: number): Promise<Counted> {
    const { hits, resetMs } = await this.#counter.hit(key, timeWindow)
    return { current: hits, ttl: resetMs }
  }

  /** `continueExceeding`: each hit over the limit blocks the client for another full window. */
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
