// Decision of the counters of an Envoy configuration, in the shape that metrics, events and history record.

import type { AppliedException, Decision, Outcome, Source } from 'sluice'
import type { Match } from './descriptor-tree.ts'

const NO_OUTCOMES: readonly Outcome[] = []
const NO_EXCEPTIONS: readonly AppliedException[] = []

/** Result of the counter that decides. */
export type CounterResult = {
  readonly match: Match
  readonly remaining: number
  readonly resetSeconds: number
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

  get ruleId(): string | null {
    return this.#result?.match.ruleId ?? null
  }

  get limit(): number | null {
    return this.#result?.match.limit.current.requestsPerUnit ?? null
  }

  get remaining(): number | null {
    return this.#result?.remaining ?? null
  }

  get resetAfterMs(): number | null {
    return this.#result === undefined ? null : this.#result.resetSeconds * 1000
  }

  get resetAtMs(): number | null {
    if (this.#result === undefined) return null
    const { wallUs, resetSeconds } = this.#result
    return (Math.floor(wallUs / 1_000_000) + resetSeconds) * 1000
  }

  /** Envoy's limits are fixed windows: full again when the same request passes. */
  get fullAfterMs(): number | null {
    return this.resetAfterMs
  }

  get fullAtMs(): number | null {
    return this.resetAtMs
  }

  get retryAfterMs(): number | null {
    return this.allowed ? 0 : this.resetAfterMs
  }

  get requestId(): string {
    this.#requestId ??= this.#newId()
    return this.#requestId
  }
}
