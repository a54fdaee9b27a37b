// A limiter for `rate-limiter-flexible`, accepted by its Union, Queue and wrappers and as its `insuranceLimiter`:
// `const SluiceLimiter = limiterClass(library)`, `new SluiceLimiter({ store, points: 10, duration: 1 })`. It is made
// from the library that it is to work with, which asks for its own classes and hands out its own results.

import { systemTimers, type Timers } from '../clock.ts'
import { LimiterError, optionInvalid } from '../errors.ts'
import { HitCounter, type HitCounterOptions, refuseUnknown, type Standing } from './hit-counter.ts'

/** What is used of the library. */
export type FlexibleLibrary<Result extends object> = {
  readonly RateLimiterCompatibleAbstract: new () => object
  readonly RateLimiterRes: new (
    remainingPoints?: number,
    msBeforeNext?: number,
    consumedPoints?: number,
    isFirstInDuration?: boolean,
  ) => Result
}

export type FlexibleOptions<Result extends object> = Pick<HitCounterOptions, 'store'> & {
  readonly points: number
  /** Seconds, fractions too. */
  readonly duration: number
  /** Seconds. Default: 0, until the window ends. */
  readonly blockDuration?: number | undefined
  readonly execEvenly?: boolean | undefined
  readonly execEvenlyMinDelayMs?: number | undefined
  readonly keyPrefix?: string | undefined
  /** Answers while the store does not. */
  readonly insuranceLimiter?: Insurance<Result> | undefined
  /** For tests. */
  readonly timers?: Timers | undefined
}

const OPTIONS: readonly string[] = [
  ...['store', 'points', 'duration', 'blockDuration', 'execEvenly', 'execEvenlyMinDelayMs', 'keyPrefix'],
  ...['insuranceLimiter', 'timers'],
]

type Key = string | number
type CallOptions = { readonly customDuration?: number | undefined }

export type FlexibleVerbs<Result extends object> = {
  consume(key: Key, points?: number, options?: CallOptions): Promise<Result>
  penalty(key: Key, points?: number, options?: CallOptions): Promise<Result>
  reward(key: Key, points?: number, options?: CallOptions): Promise<Result>
  get(key: Key): Promise<Result | null>
  set(key: Key, points: number, secDuration: number): Promise<Result>
  block(key: Key, secDuration: number): Promise<Result>
  delete(key: Key): Promise<boolean>
}

/** Takes over how its owner blocks and delays. */
export type Insurance<Result extends object> = FlexibleVerbs<Result> & Pick<Settings, 'blockDuration' | 'execEvenly'>

type Settings = { readonly points: number; readonly duration: number; blockDuration: number; execEvenly: boolean }

export type FlexibleLimiter<Result extends object> = FlexibleVerbs<Result> & Settings & { readonly keyPrefix: string }

export function limiterClass<Result extends object>(
  library: FlexibleLibrary<Result>,
): new (
  options: FlexibleOptions<Result>,
) => FlexibleLimiter<Result> {
  return class SluiceLimiter extends insuredClass(library) {
    get points(): number {
      return this.own.points
    }

    get duration(): number {
      return this.own.duration
    }

    get keyPrefix(): string {
      return this.own.keyPrefix
    }

    get blockDuration(): number {
      return this.own.blockDuration
    }

    set blockDuration(seconds: number) {
      this.own.blockDuration = seconds
    }

    get execEvenly(): boolean {
      return this.own.execEvenly
    }

    set execEvenly(evenly: boolean) {
      this.own.execEvenly = evenly
    }
  }
}

type Insured<Result extends object> = FlexibleVerbs<Result> & { readonly own: CountingLimiter<Result> }

/** What the limiter itself cannot answer, because the store fails, the insurance does. A refusal is an answer. */
function insuredClass<Result extends object>(
  library: FlexibleLibrary<Result>,
): new (
  options: FlexibleOptions<Result>,
) => Insured<Result> {
  return class extends library.RateLimiterCompatibleAbstract implements Insured<Result> {
    readonly own: CountingLimiter<Result>
    readonly #insurance: FlexibleOptions<Result>['insuranceLimiter']

    constructor(options: FlexibleOptions<Result>) {
      super()
      const { insuranceLimiter } = options
      this.own = new CountingLimiter(options, library.RateLimiterRes)
      this.#insurance = insuranceLimiter
      if (insuranceLimiter === undefined) return
      insuranceLimiter.blockDuration = this.own.blockDuration
      insuranceLimiter.execEvenly = this.own.execEvenly
    }

    consume(...args: Parameters<FlexibleVerbs<Result>['consume']>): Promise<Result> {
      return this.#insured((verbs) => verbs.consume(...args))
    }

    penalty(...args: Parameters<FlexibleVerbs<Result>['penalty']>): Promise<Result> {
      return this.#insured((verbs) => verbs.penalty(...args))
    }

    reward(...args: Parameters<FlexibleVerbs<Result>['reward']>): Promise<Result> {
      return this.#insured((verbs) => verbs.reward(...args))
    }

    get(key: Key): Promise<Result | null> {
      return this.#insured((verbs) => verbs.get(key))
    }

    set(key: Key, points: number, secDuration: number): Promise<Result> {
      return this.#insured((verbs) => verbs.set(key, points, secDuration))
    }

    block(key: Key, secDuration: number): Promise<Result> {
      return this.#insured((verbs) => verbs.block(key, secDuration))
    }

    delete(key: Key): Promise<boolean> {
      return this.#insured((verbs) => verbs.delete(key))
    }

    async #insured<T>(ask: (verbs: FlexibleVerbs<Result>) => Promise<T>): Promise<T> {
      try {
        return await ask(this.own)
      } catch (error) {
        const isMistake = error instanceof LimiterError && error.code === 'OPTION_INVALID'
        if (error instanceof library.RateLimiterRes || isMistake || this.#insurance === undefined) throw error
        return ask(this.#insurance)
      }
    }
  }
}

class CountingLimiter<Result extends object> implements FlexibleVerbs<Result>, Settings {
  readonly points: number
  readonly duration: number
  readonly keyPrefix: string
  blockDuration: number
  execEvenly: boolean
  readonly #windowMs: number
  readonly #evenlyMinMs: number
  readonly #counter: HitCounter
  readonly #timers: Timers
  readonly #Result: FlexibleLibrary<Result>['RateLimiterRes']

  constructor(options: FlexibleOptions<Result>, Result: FlexibleLibrary<Result>['RateLimiterRes']) {
    const { points, duration, blockDuration = 0, execEvenly = false, keyPrefix = 'rlflx', store } = options
    refuseUnknown(options, OPTIONS)
    if (!(blockDuration >= 0)) throw optionInvalid('blockDuration', blockDuration, 'must be seconds, 0 or more')
    if (!Number.isFinite(points)) throw optionInvalid('points', points, 'must be a number')
    if (!(duration > 0)) throw optionInvalid('duration', duration, 'must be seconds, above 0: every count has an end')
    this.points = points
    this.duration = duration
    this.keyPrefix = keyPrefix
    this.blockDuration = blockDuration
    this.execEvenly = execEvenly
    this.#windowMs = duration * 1000
    this.#evenlyMinMs = options.execEvenlyMinDelayMs ?? (points > 0 ? Math.ceil(this.#windowMs / points) : 0)
    this.#counter = new HitCounter({ store, prefix: keyPrefix })
    this.#timers = options.timers ?? systemTimers
    this.#Result = Result
  }

  /** Rejects with a result when the points are used up, and with an Error when the store fails. */
  async consume(key: Key, points = 1, options?: CallOptions): Promise<Result> {
    refuseCustomDuration(options)
    const name = String(key)
    const standing = await this.#counter.hitUnlessBlocked(name, this.#windowMs, points)
    if (standing.blockedMs > 0) throw this.#result(standing, points)
    if (standing.hits <= this.points) return this.#evenly(standing, points)
    const blockMs = this.blockDuration * 1000
    if (blockMs === 0) throw this.#result(standing, points)
    await Promise.all([this.#counter.block(name, blockMs), this.#counter.forget(name, this.#windowMs)])
    throw this.#result({ ...standing, resetMs: blockMs }, points)
  }

  async penalty(key: Key, points = 1, options?: CallOptions): Promise<Result> {
    refuseCustomDuration(options)
    await this.#counter.hit(String(key), this.#windowMs, points)
    return this.#result(await this.#counter.peek(String(key), this.#windowMs), points) // it may be blocked
  }

  async reward(key: Key, points = 1, options?: CallOptions): Promise<Result> {
    refuseCustomDuration(options)
    await this.#counter.giveBack(String(key), this.#windowMs, points)
    return this.#result(await this.#counter.peek(String(key), this.#windowMs), points)
  }

  async get(key: Key): Promise<Result | null> {
    const standing = await this.#counter.peek(String(key), this.#windowMs)
    return standing.hits === 0 && standing.blockedMs === 0 ? null : this.#result(standing, 0)
  }

  /** More points than there are keep the key out for that long; fewer count in the present window, whatever is left. */
  async set(key: Key, points: number, secDuration: number): Promise<Result> {
    if (points > this.points) return this.block(key, secDuration)
    await this.delete(key)
    if (points <= 0) return new this.#Result(this.points, 0, 0)
    return this.penalty(key, points)
  }

  async block(key: Key, secDuration: number): Promise<Result> {
    await this.delete(key)
    await this.#counter.block(String(key), secDuration * 1000)
    return this.#result({ hits: 0, resetMs: 0, blockedMs: secDuration * 1000 }, 0)
  }

  async delete(key: Key): Promise<boolean> {
    const name = String(key)
    const { hits, blockedMs } = await this.#counter.peek(name, this.#windowMs)
    await Promise.all([this.#counter.forget(name, this.#windowMs), this.#counter.unblock(name)])
    return hits > 0 || blockedMs > 0
  }

  /** A blocked key has consumed more than there is, by one. */
  #result({ hits, resetMs, blockedMs }: Standing, points: number): Result {
    if (blockedMs > 0) return new this.#Result(0, blockedMs, this.points + 1, false)
    return new this.#Result(Math.max(0, this.points - hits), resetMs, hits, hits === points)
  }

  /** `execEvenly`: what is left is spread over what is left of the window. */
  #evenly(standing: Standing, points: number): Result | Promise<Result> {
    const { hits, resetMs } = standing
    if (!this.execEvenly || hits === points || resetMs === 0) return this.#result(standing, points)
    const evenMs = Math.ceil(resetMs / (this.points - hits + 2))
    const delayMs = evenMs < this.#evenlyMinMs ? hits * this.#evenlyMinMs : evenMs
    const late = this.#result({ ...standing, resetMs: Math.max(0, resetMs - delayMs) }, points)
    return new Promise((resolve) => void this.#timers.after(delayMs, () => resolve(late)))
  }
}

/** The length of a window is what names it, so it cannot be another one for some calls. */
function refuseCustomDuration(options: CallOptions | undefined): void {
  if (options?.customDuration === undefined) return
  throw optionInvalid('customDuration', options.customDuration, 'make a limiter with that duration')
}
