// A bucket of Envoys on this node. Pays for the tokens of their shares with checks of the limiter, before they are
// assigned, so every rule, algorithm and override applies, all or nothing. What each guarantees, and why the limit is
// not exceeded: docs/decisions/0049-envoy-quota-shares.md.

import type { Decision, Limiter, Outcome, Subject } from 'sluice'
import type { BucketId, Strategy } from './messages.ts'
import { type Share, TOKENS_MAX, unitsFor } from './share.ts'

export type Payments = Pick<Limiter, 'check' | 'give' | 'peek'>

/** Checks of one payment: the first assumes what is available, later ones know. */
const CHECKS_MAX = 3
/** A share of a bucket with room covers its highest demand so many times. */
const HEADROOM = 2
/** Units within this part of what is available, divided by the Envoys, are headroom. */
const ROOM = 1 / 4
/** Envoys that may start at about the same time as a new one. */
const STARTING = 5
/** Longest time without an attempt, after nothing was available: units may be refunded, or the limit raised. */
const RETRY_MS = 2000
const BANNED_MS = 15_000
/** Payments of a share that can be returned. */
const PAYMENTS_MAX = 50

type Payment = { readonly decision: Decision; readonly units: number }

export class QuotaBucket {
  readonly id: BucketId
  readonly #limiter: Payments
  readonly #subject: Subject
  readonly #nodes: number
  /** Shares, those served longest ago first, and newest payments of each. */
  readonly #shares = new Map<Share, Payment[]>()
  /** Shares of streams that have ended: Envoy may use them until their leases end. */
  readonly #ended = new Set<Share>()
  /** Units available after the newest check. */
  #available = Number.POSITIVE_INFINITY
  /** Requests per second that the limits admit for ever. */
  #perSecondMax = 1
  /** Number of the window of each limit, at the newest check. */
  readonly #windows = new Map<string, number>()
  #retryMs = 0
  #serving: Promise<unknown> | undefined

  /** `nodes`: nodes of the service, each with Envoys of its own. */
  constructor(limiter: Payments, subject: Subject, id: BucketId, nodes: number) {
    this.#limiter = limiter
    this.#nodes = nodes
    this.#subject = subject
    this.id = id
  }

  get isUnused(): boolean {
    return this.#shares.size + this.#ended.size === 0
  }

  add(share: Share): void {
    this.#shares.set(share, [])
  }

  /** The units stay taken. */
  end(share: Share): void {
    if (this.#shares.delete(share)) this.#ended.add(share)
  }

  /** Removes a share that Envoy has forgotten, and returns its units. */
  async abandon(share: Share): Promise<void> {
    const payments = this.#shares.get(share) ?? []
    this.#shares.delete(share)
    await this.#giveBack(share, payments, share.held)
  }

  /** Shares to serve before their next report: their tokens run out, and units may have come back. */
  due(nowMs: number): Share[] {
    for (const share of this.#ended) if (nowMs >= share.leaseEndMs) this.#ended.delete(share)
    if (nowMs < this.#retryMs) return []
    return [...this.#shares.keys()].filter((share) => {
      const demand = this.#demand(share)
      return share.isAssigned && share.estimatedLeft(demand, nowMs) <= demand
    })
  }

  /** Pays for the shares, and returns what to send to each. One call at a time. */
  async serve(shares: readonly Share[], nowMs: () => number): Promise<Map<Share, Strategy[]>> {
    while (this.#serving !== undefined) await this.#serving // without one, it starts within its slice
    const work = this.#serve(shares, nowMs)
    this.#serving = work
      .catch(() => {}) // the caller gets the error
      .finally(() => {
        this.#serving = undefined
      })
    return work
  }

  async #serve(shares: readonly Share[], nowMs: () => number): Promise<Map<Share, Strategy[]>> {
    const wanted = new Map(shares.map((share) => [share, this.#wanted(share)]))
    for (const [share, tokens] of wanted) {
      const surplus = share.surplus(tokens)
      if (surplus > tokens / 4) await this.#giveBack(share, this.#shares.get(share) ?? [], surplus)
    }
    const missing = shares.map((share) => share.missing(wanted.get(share) ?? 0))
    const paid = await this.#pay(shares, sum(missing), nowMs)
    const assigned = new Map<Share, Strategy[]>()
    if (paid === 'unlimited') {
      for (const share of shares) {
        this.#shares.get(share)?.splice(0)
        assigned.set(share, share.allow(nowMs()))
      }
      return assigned
    }
    // Divides what was paid by what each is missing; what one gets too much by rounding, a later one gets too little.
    const all = sum(missing)
    let needed = 0
    let given = 0
    for (const [index, share] of shares.entries()) {
      needed += missing[index] ?? 0
      const units = all === 0 ? 0 : Math.ceil((paid.units * needed) / all) - given
      given += units
      share.held += units
      if (units > 0) this.#keep(share, shares.length === 1 ? paid.payments : [])
      const left = share.estimatedLeft(this.#demand(share), nowMs())
      assigned.set(share, share.assign(wanted.get(share) ?? 0, left, nowMs()))
    }
    return assigned
  }

  /** Tokens that a share should have. */
  #wanted(share: Share): number {
    const { perSecond, peak } = share
    if (perSecond === undefined) {
      return share.isAssigned ? Math.max(share.held, unitsFor(this.#demand(share))) : TOKENS_MAX
    }
    const room = Math.floor((this.#available * ROOM) / this.#shares.size)
    return Math.max(unitsFor(perSecond), Math.min(HEADROOM * unitsFor(peak), room))
  }

  /** Requests per second of a share; before its first report, an equal part of what the limit admits. */
  #demand({ perSecond }: Share): number {
    return perSecond ?? this.#perSecondMax / this.#shares.size
  }

  /**
   * Part of the available units for these shares. Half goes to all shares of this node, by their demand: the rest is
   * for other nodes and later reports. A new share leaves units for others that may be about to start.
   */
  #portion(shares: readonly Share[], available: number): number {
    const others = this.#shares.size - shares.length
    if (shares.some(({ isAssigned }) => !isAssigned))
      return Math.floor(available / (others === 0 ? 2 : others + STARTING))
    const all = sum([...this.#shares.keys()].map((share) => this.#demand(share)))
    const part = all === 0 ? 1 / this.#shares.size : sum(shares.map((share) => this.#demand(share))) / all
    return Math.floor((available / 2) * part)
  }

  /** Takes up to so many units: all of them, or the portion of these shares in what is available. */
  async #pay(shares: readonly Share[], units: number, nowMs: () => number): Promise<Paid> {
    const payments: Payment[] = []
    let got = 0
    let portion = this.#portion(shares, this.#available)
    let newest = units > 0 ? undefined : await this.#limiter.peek(this.#subject)
    for (let checks = 0; checks < CHECKS_MAX && got < units; checks += 1) {
      const cost = Math.min(units - got, Number.isFinite(portion) ? Math.max(1, portion - got) : 1)
      const decision = await this.#limiter.check({ ...this.#subject, cost })
      newest = decision
      this.#available = availableIn(decision)
      if (decision.allowed) {
        got += cost
        payments.push({ decision, units: cost })
      } else if (this.#available === 0) {
        const isBanned = decision.outcomes.some(({ limit }) => limit === 0)
        this.#retryMs = nowMs() + (isBanned ? BANNED_MS : Math.min(RETRY_MS, decision.retryAfterMs ?? RETRY_MS))
      }
      if (decision.allowed && decision.ruleId === null) break
      portion = this.#portion(shares, this.#available + got)
      if (got >= portion) break
    }
    if (newest?.allowed && newest.ruleId === null) return 'unlimited'
    if (newest !== undefined) await this.#cover(newest, got)
    return { units: got, payments }
  }

  /**
   * Takes units again that have come back to the limit although Envoys may still use them: a token bucket has refilled,
   * a window has ended. Otherwise old and new units could be used together, above the limit.
   */
  async #cover(newest: Decision, paid: number): Promise<void> {
    const shares = [...this.#shares.keys(), ...this.#ended]
    const { fullAtMs, fullAfterMs } = newest
    const storeMs = fullAtMs === null || fullAfterMs === null ? undefined : fullAtMs - fullAfterMs
    const limits = enforced(newest)
    if (limits.length === 0) return
    this.#perSecondMax = Math.min(...limits.map(({ limit, windowMs }) => (limit * 1000) / windowMs))
    const exposed = sum(shares.map((share) => share.exposed))
    const missing = Math.min(
      ...limits.map((outcome) => {
        const { ruleId, name, burst, remaining, windowMs } = outcome
        const id = `${ruleId} ${name}`
        const before = this.#windows.get(id)
        const window = isWindowed(outcome) && storeMs !== undefined ? Math.floor(storeMs / windowMs) : before
        if (window !== undefined) this.#windows.set(id, window)
        // Units taken in the window before, and used only now, do not count in this one, or ever less.
        if (window !== before && before !== undefined) return exposed
        // The other nodes hold as many: the node that holds most takes enough for all, but leaves half of the bucket.
        const others = isWindowed(outcome) ? 0 : Math.min(exposed * (this.#nodes - 1), Math.max(0, burst / 2 - exposed))
        return exposed + Math.floor(others) - (burst - remaining - paid)
      }),
    )
    if (missing <= 0) return
    const cost = Math.min(missing, this.#available)
    const covered = cost > 0 ? await this.#limiter.check({ ...this.#subject, cost }) : newest
    this.#available = availableIn(covered)
    let left = covered.allowed && cost > 0 ? missing - cost : missing
    for (const share of shares) {
      const lost = Math.min(left, share.free)
      share.held -= lost
      left -= lost
    }
  }

  /** Keeps the newest payments, of twice the units held: earlier ones count as used. Moves the share to the end. */
  #keep(share: Share, payments: readonly Payment[]): void {
    const kept: Payment[] = []
    let left = 2 * share.held
    for (const payment of [...(this.#shares.get(share) ?? []), ...payments].slice(-PAYMENTS_MAX).reverse()) {
      if (left <= 0) break
      kept.unshift(payment)
      left -= payment.units
    }
    if (this.#shares.delete(share)) this.#shares.set(share, kept)
  }

  /** Returns the newest payments, up to so many units. Errs low: what the store does not confirm stays taken. */
  async #giveBack(share: Share, payments: Payment[], surplus: number): Promise<void> {
    let left = surplus
    while (left >= 1) {
      const last = payments.pop()
      if (last === undefined) return
      const units = Math.min(left, last.units)
      left -= units
      share.held -= units
      await this.#limiter.give(last.decision, units).catch(() => {})
    }
  }
}

type Paid = { readonly units: number; readonly payments: readonly Payment[] } | 'unlimited'

function isWindowed({ algorithm }: Outcome): boolean {
  return algorithm === 'fixed_window' || algorithm === 'sliding_window'
}

function enforced({ outcomes }: Decision): Outcome[] {
  return outcomes.filter(({ mode }) => mode === 'enforce')
}

/** Units that all limits have left. */
function availableIn(decision: Decision): number {
  const left = enforced(decision).map(({ remaining }) => remaining)
  return left.length === 0 ? 0 : Math.min(...left)
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, number) => total + number, 0)
}
