// A limiter for `rate-limiter-flexible`, accepted by its Union, Queue and wrappers and as its `insuranceLimiter`:
// `const SluiceLimiter = limiterClass(library)`, `new SluiceLimiter({ store, points: 10, duration: 1 })`. The class is
// derived from the installed library, because the library checks for its own classes and results.

import { WINDOW_US_MAX } from '../algorithms/limit.ts'
import { systemTimers, type Timers } from '../clock.ts'
import { LimiterError, optionInvalid } from '../errors.ts'
import { HitCounter, type HitCounterOptions, type HitState, rejectUnknown } from './hit-counter.ts'

/** The members of the library that are used here. */
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
  /** Seconds, may be fractional. */
  readonly duration: number
  /** Seconds. Default: 0, which blocks until the window ends. */
  readonly blockDuration?: number | undefined
  readonly execEvenly?: boolean | undefined
  readonly execEvenlyMinDelayMs?: number | undefined
  readonly keyPrefix?: string | undefined
  /** Used while the store fails. */
  readonly insuranceLimiter?: Insurance<Result> | undefined
  /** For tests. */
  readonly timers?: Timers | undefined
}

const OPTIONS: readonly string[] = [
  ...['store', 'points', 'duration', 'blockDuration', 'execEvenly', 'execEvenlyMinDelayMs', 'keyPrefix'],
  ...['insuranceLimiter', 'timers'],
]
const SETTINGS = [
  ...['points', 'duration', 'blockDuration', 'execEvenly', 'execEvenlyMinDelayMs', 'keyPrefix'],
] as readonly (keyof Settings)[]
const BLOCK_MS_MAX = WINDOW_US_MAX / 1000

/** Key of a client; see Key in hit-counter.ts. */
type Key = string | number
/** The library's Redis limiter also accepts strings of digits. */
type Points = number | `${number}`
type CallOptions = { readonly customDuration?: number | undefined }

export type FlexibleVerbs<Result extends object> = {
  consume(key: Key, points?: Points, options?: CallOptions): Promise<Result>
  penalty(key: Key, points?: Points, options?: CallOptions): Promise<Result>
  reward(key: Key, points?: Points, options?: CallOptions): Promise<Result>
  get(key: Key): Promise<Result | null>
  set(key: Key, points: Points, secDuration?: number): Promise<Result>
  block(key: Key, secDuration: number): Promise<Result>
  delete(key: Key): Promise<boolean>
}

/** Inherits blockDuration and execEvenly from its owner. */
export type Insurance<Result extends object> = FlexibleVerbs<Result> & Pick<Settings, 'blockDuration' | 'execEvenly'>

/** Writable at any time, as in the library's limiters. */
type Settings = {
  points: number
  duration: number
  blockDuration: number
  execEvenly: boolean
  execEvenlyMinDelayMs: number
  keyPrefix: string
}

export type FlexibleLimiter<Result extends object> = FlexibleVerbs<Result> &
  Settings & {
    insuranceLimiter: Insurance<Result> | undefined
    readonly msDuration: number
    readonly msBlockDuration: number
    /** The key with `keyPrefix`, as the library's limiters write it. The key in Redis is another. */
    getKey(key: Key): string
    /** Undoes `getKey`. */
    parseKey(prefixed: string): string
  }

export function limiterClass<Result extends object>(
  library: FlexibleLibrary<Result>,
): new (
  options: FlexibleOptions<Result>,
) => FlexibleLimiter<Result> {
  const insured = insuredClass(library)
  class SluiceLimiter extends insured {
    get msDuration(): number {
      return this.own.duration * 1000
    }

    get msBlockDuration(): number {
      return this.own.blockDuration * 1000
    }

    getKey(key: Key): string {
      const { keyPrefix } = this.own
      return keyPrefix === '' ? String(key) : `${keyPrefix}:${key}`
    }

    parseKey(prefixed: string): string {
      return prefixed.slice(this.getKey('').length)
    }
  }
  // Overrides accessors of the library's base class, some of which throw.
  for (const name of SETTINGS) {
    Object.defineProperty(SluiceLimiter.prototype, name, {
      configurable: true,
      get(this: Insured<Result>) {
        return this.own[name]
      },
      set(this: Insured<Result>, value: never) {
        this.own[name] = value
      },
    })
  }
  return SluiceLimiter as never // the settings are the accessors defined above
}

type Insured<Result extends object> = FlexibleVerbs<Result> & {
  readonly own: CountingLimiter<Result>
  insuranceLimiter: Insurance<Result> | undefined
}

/** Calls the insurance limiter if the store fails. A refusal is not a failure. */
function insuredClass<Result extends object>(
  library: FlexibleLibrary<Result>,
): new (
  options: FlexibleOptions<Result>,
) => Insured<Result> {
  return class extends library.RateLimiterCompatibleAbstract implements Insured<Result> {
    readonly own: CountingLimiter<Result>
    #insurance: Insurance<Result> | undefined

    constructor(options: FlexibleOptions<Result>) {
      super()
      this.own = new CountingLimiter(options, library.RateLimiterRes)
      this.insuranceLimiter = options.insuranceLimiter
    }

    get insuranceLimiter(): Insurance<Result> | undefined {
      return this.#insurance
    }

    set insuranceLimiter(insurance: Insurance<Result> | undefined) {
      this.#insurance = insurance
      if (insurance === undefined) return
      insurance.blockDuration = this.own.blockDuration
      insurance.execEvenly = this.own.execEvenly
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

    set(key: Key, points: Points, secDuration?: number): Promise<Result> {
      return this.#insured((verbs) => verbs.set(key, points, secDuration))
    }

    block(key: Key, secDuration: number): Promise<Result> {
      return this.#insured((verbs) => verbs.block(key, secDuration))
    }

    delete(key: Key): Promise<boolean> {
      return this.#insured((verbs) => verbs.delete(key))
    }

    async #insured<T>(call: (verbs: FlexibleVerbs<Result>) => Promise<T>): Promise<T> {
      try {
        return await call(this.own)
      } catch (error) {
        const isMistake = error instanceof LimiterError && error.code === 'OPTION_INVALID'
        if (error instanceof library.RateLimiterRes || isMistake || this.#insurance === undefined) throw error
        return call(this.#insurance)
      }
    }
  }
}

class CountingLimiter<Result extends object> implements FlexibleVerbs<Result>, Settings {
  execEvenly: boolean
  readonly #store: HitCounterOptions['store']
  readonly #timers: Timers
  readonly #Result: FlexibleLibrary<Result>['RateLimiterRes']
  #counter: HitCounter
  #keyPrefix: string
  #points = 0
  #duration = 1
  #blockDuration = 0
  #evenlyMinMs: number | undefined

  constructor(options: FlexibleOptions<Result>, Result: FlexibleLibrary<Result>['RateLimiterRes']) {
    rejectUnknown(options, OPTIONS)
    const { points, duration, blockDuration = 0, execEvenly = false, keyPrefix = 'rlflx', store } = options
    this.blockDuration = blockDuration
    this.points = points
    this.duration = duration
    this.execEvenly = execEvenly
    this.#evenlyMinMs = options.execEvenlyMinDelayMs
    this.#counter = new HitCounter({ store, prefix: keyPrefix })
    this.#store = this.#counter.store
    this.#keyPrefix = keyPrefix
    this.#timers = options.timers ?? systemTimers
    this.#Result = Result
  }

  get points(): number {
    return this.#points
  }

  set points(points: number) {
    if (!Number.isFinite(points)) throw optionInvalid('points', points, 'must be a number')
    this.#points = points
  }

  get duration(): number {
    return this.#duration
  }

  set duration(seconds: number) {
    if (!(seconds > 0)) throw optionInvalid('duration', seconds, 'must be seconds, above 0: counts always expire')
    this.#duration = seconds
  }

  get blockDuration(): number {
    return this.#blockDuration
  }

  set blockDuration(seconds: number) {
    if (!(seconds >= 0)) throw optionInvalid('blockDuration', seconds, 'must be seconds, 0 or more')
    this.#blockDuration = seconds
  }

  get execEvenlyMinDelayMs(): number {
    return this.#evenlyMinMs ?? (this.points > 0 ? Math.ceil(this.#windowMs / this.points) : 0)
  }

  set execEvenlyMinDelayMs(ms: number | undefined) {
    this.#evenlyMinMs = ms
  }

  get keyPrefix(): string {
    return this.#keyPrefix
  }

  set keyPrefix(prefix: string) {
    this.#counter = new HitCounter({ store: this.#store, prefix })
    this.#keyPrefix = prefix
  }

  get #windowMs(): number {
    return this.duration * 1000
  }

  /** Rejects with a result if the points are used up, and with an Error if the store fails. */
  async consume(key: Key, given: Points = 1, options?: CallOptions): Promise<Result> {
    rejectCustomDuration(options)
    const points = pointsOf(given)
    const state = await (points === 0
      ? this.#counter.peek(key, this.#windowMs)
      : this.#counter.hitUnlessBlocked(key, this.#windowMs, points))
    const { hits, blockedMs } = state
    if (blockedMs === 0 && hits <= this.points) return this.#evenly(state, points)
    const blockMs = this.blockDuration * 1000
    // As in the library, the first request that exceeds the points starts the block.
    const isFirst = blockedMs === 0 && hits <= this.points + points
    if (!isFirst || blockMs === 0) throw this.#result(state, points)
    await this.#counter.blockAndForget(key, this.#windowMs, blockMs)
    throw this.#result({ ...state, resetMs: blockMs }, points)
  }

  async penalty(key: Key, given: Points = 1, options?: CallOptions): Promise<Result> {
    rejectCustomDuration(options)
    const points = pointsOf(given)
    if (points > 0) await this.#counter.hit(key, this.#windowMs, points)
    return this.#result(await this.#counter.peek(key, this.#windowMs), points) // the key may be blocked
  }

  async reward(key: Key, given: Points = 1, options?: CallOptions): Promise<Result> {
    rejectCustomDuration(options)
    const points = pointsOf(given)
    if (points > 0) await this.#counter.giveBack(key, this.#windowMs, points)
    return this.#result(await this.#counter.peek(key, this.#windowMs), -points)
  }

  async get(key: Key): Promise<Result | null> {
    const state = await this.#counter.peek(key, this.#windowMs)
    return state.hits === 0 && state.blockedMs === 0 ? null : this.#result(state, 0)
  }

  /** More points than the limit block the key for that long; fewer replace the count of the current window. */
  async set(key: Key, given: Points, secDuration: number = this.duration): Promise<Result> {
    const points = pointsOf(given)
    if (points > this.points) return this.#block(key, points, secDuration)
    if (points > 0) await this.#counter.replace(key, this.#windowMs, { points })
    else await this.delete(key)
    const { resetMs } = await this.#counter.peek(key, this.#windowMs)
    return new this.#Result(0, resetMs, points)
  }

  block(key: Key, secDuration: number): Promise<Result> {
    return this.#block(key, this.points + 1, secDuration)
  }

  async delete(key: Key): Promise<boolean> {
    const { hits, blockedMs } = await this.#counter.peek(key, this.#windowMs)
    await Promise.all([this.#counter.forget(key, this.#windowMs), this.#counter.unblock(key)])
    return hits > 0 || blockedMs > 0
  }

  /** In the library, 0 seconds block permanently. Here they block for 366 days; the result is -1, as in the library. */
  async #block(key: Key, consumed: number, secDuration: number): Promise<Result> {
    const blockMs = secDuration === 0 ? BLOCK_MS_MAX : secDuration * 1000
    if (!(blockMs > 0 && blockMs <= BLOCK_MS_MAX)) {
      throw optionInvalid('secDuration', secDuration, 'must be seconds, at most 366 days; 0 means 366 days')
    }
    await this.#counter.replace(key, this.#windowMs, { blockMs })
    return new this.#Result(0, secDuration === 0 ? -1 : blockMs, consumed)
  }

  /** A blocked key reports one point more than the limit. */
  #result({ hits, resetMs, blockedMs }: HitState, points: number): Result {
    if (blockedMs > 0) return new this.#Result(0, blockedMs, this.points + 1, false)
    return new this.#Result(Math.max(0, this.points - hits), resetMs, hits, hits === points)
  }

  /** `execEvenly`: spreads the remaining points over the rest of the window. */
  #evenly(state: HitState, points: number): Result | Promise<Result> {
    const { hits, resetMs } = state
    if (!this.execEvenly || hits === points || resetMs === 0) return this.#result(state, points)
    const evenMs = Math.ceil(resetMs / (this.points - hits + 2))
    const leastMs = this.execEvenlyMinDelayMs
    const delayMs = evenMs < leastMs ? hits * leastMs : evenMs
    const delayed = this.#result({ ...state, resetMs: Math.max(0, resetMs - delayMs) }, points)
    return new Promise((resolve) => void this.#timers.after(delayMs, () => resolve(delayed)))
  }
}

/** Accepts a string of digits, as the library's Redis limiter does. */
function pointsOf(points: Points): number {
  const number = typeof points === 'string' && /^[1-9]\d*$/.test(points) ? Number(points) : points
  if (typeof number === 'number' && Number.isSafeInteger(number) && number >= 0) return number
  throw optionInvalid('points', points, 'must be a whole number of at least 0')
}

/** The window length is part of the bucket id, so it cannot differ between calls. */
function rejectCustomDuration(options: CallOptions | undefined): void {
  if (options?.customDuration === undefined) return
  throw optionInvalid('customDuration', options.customDuration, 'create a limiter with that duration')
}
