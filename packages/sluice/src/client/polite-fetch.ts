// `fetch` that respects rate limits: slows down before it is refused, waits as long as the server requests after a
// refusal, and gives up when its budget is spent. Only delays and retries: the response is always the server's own.

import { type Clock, systemTimers, type Timers, wallClock } from '../clock.ts'
import { optionInvalid } from '../errors.ts'
import { type KnownFields, requireKnown } from '../known-fields.ts'
import { type Call, callOf, type FetchInput, isIdempotent, isReplayable, signalOf } from './call.ts'
import { type ReportedLimit, type ReportedLimits, readLimits } from './limit-headers.ts'
import { Pace } from './pace.ts'

export type PoliteOptions = {
  /** Total time that one call may wait. Default: a minute. */
  readonly budgetMs?: number | undefined
  /** Maximum number of attempts. Default: 5. */
  readonly callsMax?: number | undefined
  /** Calls with the same key share limits. Default: the origin. */
  readonly limitKey?: ((call: Call) => string) | undefined
  /** Whether a refused call may be retried. Default: idempotent methods, and calls with an `Idempotency-Key`. */
  readonly mayRepeat?: ((call: Call) => boolean) | undefined
  readonly onEvent?: ((event: PoliteEvent) => void) | undefined
  /** Default: the global `fetch`. */
  readonly fetch?: ((input: FetchInput, init?: RequestInit) => Promise<Response>) | undefined
  /** For tests. */
  readonly clock?: Clock | undefined
  readonly timers?: Timers | undefined
  /** 0 ≤ random() < 1. */
  readonly random?: (() => number) | undefined
}

/** paced: delayed before it was sent. refused: will be retried. gave_up: the refusal was returned. */
export type PoliteEvent = { readonly key: string; readonly call: Call } & (
  | { readonly type: 'paced'; readonly waitedMs: number }
  | { readonly type: 'refused'; readonly status: number; readonly waitMs: number }
  | { readonly type: 'gave_up'; readonly status: number; readonly reason: GaveUp }
)

/**
 * budget: the wait would exceed the budget. calls: no attempts left. not_repeatable: it may have had an effect, or its
 * body is a stream. retry_forbidden: the server sent `x-should-retry: false`.
 */
export type GaveUp = 'budget' | 'calls' | 'not_repeatable' | 'retry_forbidden'

/** Summary of one call. */
export type CallReport = {
  /** Number of attempts. */
  readonly calls: number
  readonly waitedMs: number
  /** Limits in the last response. */
  readonly limits: readonly ReportedLimit[]
  /** Reason that a refusal was not retried; undefined if the response is not a refusal. */
  readonly gaveUp: GaveUp | undefined
}

export type PoliteResponse = Response & { readonly rateLimit: CallReport }
export type PoliteFetch = (input: FetchInput, init?: RequestInit) => Promise<PoliteResponse>

const BUDGET_MS = 60_000
const BUDGET_MS_MAX = 86_400_000
const CALLS_MAX = 5
/** Full jitter: a random wait from 0 to this, doubled with each attempt. */
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
    return new LimitedCall(settings, paceOf(paces, key, settings), key, call, input, init).run()
  }
}

function settingsOf(options: PoliteOptions): Settings {
  requireKnown(options, OPTIONS, '{ budgetMs, … }, or nothing')
  const { budgetMs = BUDGET_MS, callsMax = CALLS_MAX } = options
  if (!(budgetMs >= 0 && budgetMs <= BUDGET_MS_MAX)) {
    throw optionInvalid('budgetMs', budgetMs, 'give milliseconds, at most a day; 0 never waits')
  }
  if (!Number.isInteger(callsMax) || callsMax < 1) {
    throw optionInvalid('callsMax', callsMax, 'give a whole number of at least 1; 1 never retries')
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

/** LRU cache: recently used keys come last. The next response restores an evicted one. */
function paceOf(paces: Map<string, Pace>, key: string, settings: Settings): Pace {
  const pace = paces.get(key) ?? new Pace(settings)
  paces.delete(key)
  paces.set(key, pace)
  const [oldest] = paces.size > KEYS_MAX ? ([...paces].find(([, { idle }]) => idle) ?? []) : []
  if (oldest !== undefined) paces.delete(oldest)
  return pace
}

/** One call with all its attempts. */
class LimitedCall {
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
      const { response, reported } = await this.#send()
      if (!isRefusal(response, reported)) return this.#withReport(response, reported, undefined)
      const waitMs = this.#waitMs(reported)
      const reason = this.#reasonToStop(response, waitMs)
      if (reason !== undefined) {
        this.#settings.onEvent({ ...this.#about, type: 'gave_up', status: response.status, reason })
        return this.#withReport(response, reported, reason)
      }
      this.#settings.onEvent({ ...this.#about, type: 'refused', status: response.status, waitMs })
      await response.body?.cancel() // frees the connection for reuse
      await wait(this.#settings.timers, waitMs, this.#signal)
      this.#waitedMs += waitMs
    }
  }

  get #leftMs(): number {
    return this.#settings.budgetMs - this.#waitedMs
  }

  async #send(): Promise<{ response: Response; reported: ReportedLimits }> {
    const waitedMs = await this.#pace.turn(this.#leftMs, this.#signal)
    this.#waitedMs += waitedMs
    this.#calls += 1
    try {
      if (waitedMs > 0) this.#settings.onEvent({ ...this.#about, type: 'paced', waitedMs })
      const response = await this.#settings.fetch(this.#input, this.#init)
      const reported = readLimits(response.headers, this.#settings.clock.nowUs() / 1000)
      this.#pace.completed(reported.limits, isRefusal(response, reported) ? reported.retryAfterMs : undefined)
      return { response, reported }
    } catch (error) {
      this.#pace.completed()
      throw error
    }
  }

  /** The wait that the server requested, plus jitter, so that clients refused together do not return together. */
  #waitMs({ limits, retryAfterMs }: ReportedLimits): number {
    const spent = limits.filter(({ remaining }) => remaining === 0).map(({ resetMs = 0 }) => resetMs)
    const requestedMs = retryAfterMs ?? Math.max(0, ...spent)
    const jitterMs = Math.min(
      BACKOFF_MS * 2 ** (this.#calls - 1),
      BACKOFF_MS_MAX,
      Math.max(0, this.#leftMs - requestedMs),
    )
    return requestedMs + Math.floor(this.#settings.random() * jitterMs)
  }

  #reasonToStop(response: Response, waitMs: number): GaveUp | undefined {
    const { callsMax, mayRepeat } = this.#settings
    if (response.headers.get('x-should-retry') === 'false') return 'retry_forbidden'
    if (!mayRepeat(this.#about.call) || !isReplayable(this.#input, this.#init)) return 'not_repeatable'
    if (this.#calls >= callsMax) return 'calls'
    return waitMs > this.#leftMs ? 'budget' : undefined
  }

  #withReport(response: Response, { limits }: ReportedLimits, gaveUp: GaveUp | undefined): PoliteResponse {
    const rateLimit: CallReport = { calls: this.#calls, waitedMs: this.#waitedMs, limits, gaveUp }
    // Configurable, because the response may pass through another polite fetch or come from a cache.
    return Object.defineProperty(response, 'rateLimit', { value: rateLimit, configurable: true }) as PoliteResponse
  }
}

/** GitHub refuses with 403, which is not a refusal elsewhere; Anthropic sends 529 when it is overloaded. */
function isRefusal({ status }: Response, { limits, retryAfterMs }: ReportedLimits): boolean {
  if (status === 429 || status === 529) return true
  if (status === 503) return retryAfterMs !== undefined
  return status === 403 && (retryAfterMs !== undefined || limits.some(({ remaining }) => remaining === 0))
}

function wait(timers: Timers, waitMs: number, signal: AbortSignal | undefined): Promise<void> {
  signal?.throwIfAborted()
  return new Promise((resolve, reject) => {
    const abort = () => {
      stop()
      reject(signal?.reason)
    }
    const stop = timers.after(waitMs, () => {
      signal?.removeEventListener('abort', abort)
      resolve()
    })
    signal?.addEventListener('abort', abort, { once: true })
  })
}
