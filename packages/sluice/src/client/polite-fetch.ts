// `fetch` for servers that limit: it waits before it is refused, waits as long as it is asked to when it was, and gives
// up when its time is up. It only ever delays: what comes back is the server's own answer.

import { type Clock, systemTimers, type Timers, wallClock } from '../clock.ts'
import { optionInvalid } from '../errors.ts'
import { type KnownFields, requireKnown } from '../known-fields.ts'
import { type Call, callOf, type FetchInput, isIdempotent, isReadAgain, signalOf } from './call.ts'
import { Pace } from './pace.ts'
import { readLimits, type Told, type ToldLimit } from './told-limits.ts'

export type PoliteOptions = {
  /** Most time that one call spends waiting, in all. Default: a minute. */
  readonly budgetMs?: number | undefined
  /** How often a call is sent at most. Default: 5. */
  readonly callsMax?: number | undefined
  /** Calls with the same key share their limits. Default: the origin. */
  readonly limitKey?: ((call: Call) => string) | undefined
  /** Whether a refused call may be sent again. Default: idempotent methods, and calls with an `Idempotency-Key`. */
  readonly mayRepeat?: ((call: Call) => boolean) | undefined
  readonly onEvent?: ((event: PoliteEvent) => void) | undefined
  /** Default: the global one. */
  readonly fetch?: ((input: FetchInput, init?: RequestInit) => Promise<Response>) | undefined
  /** For tests. */
  readonly clock?: Clock | undefined
  readonly timers?: Timers | undefined
  /** 0 ≤ random() < 1. */
  readonly random?: (() => number) | undefined
}

/** paced: it was held back before it was sent. refused: it will be sent again. gave_up: the refusal was handed on. */
export type PoliteEvent = { readonly key: string; readonly call: Call } & (
  | { readonly type: 'paced'; readonly waitedMs: number }
  | { readonly type: 'refused'; readonly status: number; readonly waitMs: number }
  | { readonly type: 'gave_up'; readonly status: number; readonly reason: GaveUp }
)

/**
 * budget: the wait would take longer. calls: it was sent often enough. not_repeatable: it may have had an effect, or
 * its body is a stream. told_not_to: the server said so.
 */
export type GaveUp = 'budget' | 'calls' | 'not_repeatable' | 'told_not_to'

/** What was done for one call. */
export type CallReport = {
  /** How often it was sent. */
  readonly calls: number
  readonly waitedMs: number
  /** What the last answer told. */
  readonly limits: readonly ToldLimit[]
  /** Why a refusal was not waited out; undefined when the answer is no refusal. */
  readonly gaveUp: GaveUp | undefined
}

export type PoliteResponse = Response & { readonly rateLimit: CallReport }
export type PoliteFetch = (input: FetchInput, init?: RequestInit) => Promise<PoliteResponse>

const BUDGET_MS = 60_000
const BUDGET_MS_MAX = 86_400_000
const CALLS_MAX = 5
/** Full jitter: anything from nothing to this, doubled with each call. */
const BACKOFF_MS = 500
const BACKOFF_MS_MAX = 30_000
const KEYS_MAX = 1000

type Settings = { readonly [Name in keyof PoliteOptions]-?: NonNullable<PoliteOptions[Name]> }

const OPTIONS: KnownFields<PoliteOptions> = {
  budgetMs: true,
  callsMax: true,
  limitKey: true,
  mayRepeat: true,
  onEvent: true,
  fetch: true,
  clock: true,
  timers: true,
  random: true,
}

export function politeFetch(options: PoliteOptions = {}): PoliteFetch {
  const settings = settingsOf(options)
  const paces = new Map<string, Pace>()
  return async (input, init) => {
    const call = callOf(input, init)
    const key = settings.limitKey(call)
    return new Visit(settings, paceOf(paces, key, settings), key, call, input, init).run()
  }
}

function settingsOf(options: PoliteOptions): Settings {
  requireKnown(options, OPTIONS, '{ budgetMs, … }, or nothing')
  const { budgetMs = BUDGET_MS, callsMax = CALLS_MAX } = options
  if (!(budgetMs >= 0 && budgetMs <= BUDGET_MS_MAX)) {
    throw optionInvalid('budgetMs', budgetMs, 'give milliseconds, at most a day; 0: never wait')
  }
  if (!Number.isInteger(callsMax) || callsMax < 1) {
    throw optionInvalid('callsMax', callsMax, 'give a whole number of at least 1; 1: never send again')
  }
  return {
    budgetMs,
    callsMax,
    limitKey: options.limitKey ?? (({ url }) => url.origin),
    mayRepeat: options.mayRepeat ?? isIdempotent,
    onEvent: options.onEvent ?? (() => {}),
    fetch: options.fetch ?? ((input, init) => globalThis.fetch(input, init)),
    clock: options.clock ?? wallClock,
    timers: options.timers ?? systemTimers,
    random: options.random ?? Math.random,
  }
}

/** Those used last come last. One that is forgotten is learned again with the next answer. */
function paceOf(paces: Map<string, Pace>, key: string, settings: Settings): Pace {
  const pace = paces.get(key) ?? new Pace(settings)
  paces.delete(key)
  paces.set(key, pace)
  const [oldest] = paces.size > KEYS_MAX ? ([...paces].find(([, { idle }]) => idle) ?? []) : []
  if (oldest !== undefined) paces.delete(oldest)
  return pace
}

/** One call of the user, sent once or more. */
class Visit {
  readonly #settings: Settings
  readonly #pace: Pace
  readonly #about: { readonly key: string; readonly call: Call }
  readonly #input: FetchInput
  readonly #init: RequestInit | undefined
  readonly #signal: AbortSignal | undefined
  #calls = 0
  #waitedMs = 0

  constructor(
    settings: Settings,
    pace: Pace,
    key: string,
    call: Call,
    input: FetchInput,
    init: RequestInit | undefined,
  ) {
    this.#settings = settings
    this.#pace = pace
    this.#about = { key, call }
    this.#input = input
    this.#init = init
    this.#signal = signalOf(input, init)
  }

  async run(): Promise<PoliteResponse> {
    for (;;) {
      const { response, told } = await this.#send()
      if (!isRefusal(response, told)) return this.#handedOn(response, told, undefined)
      const waitMs = this.#waitMs(told)
      const reason = this.#reasonToStop(response, waitMs)
      if (reason !== undefined) {
        this.#settings.onEvent({ ...this.#about, type: 'gave_up', status: response.status, reason })
        return this.#handedOn(response, told, reason)
      }
      this.#settings.onEvent({ ...this.#about, type: 'refused', status: response.status, waitMs })
      await response.body?.cancel() // or its connection could not be used again
      await wait(this.#settings.timers, waitMs, this.#signal)
      this.#waitedMs += waitMs
    }
  }

  get #leftMs(): number {
    return this.#settings.budgetMs - this.#waitedMs
  }

  async #send(): Promise<{ response: Response; told: Told }> {
    const waitedMs = await this.#pace.turn(this.#leftMs, this.#signal)
    this.#waitedMs += waitedMs
    this.#calls += 1
    try {
      if (waitedMs > 0) this.#settings.onEvent({ ...this.#about, type: 'paced', waitedMs })
      const response = await this.#settings.fetch(this.#input, this.#init)
      const told = readLimits(response.headers, this.#settings.clock.nowUs() / 1000)
      this.#pace.answered(told.limits, isRefusal(response, told) ? told.retryAfterMs : undefined)
      return { response, told }
    } catch (error) {
      this.#pace.answered()
      throw error
    }
  }

  /** As long as the server asks for, and some more, so that those who were refused together do not return together. */
  #waitMs({ limits, retryAfterMs }: Told): number {
    const spent = limits.filter(({ remaining }) => remaining === 0).map(({ resetMs = 0 }) => resetMs)
    const toldMs = retryAfterMs ?? Math.max(0, ...spent)
    const jitterMs = Math.min(BACKOFF_MS * 2 ** (this.#calls - 1), BACKOFF_MS_MAX, Math.max(0, this.#leftMs - toldMs))
    return toldMs + Math.floor(this.#settings.random() * jitterMs)
  }

  #reasonToStop(response: Response, waitMs: number): GaveUp | undefined {
    const { callsMax, mayRepeat } = this.#settings
    if (response.headers.get('x-should-retry') === 'false') return 'told_not_to'
    if (!mayRepeat(this.#about.call) || !isReadAgain(this.#input, this.#init)) return 'not_repeatable'
    if (this.#calls >= callsMax) return 'calls'
    return waitMs > this.#leftMs ? 'budget' : undefined
  }

  #handedOn(response: Response, { limits }: Told, gaveUp: GaveUp | undefined): PoliteResponse {
    const rateLimit: CallReport = { calls: this.#calls, waitedMs: this.#waitedMs, limits, gaveUp }
    // It can be defined again: behind another polite fetch, or with a `fetch` that hands out what it has kept.
    return Object.defineProperty(response, 'rateLimit', { value: rateLimit, configurable: true }) as PoliteResponse
  }
}

/** GitHub refuses with 403, and others mean by it what it says; 529 is Anthropic's way to say that it is overloaded. */
function isRefusal({ status }: Response, { limits, retryAfterMs }: Told): boolean {
  if (status === 429 || status === 529) return true
  if (status === 503) return retryAfterMs !== undefined
  return status === 403 && (retryAfterMs !== undefined || limits.some(({ remaining }) => remaining === 0))
}

function wait(timers: Timers, waitMs: number, signal: AbortSignal | undefined): Promise<void> {
  signal?.throwIfAborted()
  return new Promise((resolve, reject) => {
    const leave = () => {
      stop()
      reject(signal?.reason)
    }
    const stop = timers.after(waitMs, () => {
      signal?.removeEventListener('abort', leave)
      resolve()
    })
    signal?.addEventListener('abort', leave, { once: true })
  })
}
