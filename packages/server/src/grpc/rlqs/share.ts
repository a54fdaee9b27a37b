// Share of one Envoy in one bucket: what is paid for it, what it was assigned, what it reported. Invariant: `held` ≥
// `#out`, the most that Envoy may have passed since its last report or can still pass. An assignment is a number of
// tokens that does not refill, so the bound needs no clock: a late, lost or repeated message passes no more.

import type { Strategy } from './messages.ts'

/**
 * Time to live of an assignment: several reports long, because Envoy reports every 5 s and reconnects as slowly. Only
 * decides when an Envoy that has lost the service applies its own fallback.
 */
export const LEASE_SECONDS = 15
const REPORT_SECONDS = 5
/** Time that a share covers: until the next report, and its way to here and back. */
const COVERED_SECONDS = REPORT_SECONDS + 1
/** Standard deviations of a random arrival that a share covers: of the requests to come, and of those reported. */
const DEVIATIONS = 4
/** Part of a peak that is kept when a report is lower. */
const PEAK_KEPT = 0.8
/** An assignment has replaced the tokens before it within this time. */
const REPLACED_SECONDS = 1
/** Time in which requests are expected to pass while an assignment is on its way. */
const IN_FLIGHT_SECONDS = 0.3
/** Requests per second are computed over at least this time: the first report comes at once. */
const SECONDS_MIN = 4
/** Largest number of tokens in the protocol. */
export const TOKENS_MAX: number = 2 ** 32 - 1
const DENY: Strategy = { blanket: 'deny' }
const ALLOW: Strategy = { blanket: 'allow' }

/** Units that cover this many requests per second until the next report was answered. */
export function unitsFor(perSecond: number): number {
  const expected = perSecond * COVERED_SECONDS
  return Math.min(TOKENS_MAX, Math.ceil(expected + DEVIATIONS * Math.sqrt(expected)) + 2)
}

export class Share {
  /** Units paid and not known to be used. Negative: passed on the way of an assignment, and to be paid. */
  held = 0
  /** Allowed and denied requests per second, by the newest report; undefined before the first full one. */
  perSecond: number | undefined
  /** Highest demand of the last reports; older ones weigh less. */
  peak = 0
  /** Time of the last report with requests. */
  usedMs: number
  #out = 0
  /** Newest strategy; undefined before the first one. */
  #strategy: Strategy | undefined
  /** Tokens of the newest assignment, and when it was sent. */
  #tokens = 0
  #tokensBefore = 0
  /** Most tokens that Envoy had at any time since the newest assignment or report. */
  #alive = 0
  #sentMs = 0
  #leaseEndMs = 0
  /** Units used since the newest assignment, as reported. */
  #used = 0
  #counted = 0
  #countedFromMs: number
  /** No assignment has followed the newest report. */
  #isReported = false

  constructor(nowMs: number) {
    this.usedMs = nowMs
    this.#countedFromMs = nowMs
  }

  get isAssigned(): boolean {
    return this.#strategy !== undefined
  }

  /** Units that no request has used yet, but one may from now on, or could have since the last payment. */
  get exposed(): number {
    const unused = Math.max(0, Math.min(this.#out, this.held))
    const used = this.#isReported ? Math.min(this.#alive, this.#used + unused) : this.#alive
    return used + this.free
  }

  /** Units of earlier tokens that Envoy did not use: they pay for new ones. */
  get free(): number {
    return Math.max(0, this.held - this.#out)
  }

  /** Time until which Envoy applies the newest assignment. */
  get leaseEndMs(): number {
    return this.#leaseEndMs
  }

  /** Whether Envoy may forget it: not while it denies, because its next request would pass. */
  get isForgettable(): boolean {
    return this.held >= 0 && !isBlanket(this.#strategy, 'deny')
  }

  /**
   * Counts usage by the time of this node: Envoy rounds `time_elapsed` to seconds, and sends 0 at first. Requests
   * before the first assignment are paid with the next one; without a limit, requests use no units.
   */
  reported(allowed: number, denied: number, nowMs: number): void {
    const requests = allowed + denied
    if (requests > 0) this.usedMs = nowMs
    // A new bucket reports its first request. More belong to a stream that has ended, and whose units stay taken.
    const isReconnected = this.#strategy === undefined && requests > 1
    this.#count(requests, isReconnected ? REPORT_SECONDS : (nowMs - this.#countedFromMs) / 1000, nowMs)
    this.#isReported = true
    if (isReconnected || isBlanket(this.#strategy, 'allow')) return
    this.held -= allowed
    this.#used += allowed
    const isReplaced = nowMs - this.#sentMs > REPLACED_SECONDS * 1000
    const tokensMax = this.#tokens + (isReplaced ? 0 : this.#tokensBefore)
    this.#out = Math.max(0, Math.min(this.#out - allowed, tokensMax))
  }

  /** Tokens that Envoy has left if it gets so many requests per second. */
  estimatedLeft(demand: number, nowMs: number): number {
    return Math.max(0, this.#tokens - (demand * (nowMs - this.#sentMs)) / 1000)
  }

  /** Units to pay before Envoy can be assigned so many tokens, whatever it did with those before. */
  missing(tokens: number): number {
    return Math.max(0, tokens + this.#reserve() - this.held)
  }

  /** Units that are held for more than so many tokens. */
  surplus(tokens: number): number {
    return Math.max(0, this.held - tokens - this.#reserve())
  }

  /** Units held count as used: the next reports do not tell which requests used one. Errs low. */
  allow(nowMs: number): Strategy[] {
    this.held = 0
    this.#alive = 0
    this.#out = 0
    return this.#send([ALLOW], nowMs)
  }

  /**
   * Assigns at most so many tokens, of the units held. Returns what to send: Envoy applies several strategies of one
   * message in order, and a token bucket is full only after another strategy, such as `deny`.
   */
  assign(tokensMax: number, estimatedLeft: number, nowMs: number): Strategy[] {
    const reserve = this.#reserve()
    const tokens = Math.min(tokensMax, this.held - reserve)
    const left = this.#isReported ? this.#out : estimatedLeft
    const isReturned = this.held < this.#out
    if (tokens >= 1 && (tokens > left || isReturned)) {
      this.#out = reserve + tokens
      this.#tokensBefore = this.#tokens
      this.#tokens = tokens
      this.#alive = tokens
      this.#sentMs = nowMs
      return this.#send([DENY, { tokens }], nowMs)
    }
    if (!this.#isReported) return []
    this.#alive = left
    if (left === 0) this.#tokens = 0
    return this.#send([left > 0 && this.#strategy !== undefined ? this.#strategy : DENY], nowMs)
  }

  #send(strategies: Strategy[], nowMs: number): Strategy[] {
    this.#strategy = strategies.at(-1)
    this.#isReported = false
    this.#used = 0
    this.#leaseEndMs = nowMs + LEASE_SECONDS * 1000
    return strategies
  }

  /** Units for requests that pass until Envoy has received the next assignment. After a report, those are few. */
  #reserve(): number {
    if (!this.#isReported) return this.#out
    return Math.min(this.#out, this.#inFlight())
  }

  #inFlight(): number {
    return Math.ceil((this.perSecond ?? 0) * IN_FLIGHT_SECONDS) + 1
  }

  #count(requests: number, seconds: number, nowMs: number): void {
    this.#counted += requests
    if (seconds < SECONDS_MIN) return
    this.perSecond = this.#counted / seconds
    this.peak = Math.max(this.perSecond, PEAK_KEPT * this.peak)
    this.#counted = 0
    this.#countedFromMs = nowMs
  }
}

function isBlanket(strategy: Strategy | undefined, rule: 'allow' | 'deny'): boolean {
  return strategy !== undefined && 'blanket' in strategy && strategy.blanket === rule
}
