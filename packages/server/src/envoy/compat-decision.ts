// Decision of the counters of an Envoy configuration, in the shape that metrics, events and history record.

import type { AppliedException, Decision, Outcome, Source } from 'sluice'
import type { Match } from './descriptor-tree.ts'
import type { Status } from './rate-limit-response.ts'

const NO_OUTCOMES: readonly Outcome[] = []
const NO_EXCEPTIONS: readonly AppliedException[] = []

/** Result of the counter that decides. */
export type CounterResult = {
  readonly match: Match
  readonly status: Status
  /** Until the same request passes, if it is refused. */
  readonly retrySeconds: number
  /** Microseconds since the epoch. */
  readonly wallUs: number
}

/** Computes its fields when they are read: most decisions are only counted. */
export class CompatDecision implements Decision {
  readonly allowed: boolean
  readonly source: Source
  readonly version = 0
  readonly delayMs = 0
  readonly outcomes: readonly Outcome[] = NO_OUTCOMES
  readonly exceptions: readonly AppliedException[] = NO_EXCEPTIONS
  readonly #result: CounterResult | undefined
  readonly #newId: () => string
  #requestId: string | undefined

  /** `result`: undefined if no limit applies. */
  constructor(allowed: boolean, source: Source, result: CounterResult | undefined, newId: () => string) {
    this.allowed = allowed
    this.source = source
    this.#result = result
    this.#newId = newId
  }

  /** The status that headers describe. */
  get deciding(): Status | undefined {
    return this.#result?.status
  }

  get ruleId(): string | null {
    return this.#result?.match.ruleId ?? null
  }

  get limit(): number | null {
    return this.#result?.match.limit.current.requestsPerUnit ?? null
  }

  get remaining(): number | null {
    return this.#result?.status.remaining ?? null
  }

  get resetAfterMs(): number | null {
    return this.allowed ? this.fullAfterMs : this.retryAfterMs
  }

  get resetAtMs(): number | null {
    return this.#wallMs(this.resetAfterMs)
  }

  get fullAfterMs(): number | null {
    return this.#result === undefined ? null : (this.#result.status.resetSeconds ?? 0) * 1000
  }

  get fullAtMs(): number | null {
    return this.#wallMs(this.fullAfterMs)
  }

  get retryAfterMs(): number | null {
    return this.allowed ? 0 : (this.#result?.retrySeconds ?? 0) * 1000
  }

  get requestId(): string {
    this.#requestId ??= this.#newId()
    return this.#requestId
  }

  #wallMs(afterMs: number | null): number | null {
    if (this.#result === undefined || afterMs === null) return null
    return Math.floor(this.#result.wallUs / 1_000_000) * 1000 + afterMs
  }
}
