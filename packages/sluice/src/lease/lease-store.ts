// A store around a store: most checks are answered from units that were charged ahead, without asking anybody. A take
// is still all or nothing: what leases can pay is set aside, the store is asked for the rest in one go, and what was
// set aside goes back if it refuses. The bounds are in algorithms/lease-terms.ts.

import { type Clock, systemClock, systemTimers, type Timers } from '../clock.ts'
import type { BucketName, Charge, Give, Grant, Store, Take, Taken } from '../store/store.ts'
import type { Lease } from './lease.ts'
import { LeaseTable } from './lease-table.ts'

export type LeaseOptions = {
  /** Most leases held at once; above it some go back. */
  readonly leasesMax?: number
  /** Of this node: only spans of time are read off it. */
  readonly clock?: Clock
  readonly timers?: Timers
}

const LEASES_MAX = 200_000
const SWEEP_MS = 50
/** Nobody begins to wait for others after this: they may take a deadline of their own. */
const WAIT_MS = 4

export function leaseStore(store: Store, options: LeaseOptions = {}): Store {
  return new LeaseStore(store, options)
}

class LeaseStore implements Store {
  readonly #store: Store
  readonly #clock: Clock
  readonly #table: LeaseTable
  readonly #timers: Timers
  readonly #stopSweeping: () => void
  /** By how much the clock was ahead of the one that never steps. */
  #aheadMs = Number.NEGATIVE_INFINITY
  readonly #counts = { leased: 0, asked: 0, refused_by_lease: 0, returned: 0 }

  constructor(store: Store, { leasesMax = LEASES_MAX, clock = systemClock, timers = systemTimers }: LeaseOptions) {
    this.#store = store
    this.#clock = clock
    this.#table = new LeaseTable(leasesMax)
    this.#timers = timers
    this.#stopSweeping = timers.every(SWEEP_MS, () => this.#sweep())
  }

  takeSync({ charges, op }: Take): Taken | undefined {
    if (op !== undefined) return undefined
    const only = charges.length === 1 ? charges[0] : undefined
    if (only !== undefined) return this.#takeOne(only)
    const leases = charges.map((charge) => this.#table.find(charge))
    const nowUs = this.#clock.nowUs()
    const nowMs = nowUs / 1000
    if (charges.some((charge, index) => isRefused(leases[index], charge, nowMs))) {
      return this.#refusal(charges, leases, nowUs)
    }
    if (!charges.every((charge, index) => canPay(leases[index], charge, nowMs))) return undefined
    const grants = charges.map((charge, index) => this.#pay(leases[index] as Lease, charge, nowMs)) // one that can
    this.#counts.leased += 1
    return { granted: true, nowUs, grants, source: 'lease', replayed: false }
  }

  take(take: Take): Taken | Promise<Taken> {
    const known = this.takeSync(take)
    if (known !== undefined) return known
    const refill = this.#refillOf(take.charges)
    return refill === undefined ? this.#ask(take) : this.#wait(take, refill)
  }

  /**
   * Others are asking for the same: what they get may be enough. Whoever is not served waits for the next of them, for
   * a while, so that not all ask at once. One deadline is for waiting and asking together.
   */
  async #wait(take: Take, first: Promise<unknown>): Promise<Taken> {
    const askedMs = this.#timers.nowMs()
    let refill: Promise<unknown> | undefined = first
    while (refill !== undefined && this.#timers.nowMs() - askedMs < WAIT_MS) {
      await refill.catch(() => undefined) // whoever asked is told
      const known = this.takeSync(take)
      if (known !== undefined) return known
      refill = this.#refillOf(take.charges)
    }
    return this.#ask({ ...take, askedMs })
  }

  async peek(charges: readonly Charge[]): Promise<Taken> {
    const nowMs = this.#nowMs()
    const taken = await this.#store.peek(charges.map(chargedAs))
    const grants = taken.grants.map((grant, index) => {
      const held = this.#table.find(charges[index] as Charge)?.held(nowMs) ?? 0 // a grant per charge
      return { ...grant, remaining: grant.remaining + held }
    })
    return { ...taken, grants }
  }

  async give(gives: readonly Give[], opId?: string): Promise<void> {
    const nowMs = this.#nowMs()
    const others = gives.filter((give) => {
      return !(give.leased && this.#table.find(give)?.unspend(give.units, give.bookedUs, nowMs))
    })
    for (const give of others) this.#table.find(give)?.pardon()
    if (others.length > 0) await this.#store.give(others.map(chargedAs), opId)
  }

  async reset(bucket: BucketName): Promise<void> {
    this.#table.delete(bucket)
    await this.#store.reset(chargedAs(bucket))
  }

  stats(): Readonly<Record<string, number>> {
    return { ...this.#store.stats?.(), ...this.#counts, leases: this.#table.count, leases_dropped: this.#table.dropped }
  }

  async close(): Promise<void> {
    this.#stopSweeping()
    await Promise.allSettled(this.#table.refills()) // what is on its way would be lost
    const gives = this.#table.clear(this.#nowMs())
    if (gives.length > 0) await Promise.resolve(this.#store.give(gives)).catch(() => {}) // lost units err low
    await this.#store.close()
  }

  /** The clock of a check is the cheap one, which may be set back; then leases would live too long, so all end. */
  #sweep(): void {
    const nowMs = this.#nowMs()
    const aheadMs = nowMs - this.#timers.nowMs()
    const setBack = aheadMs < this.#aheadMs - SWEEP_MS
    this.#aheadMs = setBack ? aheadMs : Math.max(aheadMs, this.#aheadMs)
    this.#giveBack(setBack ? this.#table.clear(nowMs) : this.#table.sweep(nowMs))
  }

  /** The hot path: one charge, of one lease. */
  #takeOne(charge: Charge): Taken | undefined {
    const lease = this.#table.find(charge)
    if (lease === undefined) return undefined
    const nowUs = this.#clock.nowUs()
    const nowMs = nowUs / 1000
    if (isRefused(lease, charge, nowMs)) {
      this.#counts.refused_by_lease += 1
      return soleTaken(false, nowUs, lease.grant(0, 'now', 0, nowMs))
    }
    if (!canPay(lease, charge, nowMs)) return undefined
    this.#counts.leased += 1
    return soleTaken(true, nowUs, this.#pay(lease, charge, nowMs))
  }

  #nowMs(): number {
    return this.#clock.nowUs() / 1000
  }

  /** The answer when this node knows that one of the charges would be refused. */
  #refusal(charges: readonly Charge[], leases: readonly (Lease | undefined)[], nowUs: number): Taken {
    this.#counts.refused_by_lease += 1
    const nowMs = nowUs / 1000
    const grants = charges.map((charge, index): Grant => {
      const lease = leases[index]
      return lease?.grant(0, lease.isRefused(charge.min, nowMs) ? 'now' : false, 0, nowMs) ?? UNKNOWN
    })
    return { granted: false, nowUs, grants, source: 'lease', replayed: false }
  }

  #pay(lease: Lease, { min }: Charge, nowMs: number): Grant {
    if (lease.held(nowMs) < min) return lease.grant(0, 'now', 0, nowMs) // refused in shadow, which holds nobody up
    const bookedUs = lease.spend(min, nowMs)
    if (lease.isLow(nowMs)) this.#refill(lease, nowMs)
    return lease.grant(min, false, bookedUs, nowMs)
  }

  #refillOf(charges: readonly Charge[]): Promise<unknown> | undefined {
    for (const charge of charges) {
      const refilling = this.#table.find(charge)?.refilling
      if (refilling !== undefined) return refilling
    }
    return undefined
  }

  /** Ahead of need; nobody waits for it unless the lease runs out. */
  #refill(lease: Lease, nowMs: number): void {
    const max = lease.nextBatch(nowMs)
    if (max < 1) return
    this.#giveBack(lease.settle(nowMs, 'asking'))
    const charge: Charge = { ...lease.bucket, min: 1, max, kind: 'hold' }
    lease.refilling = this.#fetch({ charges: [charge] }, [lease], [0], nowMs)
      .catch(() => undefined)
      .finally(() => {
        lease.refilling = undefined
      })
  }

  #ask(take: Take): Promise<Taken> {
    this.#counts.asked += 1
    const only = take.charges.length === 1 ? take.charges[0] : undefined
    const leased = only !== undefined && only.limit.lease !== undefined && only.kind !== 'force'
    return leased ? this.#askForOne(only, take.askedMs) : this.#askForMany(take)
  }

  /** One charge that its lease cannot pay. */
  async #askForOne(charge: Charge, askedMs: number | undefined): Promise<Taken> {
    const nowMs = this.#nowMs()
    const gives: Give[] = []
    const lease = this.#table.findOrAdd(charge, nowMs, gives)
    gives.push(...lease.settle(nowMs, 'asking'))
    this.#giveBack(gives)
    const { min, max, kind } = charge
    const ask = { ...lease.bucket, min, max: max + lease.nextBatch(nowMs), kind }
    const fetched = this.#fetch({ charges: [ask], askedMs }, [lease], [min], nowMs)
    lease.refilling = fetched
    try {
      return this.#combined([charge], [undefined], await fetched)
    } finally {
      if (lease.refilling === fetched) lease.refilling = undefined
    }
  }

  /** Sets aside what leases can pay and asks the store for the rest. */
  async #askForMany({ charges, op, askedMs }: Take): Promise<Taken> {
    const nowMs = this.#nowMs()
    const dropped: Give[] = []
    const paid = charges.map((charge) => {
      const lease = this.#table.find(charge)
      return lease !== undefined && canPay(lease, charge, nowMs) ? this.#pay(lease, charge, nowMs) : undefined
    })
    const open = charges.filter((_, index) => paid[index] === undefined)
    const leases = open.map((charge) => {
      const leased = charge.limit.lease !== undefined && charge.kind !== 'force'
      // A strict bucket is known here if it has refused: then one asks, and the others wait for what it hears.
      return leased ? this.#table.findOrAdd(charge, nowMs, dropped) : this.#table.find(charge)
    })
    for (const lease of leases) if (lease !== undefined) dropped.push(...lease.settle(nowMs, 'asking'))
    this.#giveBack(dropped)
    const asks = open.map((charge, index): Charge => {
      const extra = leases[index]?.nextBatch(nowMs) ?? 0
      return { ...chargedAs(charge), max: charge.max + extra }
    })
    const needed = open.map(({ min }) => min)
    const fetched = this.#fetch({ charges: asks, op, askedMs }, leases, needed, nowMs)
    const settled = fetched.catch(() => undefined)
    for (const lease of leases) if (lease !== undefined) lease.refilling = settled
    try {
      const taken = await fetched
      return this.#combined(charges, paid, taken)
    } catch (error) {
      this.#unpay(charges, paid)
      throw error
    } finally {
      for (const lease of leases) if (lease?.refilling === settled) lease.refilling = undefined
    }
  }

  /** Asks the store, and keeps what came beyond what was needed. */
  async #fetch(
    take: Take,
    leases: readonly (Lease | undefined)[],
    needed: readonly number[],
    sentMs: number,
  ): Promise<Taken> {
    const taken = await this.#store.take(take)
    if (taken.source !== 'store') return taken
    const nowMs = this.#nowMs()
    const late: Give[] = []
    take.charges.forEach((ask, index) => {
      const lease = leases[index]
      const grant = taken.grants[index] as Grant // one per charge
      if (grant.short === 'now' && ask.limit.algorithm !== 'concurrency' && ask.kind !== 'force') {
        const refused = lease ?? this.#table.findOrAdd(ask, sentMs, late)
        refused.refuse(needed[index] || 1, grant, sentMs)
      } else if (lease !== undefined && taken.granted && grant.units > 0) {
        const extra = grant.units - (needed[index] ?? 0)
        if (!lease.fill(extra, grant, taken.nowUs, sentMs, nowMs)) {
          late.push({ ...lease.bucket, units: extra, bookedUs: taken.nowUs, settled: extra })
        }
      }
    })
    this.#giveBack(late)
    return taken
  }

  #combined(charges: readonly Charge[], paid: readonly (Grant | undefined)[], taken: Taken): Taken {
    if (!taken.granted) this.#unpay(charges, paid)
    let next = 0
    const grants = charges.map((charge, index): Grant => {
      const own = paid[index]
      if (own !== undefined) return taken.granted ? own : { ...own, units: 0 }
      const grant = taken.grants[next] as Grant // one per open charge
      next += 1
      // Units beyond those needed are held for later, and left all the same.
      return grant.units > charge.max
        ? { ...grant, units: charge.min, remaining: grant.remaining + grant.units - charge.min }
        : grant
    })
    return { ...taken, grants }
  }

  /** What was set aside goes back where it came from. */
  #unpay(charges: readonly Charge[], paid: readonly (Grant | undefined)[]): void {
    const nowMs = this.#nowMs()
    const gives: Give[] = []
    paid.forEach((grant, index) => {
      const charge = charges[index] as Charge // one per charge
      if (grant === undefined || grant.units === 0) return
      const give = { ...chargedAs(charge), units: grant.units, bookedUs: grant.bookedUs ?? 0 }
      if (!this.#table.find(charge)?.unspend(grant.units, give.bookedUs, nowMs)) gives.push(give)
    })
    this.#giveBack(gives)
  }

  /** At most once, like every give: units that are lost on the way err low. */
  #giveBack(gives: readonly Give[]): void {
    if (gives.length === 0) return
    this.#counts.returned += gives.length
    void Promise.resolve(this.#store.give(gives)).catch(() => {})
  }
}

/** Said of a bucket that this node knows nothing of, when another one has refused the request. */
const UNKNOWN: Grant = { units: 0, short: false, remaining: 0, resetAfterUs: 0, retryAfterUs: 0, delayUs: 0 }

function isRefused(lease: Lease | undefined, { kind, min }: Charge, nowMs: number): boolean {
  return kind === 'enforce' && lease !== undefined && lease.isRefused(min, nowMs)
}

/** A limit in shadow that is known to be spent needs nothing: it refuses nobody. */
function canPay(lease: Lease | undefined, { limit, kind, min }: Charge, nowMs: number): boolean {
  if (lease === undefined || limit.lease === undefined || kind === 'force') return false
  return lease.held(nowMs) >= min || (kind === 'shadow' && lease.isRefused(min, nowMs))
}

/** A bucket as the store knows it. */
function chargedAs<B extends BucketName>(bucket: B): B {
  const { lease } = bucket.limit
  return lease === undefined ? bucket : { ...bucket, limit: lease.charged }
}

function soleTaken(granted: boolean, nowUs: number, grant: Grant): Taken {
  return { granted, nowUs, grants: [grant], source: 'lease', replayed: false }
}
