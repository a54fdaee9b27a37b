// Wraps a store so that most checks are served from units taken ahead, without a round trip. A take stays all or
// nothing: units that leases can pay are set aside, and put back if the store refuses the rest. The bounds are in
// algorithms/lease-terms.ts.

import { type Clock, systemTimers, type Timers, wallClock } from '../clock.ts'
import { andThen, type MaybePromise, toPromise } from '../maybe-promise.ts'
import type { SomeStats } from '../store/stats.ts'
import {
  type BucketName,
  type Charge,
  decidedAt,
  type Give,
  type GiveReply,
  type Grant,
  type IdempotencyKey,
  NOT_CHARGED,
  type SpentTime,
  type Store,
  type Take,
  type Taken,
} from '../store/store.ts'
import { type LeaseCounts, NO_COUNTS } from './lease-counts.ts'
import { giveInMessages, giveWithLeases } from './lease-gives.ts'
import {
  canPay,
  combinedGrants,
  isLeasable,
  isRefused,
  leaseGrant,
  pay,
  type Query,
  shadowRefusal,
  unitsNeeded,
} from './lease-grants.ts'
import type { LeaseRows } from './lease-rows.ts'
import { LeaseTable } from './lease-table.ts'
import { refusedTaken, spentTaken } from './lease-taken.ts'
import { isUnleased, storeLimit, withStoreLimit } from './store-limit.ts'

export type LeaseOptions = {
  /** Most leases held; beyond it, leases are dropped and their units go back. */
  readonly leasesMax?: number
  /** The node's clock. Only differences of it are used. */
  readonly clock?: Clock
  readonly timers?: Timers
}

const LEASES_MAX = 1_000_000 // about 300 bytes each
const SWEEP_MS = 50
/** Longest time a take waits for queries of others before it sends its own: its deadline includes the wait. */
const WAIT_MS = 4
/** Placeholder until a query is sent. A lease with a pending query is not dropped to make room for another one. */
const ABOUT_TO_QUERY: Promise<unknown> = Promise.resolve()
const NOTHING_PAID: readonly undefined[] = []

type PendingQuery = { readonly sentMs: number; readonly spent: SpentTime; readonly spentBeforeMs: number }

export type LeasingStore = Store & {
  takeSync(take: Take): Taken | undefined
  /** Requests units of a bucket before they are needed. The first call only notes the bucket. */
  prefetch(bucket: BucketName): void
}

export function leaseStore(store: Store, options: LeaseOptions = {}): LeasingStore {
  return new LeaseStore(store, options)
}

class LeaseStore implements LeasingStore {
  readonly #store: Store
  readonly #clock: Clock
  readonly #table: LeaseTable
  readonly #rows: LeaseRows
  readonly #timers: Timers
  readonly #stopSweeping: () => void
  /** Clock minus monotonic clock. */
  #aheadMs: number
  readonly #counts: LeaseCounts = { ...NO_COUNTS }
  /** Takes that wait for a query need to know how much of the wait was the store's time. */
  readonly #queries = new WeakMap<Promise<unknown>, PendingQuery>()

  constructor(store: Store, { leasesMax = LEASES_MAX, clock = wallClock, timers = systemTimers }: LeaseOptions) {
    this.#store = store
    this.#clock = clock
    this.#table = new LeaseTable(leasesMax)
    this.#rows = this.#table.rows
    this.#timers = timers
    this.#aheadMs = this.#nowMs() - timers.nowMs()
    this.#stopSweeping = timers.every(SWEEP_MS, () => this.#sweep())
  }

  takeSync({ charges, op, resets }: Take): Taken | undefined {
    if (op !== undefined || resets !== undefined) return undefined
    return charges.length === 1 ? this.#takeOne(charges[0] as Charge) : this.#takeMany(charges)
  }

  take(take: Take): Taken | Promise<Taken> {
    return this.takeSync(take) ?? this.#takeFromStore(take)
  }

  prefetch(bucket: BucketName): void {
    const nowMs = this.#nowMs()
    const row = this.#table.find(bucket)
    const gives: Give[] = []
    if (row >= 0) this.#refill([bucket], [row], nowMs, true)
    else this.#rows.note(this.#table.findOrAdd(bucket, nowMs, gives), nowMs)
    if (gives.length > 0) void this.#giveBack(gives)
  }

  async peek(charges: readonly Charge[], mayBeStale?: boolean, expiresMs?: number): Promise<Taken> {
    const nowMs = this.#nowMs()
    const taken = await this.#store.peek(charges.map(withStoreLimit), mayBeStale, expiresMs)
    const grants = taken.grants.map((grant, index) => {
      const row = this.#table.find(charges[index] as Charge) // one grant per charge
      return row < 0 ? grant : { ...grant, remaining: grant.remaining + this.#rows.held(row, nowMs) }
    })
    return { ...taken, grants }
  }

  async give(gives: readonly Give[], opId?: string, idempotencyKey?: IdempotencyKey): Promise<GiveReply> {
    try {
      return await giveWithLeases(this.#table, this.#store, () => this.#nowMs(), gives, opId, idempotencyKey)
    } finally {
      this.#endRefusals(gives)
    }
  }

  async reset(bucket: BucketName): Promise<void> {
    this.#table.delete(bucket)
    try {
      await this.#store.reset(withStoreLimit(bucket))
    } finally {
      this.#endRefusals([bucket])
    }
  }

  stats(): SomeStats {
    const { count: leases, dropped: leases_dropped } = this.#table
    const { expiredUnits: lease_units_expired } = this.#rows
    return { ...this.#store.stats?.(), ...this.#counts, leases, leases_dropped, lease_units_expired }
  }

  async close(): Promise<void> {
    this.#stopSweeping()
    await Promise.allSettled(this.#rows.allPending()) // their units would be stranded
    await this.#giveBack(this.#table.clear(this.#nowMs()))
    await this.#store.close()
  }

  /** Checks read the wall clock, which is cheap but may step back. Leases would then live too long, so all end. */
  #sweep(): void {
    const nowMs = this.#nowMs()
    const aheadMs = nowMs - this.#timers.nowMs()
    const setBack = aheadMs < this.#aheadMs - SWEEP_MS
    if (aheadMs > this.#aheadMs + SWEEP_MS) this.#rows.clockStepped(aheadMs - this.#aheadMs)
    this.#aheadMs = setBack ? aheadMs : Math.max(aheadMs, this.#aheadMs)
    void this.#giveBack(setBack ? this.#table.clear(nowMs) : this.#table.sweep(nowMs))
    if (setBack) this.#endRefusals([])
  }

  /** Ends the refusals of buckets that got units back. A reply to a query that was sent before is not cached. */
  #endRefusals(buckets: readonly BucketName[]): void {
    const nowMs = this.#nowMs()
    this.#rows.endRefusal(-1, nowMs)
    for (const bucket of buckets) this.#rows.endRefusal(this.#table.find(bucket), nowMs)
  }

  #nowMs(): number {
    return this.#clock.nowUs() / 1000
  }

  /** The hot path: one charge, paid by one lease. */
  #takeOne(charge: Charge): Taken | undefined {
    const row = this.#table.find(charge)
    if (row < 0) return this.#storeTakeSync([charge])
    const rows = this.#rows
    const nowUs = this.#clock.nowUs()
    const nowMs = nowUs / 1000
    const { min } = charge
    if (rows.canSpend(row, min, nowMs) && isLeasable(charge)) {
      this.#counts.leased += 1
      const taken = spentTaken(rows, row, min, rows.spend(row, min, nowMs), nowUs)
      if (rows.isLow(row, nowMs, min)) this.#refill([charge], [row], nowMs)
      return taken
    }
    if (isRefused(rows, row, charge, nowMs)) {
      this.#counts.refused_by_lease += 1
      const taken = refusedTaken(rows, row, nowUs)
      if (rows.isRefusalEnding(row, nowMs)) this.#refill([charge], [row], nowMs)
      return taken
    }
    if (!canPay(rows, row, charge, nowMs)) return this.#storeTakeSync([charge])
    this.#counts.leased += 1 // a shadow charge that is refused pays nothing
    return { granted: true, nowUs, grants: [shadowRefusal(rows, row, nowMs)], source: 'lease', replayed: false }
  }

  #takeMany(charges: readonly Charge[]): Taken | undefined {
    const rows = charges.map((charge) => this.#table.find(charge))
    const nowUs = this.#clock.nowUs()
    const nowMs = nowUs / 1000
    let payable = 0
    for (const [index, row] of rows.entries()) {
      if (row < 0) continue
      const charge = charges[index] as Charge // one row per charge
      if (isRefused(this.#rows, row, charge, nowMs)) return this.#refusal(charges, rows, nowUs)
      if (canPay(this.#rows, row, charge, nowMs)) payable += 1
    }
    if (payable === 0) return this.#storeTakeSync(charges)
    if (payable < charges.length) return undefined
    const grants = charges.map((charge, index) => pay(this.#rows, rows[index] as number, charge, nowMs))
    this.#refill(charges, rows, nowMs)
    this.#counts.leased += 1
    return { granted: true, nowUs, grants, source: 'lease', replayed: false }
  }

  /** The wrapped store may decide without a round trip: a guard whose circuit breaker is open does. */
  #storeTakeSync(charges: readonly Charge[]): Taken | undefined {
    return this.#store.takeSync?.({ charges: charges.map(withStoreLimit) })
  }

  /** Refuses a take without a round trip: by the last reply of the store, one of its charges is still short. */
  #refusal(charges: readonly Charge[], rows: readonly number[], nowUs: number): Taken {
    this.#counts.refused_by_lease += 1
    const nowMs = nowUs / 1000
    const grants = charges.map(({ min }, index): Grant => {
      const row = rows[index] as number // one per charge
      if (row < 0) return NOT_CHARGED
      return leaseGrant(this.#rows, row, 0, this.#rows.isRefused(row, min, nowMs) ? 'now' : false, 0, nowMs)
    })
    this.#refill(charges, rows, nowMs)
    return { granted: false, nowUs, grants, source: 'lease', replayed: false }
  }

  // Separate method: the fast path allocates no closures.
  #takeFromStore(take: Take): Taken | Promise<Taken> {
    const { charges, resets } = take
    if (resets !== undefined) {
      return andThen(this.#store.take(this.#table.dropResets(take)), (taken) => {
        this.#endRefusals(resets)
        return taken
      })
    }
    if (charges.every((charge) => isUnleased(charge) && this.#table.find(charge) < 0)) return this.#queryUnleased(take)
    const pending = this.#pendingQuery(charges)
    return pending === undefined ? this.#query(take) : this.#wait(take, pending)
  }

  #pendingQuery(charges: readonly Charge[]): Promise<unknown> | undefined {
    const rows = charges.map((charge) => this.#table.find(charge))
    return this.#rows.pending(rows.find((row) => this.#rows.pending(row) !== undefined) ?? -1)
  }

  /**
   * Waits for a pending query for the same bucket, whose units may be enough. A take that gets none waits for the next
   * one, up to WAIT_MS, so that waiting takes do not all query at once. One deadline covers the store's time for both,
   * so a take does not wait for a query that may outlast its own deadline by more than WAIT_MS.
   */
  async #wait(take: Take, first: Promise<unknown>): Promise<Taken> {
    const startedMs = this.#timers.nowMs()
    const spent = take.spent ?? { ms: 0 }
    let pending: Promise<unknown> | undefined = first
    while (pending !== undefined && this.#timers.nowMs() - startedMs < WAIT_MS) {
      const query = this.#queries.get(pending)
      const beforeMs = query === undefined ? 0 : this.#timers.nowMs() - query.sentMs
      if (query !== undefined && spent.ms > query.spentBeforeMs + beforeMs + WAIT_MS) break
      await pending.catch(() => undefined) // the take that sent the query gets the error
      if (query !== undefined) spent.ms += Math.max(0, query.spent.ms - query.spentBeforeMs - beforeMs)
      const taken = this.takeSync(take)
      if (taken !== undefined) return taken
      pending = this.#pendingQuery(take.charges)
    }
    return this.#query({ ...take, spent })
  }

  /** Refills leases that are low or whose refusal is about to end; with `always`, all of them. Errors are ignored. */
  #refill(buckets: readonly (BucketName | Charge)[], rows: readonly number[], nowMs: number, always = false): void {
    const gives: Give[] = []
    const queries: Query[] = []
    for (let index = 0; index < buckets.length; index += 1) {
      const bucket = buckets[index] as BucketName & Partial<Charge> // the index is in range
      const row = rows[index] as number
      if (row < 0 || this.#rows.pending(row) !== undefined) continue
      if (!always && !this.#rows.isLow(row, nowMs, bucket.min) && !this.#rows.isRefusalEnding(row, nowMs)) continue
      this.#rows.settle(row, nowMs, 'refill', gives, bucket.min) // spent and expired batches make room
      const max = this.#rows.nextBatch(row, nowMs)
      if (max < 1) {
        if (always) this.#rows.note(row, nowMs)
        continue
      }
      const { limit, owner, detail } = bucket
      const storeCharge: Charge = { limit: storeLimit(limit), owner, detail, min: 1, max, kind: 'hold' }
      queries.push({ bucket, storeCharge, row })
    }
    if (queries.length > 0) {
      this.#counts.lease_refills += queries.length
      this.#send({ gives }, queries, nowMs, [], NOTHING_PAID).catch(() => {})
    } else if (gives.length > 0) void this.#giveBack(gives)
  }

  /** Queries the store for buckets without a row: there is no lease to fill. */
  #queryUnleased(take: Take): MaybePromise<Taken> {
    this.#counts.store_queries += 1
    const sentMs = this.#nowMs()
    return andThen(this.#store.take(take), (taken) => {
      const queries = () => take.charges.map((charge) => ({ bucket: charge, storeCharge: charge, row: -1 }))
      if (!taken.granted) this.#keep(taken, queries(), ABOUT_TO_QUERY, sentMs)
      else if (taken.source === 'store') this.#counts.units_charged += unitsNeeded(take.charges)
      return taken
    })
  }

  /** Sets aside what leases can pay and queries the store for the rest. */
  #query({ charges, op, spent, expiresMs }: Take): Promise<Taken> {
    this.#counts.store_queries += 1
    const nowMs = this.#nowMs()
    const paid = charges.length === 1 ? NOTHING_PAID : this.#setAside(charges, nowMs)
    const gives: Give[] = []
    const queries: Query[] = []
    let isMiss = false
    for (const [index, charge] of charges.entries()) {
      if (paid[index] !== undefined) continue
      const leasable = isLeasable(charge)
      isMiss ||= leasable
      // A limit too small to lease has a row if it has refused: one take queries, and the others wait for its reply.
      const known = leasable ? this.#table.findOrAdd(charge, nowMs, gives) : this.#table.find(charge)
      // Only one pending batch per bucket: several together could drain it.
      const row = this.#rows.pending(known) === undefined ? known : -1
      let extra = 0
      if (row >= 0) {
        this.#rows.setPending(row, ABOUT_TO_QUERY)
        this.#rows.settle(row, nowMs, 'query', gives, charge.min)
        extra = this.#rows.nextBatch(row, nowMs, charge.min)
      }
      const { limit, owner, detail, min, max, kind } = charge
      const storeCharge = leasable ? { limit: storeLimit(limit), owner, detail, min, max: max + extra, kind } : charge
      queries.push({ bucket: charge, storeCharge, row })
    }
    if (isMiss) this.#counts.lease_misses += 1
    return this.#send({ op, gives, spent, expiresMs }, queries, nowMs, charges, paid)
  }

  #setAside(charges: readonly Charge[], nowMs: number): readonly (Grant | undefined)[] {
    const payers: number[] = []
    const paid = charges.map((charge) => {
      const row = this.#table.find(charge)
      const pays = row >= 0 && canPay(this.#rows, row, charge, nowMs)
      payers.push(pays ? row : -1)
      return pays ? pay(this.#rows, row, charge, nowMs) : undefined
    })
    this.#refill(charges, payers, nowMs) // the other leases are filled by the query
    return paid
  }

  /** Queries the store, fills the leases, and combines the reply with the grants of the charges already paid. */
  #send(
    { op, gives, spent = { ms: 0 }, expiresMs }: Omit<Take, 'charges'>,
    queries: readonly Query[],
    sentMs: number,
    charges: readonly Charge[],
    paid: readonly (Grant | undefined)[],
  ): Promise<Taken> {
    const storeCharges = queries.map(({ storeCharge }) => storeCharge)
    const spentBeforeMs = spent.ms
    const reply = toPromise(() => this.#store.take({ charges: storeCharges, op, gives, spent, expiresMs })).then(
      (taken) => {
        this.#keep(taken, queries, reply, sentMs)
        return this.#combine(charges, paid, taken)
      },
      (error) => {
        for (const { row } of queries) this.#rows.replied(row, reply)
        this.#putBack(charges, paid)
        throw error
      },
    )
    this.#queries.set(reply, { sentMs: this.#timers.nowMs(), spent, spentBeforeMs })
    for (const { row } of queries) if (row >= 0) this.#rows.setPending(row, reply)
    return reply
  }

  /** Fills leases with the units beyond those needed, and records refusals. */
  #keep(taken: Taken, queries: readonly Query[], reply: Promise<unknown>, sentMs: number): void {
    const nowMs = this.#nowMs()
    const gives: Give[] = []
    queries.forEach(({ bucket, storeCharge, row }, index) => {
      const removed = row >= 0 && !this.#rows.replied(row, reply)
      const { limit, owner, detail, kind, min } = storeCharge
      const grant = taken.grants[index] as Grant // one per charge
      const { source, nowUs: bookedUs } = decidedAt(taken, grant)
      if (source !== 'store') return
      if (grant.short === 'now' && bucket.limit.cachesRefusals && kind !== 'force') {
        const refused = row >= 0 ? row : this.#table.findOrAdd(bucket, nowMs, gives)
        if (!removed) this.#rows.refuse(refused, min, grant, sentMs, nowMs)
        return
      }
      if (taken.granted) this.#counts.units_charged += kind === 'counterfactual' ? 0 : grant.units
      if (row < 0 || !taken.granted || grant.units === 0) return
      const extra = grant.units - (kind === 'hold' ? 0 : min)
      if (!removed && this.#rows.fill(row, extra, grant, bookedUs, sentMs, nowMs)) return
      if (extra > 0) gives.push({ limit, owner, detail, units: extra, bookedUs, settled: extra })
    })
    if (gives.length > 0) void this.#giveBack(gives)
  }

  #combine(charges: readonly Charge[], paid: readonly (Grant | undefined)[], taken: Taken): Taken {
    const [only] = charges
    if (only !== undefined && charges.length === 1 && (taken.grants[0]?.units ?? 0) <= only.max) {
      const row = taken.granted ? -1 : this.#table.find(only)
      // Refused, but the lease may hold units by now: an earlier query may have brought more than its request needed.
      return row >= 0 && canPay(this.#rows, row, only, this.#nowMs()) ? (this.#takeOne(only) ?? taken) : taken
    }
    if (!taken.granted) this.#putBack(charges, paid)
    return { ...taken, grants: combinedGrants(charges, paid, taken) }
  }

  /** Puts units that were set aside back into their lease, or into the store if the lease has ended. */
  #putBack(charges: readonly Charge[], paid: readonly (Grant | undefined)[]): void {
    const gives: Give[] = []
    paid.forEach((grant, index) => {
      if (grant === undefined || grant.units === 0) return
      const charge = charges[index] as Charge // one per charge
      const { limit, owner, detail } = charge
      const give = { limit: storeLimit(limit), owner, detail, units: grant.units, bookedUs: grant.bookedUs ?? 0 }
      const row = this.#table.find(charge)
      if (row < 0 || !this.#rows.unspend(row, grant.units, give.bookedUs, this.#nowMs())) gives.push(give)
    })
    if (gives.length > 0) void this.#giveBack(gives)
  }

  async #giveBack(gives: readonly Give[]): Promise<void> {
    this.#counts.returned += gives.length
    await giveInMessages(this.#store, gives)
  }
}
