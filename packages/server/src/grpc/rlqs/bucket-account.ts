// Account of one bucket of one Envoy. Invariant: units paid ≥ requests that Envoy reported as allowed + the most that
// it can still pass until its lease ends. Units are paid by checks of the limiter before they are assigned, so every
// rule, algorithm and override applies, all or nothing. Units of a lease whose stream ended stay paid: that Envoy still
// uses them.

import type { Decision, Limiter, Subject } from 'sluice'
import type { Strategy } from './messages.ts'
import {
  distinctFrom,
  isClose,
  LEASE_SECONDS,
  mostPassed,
  shareOf,
  type TokenShare,
  UNITS_MIN,
  unitsFor,
} from './share.ts'

type Payments = Pick<Limiter, 'check' | 'give'>

/** Weight of the newest report in the estimated demand. */
const NEWEST = 0.5
/** Demand that is assumed of a bucket before its first full report. */
const FIRST_PER_SECOND = 2
/** Requests per second are computed over at least this time: the first report comes at once. */
const SECONDS_MIN = 1

export class BucketAccount {
  readonly #limiter: Payments
  readonly #subject: Subject
  #paid = 0
  /** Requests that used a token, as reported. */
  #passed = 0
  #perSecond = FIRST_PER_SECOND
  #reportedMs: number
  #usedMs: number
  #current: Strategy | undefined
  /** In force until Envoy has received the current one. */
  #previous: Strategy | undefined
  #leaseEndMs = 0
  /** Newest payments, which can be returned as a whole. */
  readonly #payments: { readonly decision: Decision; readonly units: number }[] = []
  /** Time of the next attempt, after units were refused. */
  #retryMs = 0

  constructor(limiter: Payments, subject: Subject, nowMs: number) {
    this.#limiter = limiter
    this.#subject = subject
    this.#reportedMs = nowMs
    this.#usedMs = nowMs
  }

  get leaseEndMs(): number {
    return this.#leaseEndMs
  }

  /** Time of the last report with requests. */
  get usedMs(): number {
    return this.#usedMs
  }

  get paid(): number {
    return this.#paid
  }

  /** Whether to take units before the next report: everything is denied, and units may have refilled. */
  isWaiting(nowMs: number): boolean {
    return this.#current !== undefined && isDeny(this.#current) && nowMs >= this.#retryMs
  }

  /** Counts usage by the time of this node: Envoy rounds `time_elapsed` to seconds, and sends 0 at first. */
  reported(allowed: number, denied: number, nowMs: number): void {
    const seconds = (nowMs - this.#reportedMs) / 1000
    if (allowed + denied > 0) this.#usedMs = nowMs
    if (seconds >= SECONDS_MIN) {
      this.#perSecond = NEWEST * ((allowed + denied) / seconds) + (1 - NEWEST) * this.#perSecond
      this.#reportedMs = nowMs
    }
    // Requests before the first assignment, and without a limit, have used no token.
    if (this.#current !== undefined && !isAllow(this.#current)) this.#passed += allowed
    this.#previous = undefined // a report follows each assignment: it has been applied
  }

  /** Pays for the next lease and returns its strategy. */
  async assign(nowMs: number): Promise<Strategy> {
    const wanted = unitsFor(this.#perSecond)
    const missing = Math.max(0, wanted - this.#left())
    const outcome = missing === 0 ? 'paid' : await this.#pay(missing, nowMs)
    const strategy = this.#choose(outcome, wanted)
    if (strategy !== this.#current) {
      this.#previous = this.#current
      this.#current = strategy
    }
    this.#leaseEndMs = nowMs + LEASE_SECONDS * 1000
    await this.#returnSurplus(wanted)
    return strategy
  }

  #choose(outcome: 'paid' | 'unlimited' | number, wanted: number): Strategy {
    if (outcome === 'unlimited') {
      this.#forfeit()
      return this.#current !== undefined && isAllow(this.#current) ? this.#current : ALLOW
    }
    if (typeof outcome === 'number') this.#retryMs = outcome
    const share = shareOf(Math.min(this.#left(), wanted))
    const before = this.#current !== undefined && 'maxTokens' in this.#current ? this.#current : undefined
    if (share === undefined) return this.#current !== undefined && isDeny(this.#current) ? this.#current : DENY
    if (before !== undefined && mostPassed(before) <= this.#left() && isClose(share, before)) return before
    return distinctFrom(share, before)
  }

  /** Counts all units as used: while everything passes, reports do not tell which requests used a token. Errs low. */
  #forfeit(): void {
    this.#passed = this.#paid
    this.#payments.length = 0
  }

  /** Units paid that no request has used. */
  #left(): number {
    return Math.max(0, this.#paid - this.#passed)
  }

  /** Takes the units, or half of those that are left. Returns the time of the next attempt if it got none. */
  async #pay(units: number, nowMs: number): Promise<'paid' | 'unlimited' | number> {
    let decision = await this.#limiter.check({ ...this.#subject, cost: units })
    let got = units
    const available = decision.allowed ? 0 : availableIn(decision)
    if (available >= UNITS_MIN) {
      got = Math.min(units, Math.max(UNITS_MIN, Math.ceil(available / 2))) // the rest is for others
      decision = await this.#limiter.check({ ...this.#subject, cost: got })
    }
    if (!decision.allowed) {
      return nowMs + (decision.outcomes.some(({ limit }) => limit === 0) ? BANNED_MS : RETRY_MS)
    }
    if (decision.ruleId === null) return 'unlimited'
    this.#paid += got
    this.#payments.push({ decision, units: got })
    if (this.#payments.length > PAYMENTS_MAX) this.#payments.shift()
    return 'paid'
  }

  /** Returns the newest payments that neither share can use: demand fell. */
  async #returnSurplus(wanted: number): Promise<void> {
    // Until Envoy has received the current share, the one before is in force: the units must cover both.
    const needed = Math.max(wanted, most(this.#current), most(this.#previous))
    for (let last = this.#payments.at(-1); last !== undefined; last = this.#payments.at(-1)) {
      if (this.#left() - last.units < needed) return
      this.#payments.pop()
      this.#paid -= last.units
      await this.#limiter.give(last.decision).catch(() => {}) // errs low: the units stay taken
    }
  }
}

const PAYMENTS_MAX = 32
const RETRY_MS = 2000
const BANNED_MS = 15_000
const DENY: Strategy = { blanket: 'deny' }
const ALLOW: Strategy = { blanket: 'allow' }

/** Units that all limits of a refused request have left. */
function availableIn({ outcomes }: Decision): number {
  const enforced = outcomes.filter(({ mode }) => mode === 'enforce').map(({ remaining }) => remaining)
  return enforced.length === 0 ? 0 : Math.min(...enforced)
}

function isAllow(strategy: Strategy): boolean {
  return 'blanket' in strategy && strategy.blanket === 'allow'
}

function isDeny(strategy: Strategy): boolean {
  return 'blanket' in strategy && strategy.blanket === 'deny'
}

function most(strategy: Strategy | undefined): number {
  return strategy !== undefined && 'maxTokens' in strategy ? mostPassed(strategy as TokenShare) : 0
}
