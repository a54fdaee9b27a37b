// A store around a store: most checks are answered from units that were charged ahead, without asking anybody. A take
// is still all or nothing: what leases can pay is set aside, the store is asked for the rest in one go, and what was
// set aside goes back if it refuses. The bounds are in algorithms/lease-terms.ts.

import { SoleTaken } from '../algorithms/grant.ts'
import { type Clock, systemTimers, type Timers, wallClock } from '../clock.ts'
import { andThen, type Maybe, promised } from '../maybe.ts'
import { giveQuietly } from '../store/give-quietly.ts'
import {
  type BucketName,
  type Charge,
  decidedAt,
  type Give,
  type Grant,
  NOT_ASKED,
  type Returned,
  type Store,
  type Take,
  type Taken,
} from '../store/store.ts'
import { asCharged, chargedLimit, isStrict } from './lease.ts'
import { giveWithLeases } from './lease-gives.ts'
import { LeaseTable } from './lease-table.ts'
import { type Asked, canPay, grantOf, isLeasable, isRefused, spentInShadow, withoutHeld } from './leased-answers.ts'

export type LeaseOptions = {
  /** Most leases held at once; above it some go back. */
  readonly leasesMax?: number
  /** Of this node: only spans of time are read off it. */
  readonly clock?: Clock
  readonly timers?: Timers
}

/** About 300 bytes each. */
const LEASES_MAX = 1_000_000
const SWEEP_MS = 50
/** Nobody begins to wait for others after this: they may take a deadline of their own. */
const WAIT_MS = 4
/** Given back in one message: a script must not hold up the others for long. */
const GIVES_MAX = 50
/** Until there is an answer to wait for: a lease that is to be filled must not make room for another one. */
const ABOUT_TO_ASK: Promise<unknown> = Promise.resolve()
const NOTHING_PAID: readonly undefined[] = []

export type LeasingStore = Store & {
  takeSync(take: Take): Taken | undefined
  /** Asks for units before anybody needs them, of a bucket that comes back: the first time it is only noted. */
  ahead(bucket: BucketName): void
}

export function leaseStore(store: Store, options: LeaseOptions = {}): LeasingStore {
  return new LeaseStore(store, options)
}

class LeaseStore implements LeasingStore {
  readonly #store: Store
  readonly #clock: Clock
  readonly #table: LeaseTable
  readonly #timers: Timers
  readonly #stopSweeping: () => void
  /** By how much the clock was ahead of the one that never steps. */
  #aheadMs: number
  readonly #counts = { leased: 0, asked: 0, refused_by_lease: 0, returned: 0 }

  constructor(store: Store, { leasesMax = LEASES_MAX, clock = wallClock, timers = systemTimers }: LeaseOptions) {
    this.#store = store
    this.#clock = clock
    this.#table = new LeaseTable(leasesMax)
    this.#timers = timers
    this.#aheadMs = this.#nowMs() - timers.nowMs()
    this.#stopSweeping = timers.every(SWEEP_MS, () => this.#sweep())
  }

  takeSync({ charges, op, resets }: Take): Taken | undefined {
    if (op !== undefined || resets !== undefined) return undefined
    return charges.length === 1 ? this.#takeOne(charges[0] as Charge) : this.#takeMany(charges)
  }

  take(take: Take): Taken | Promise<Taken> {
    return this.takeSync(take) ?? this.#takeLater(take) // whose closures would cost a take that needs none of them
  }

  #takeLater(take: Take): Taken | Promise<Taken> {
    if (take.resets !== undefined) return this.#store.take(this.#table.forgetting(take))
    const rows = take.charges.map((charge) => this.#table.rowOf(charge))
    if (rows.every((row) => row < 0) && take.charges.every(isStrict)) return this.#askPlainly(take)
    const answer = this.#answerToOthers(rows)
    return answer === undefined ? this.#ask(take) : this.#wait(take, answer)
  }

  ahead(bucket: BucketName): void {
    const nowMs = this.#nowMs()
    const row = this.#table.rowOf(bucket)
    const gives: Give[] = []
    if (row >= 0) this.#refill([bucket], [row], nowMs, true)
    else this.#table.at(this.#table.rowFor(bucket, nowMs, gives)).note(nowMs)
    if (gives.length > 0) void this.#giveBack(gives)
  }

  async peek(charges: readonly Charge[], mayBeStale?: boolean): Promise<Taken> {
    const nowMs = this.#nowMs()
    const taken = await this.#store.peek(charges.map(asCharged), mayBeStale)
    const grants = taken.grants.map((grant, index) => {
      const held = this.#table.find(charges[index] as Charge)?.held(nowMs) ?? 0 // a grant per charge
      return { ...grant, remaining: grant.remaining + held }
    })
    return { ...taken, grants }
  }

  give(...given: Parameters<Store['give']>): Promise<Returned> {
    return giveWithLeases(this.#table, this.#store, () => this.#nowMs(), ...given)
  }

  async reset(bucket: BucketName): Promise<void> {
    this.#table.delete(bucket)
    await this.#store.reset(asCharged(bucket))
  }

  stats(): Readonly<Record<string, number>> {
    return { ...this.#store.stats?.(), ...this.#counts, leases: this.#table.count, leases_dropped: this.#table.dropped }
  }

  async close(): Promise<void> {
    this.#stopSweeping()
    await Promise.allSettled(this.#table.asking()) // what is on its way would be lost
    await this.#giveBack(this.#table.clear(this.#nowMs()))
    await this.#store.close()
  }

  /** The clock of a check is the cheap one, which may be set back; then leases would live too long, so all end. */
  #sweep(): void {
    const nowMs = this.#nowMs()
    const aheadMs = nowMs - this.#timers.nowMs()
    const setBack = aheadMs < this.#aheadMs - SWEEP_MS
    if (aheadMs > this.#aheadMs + SWEEP_MS) this.#table.stepped(aheadMs - this.#aheadMs)
    this.#aheadMs = setBack ? aheadMs : Math.max(aheadMs, this.#aheadMs)
    void this.#giveBack(setBack ? this.#table.clear(nowMs) : this.#table.sweep(nowMs))
  }

  #nowMs(): number {
    return this.#clock.nowUs() / 1000
  }

  /** The hot path: one charge, of one lease. */
  #takeOne(charge: Charge): Taken | undefined {
    const row = this.#table.rowOf(charge)
    if (row < 0) return this.#storeAtOnce([charge])
    const lease = this.#table.at(row)
    const nowUs = this.#clock.nowUs()
    const nowMs = nowUs / 1000
    const { min } = charge
    if (lease.canSpend(min, nowMs) && isLeasable(charge)) {
      this.#counts.leased += 1
      const bookedUs = lease.spend(min, nowMs)
      const remaining = lease.remaining(nowMs)
      const resetAfterUs = lease.resetAfterUs(nowMs)
      const spentUs = lease.spentUs(bookedUs, nowMs)
      if (lease.isLow(nowMs, min)) this.#refill([charge], [row], nowMs)
      return new SoleTaken(true, nowUs, min, false, remaining, resetAfterUs, 0, 0, 'lease', bookedUs, spentUs)
    }
    if (isRefused(lease, charge, nowMs)) {
      this.#counts.refused_by_lease += 1
      const retryAfterUs = lease.retryAfterUs(nowMs)
      const resetAfterUs = lease.resetAfterUs(nowMs)
      if (lease.isRefusalEnding(charge, nowMs)) this.#refill([charge], [row], nowMs)
      return new SoleTaken(false, nowUs, 0, 'now', 0, resetAfterUs, retryAfterUs, 0, 'lease', 0)
    }
    if (!canPay(lease, charge, nowMs)) return this.#storeAtOnce([charge])
    this.#counts.leased += 1 // in shadow: it pays nothing
    return { granted: true, nowUs, grants: [spentInShadow(lease, nowMs)], source: 'lease', replayed: false }
  }

  #takeMany(charges: readonly Charge[]): Taken | undefined {
    const rows = charges.map((charge) => this.#table.rowOf(charge))
    const nowUs = this.#clock.nowUs()
    const nowMs = nowUs / 1000
    let paid = 0
    for (const [index, row] of rows.entries()) {
      if (row < 0) continue
      const charge = charges[index] as Charge // one per row
      const lease = this.#table.at(row)
      if (isRefused(lease, charge, nowMs)) return this.#refusal(charges, rows, nowUs)
      if (canPay(lease, charge, nowMs)) paid += 1
    }
    if (paid === 0) return this.#storeAtOnce(charges)
    if (paid < charges.length) return undefined
    const grants = charges.map((charge, index) => this.#pay(rows[index] as number, charge, nowMs))
    this.#refill(charges, rows, nowMs)
    this.#counts.leased += 1
    return { granted: true, nowUs, grants, source: 'lease', replayed: false }
  }

  /** Whoever guards the store may know that it is not to be asked. */
  #storeAtOnce(charges: readonly Charge[]): Taken | undefined {
    return this.#store.takeSync?.({ charges: charges.map(asCharged) })
  }

  /** The answer when this node knows that one of the charges would be refused. */
  #refusal(charges: readonly Charge[], rows: readonly number[], nowUs: number): Taken {
    this.#counts.refused_by_lease += 1
    const nowMs = nowUs / 1000
    const grants = charges.map((charge, index): Grant => {
      const row = rows[index] as number // one per charge
      if (row < 0) return NOT_ASKED
      const lease = this.#table.at(row)
      return grantOf(lease, 0, lease.isRefused(charge.min, nowMs) ? 'now' : false, 0, nowMs)
    })
    this.#refill(charges, rows, nowMs)
    return { granted: false, nowUs, grants, source: 'lease', replayed: false }
  }

  #pay(row: number, { min }: Charge, nowMs: number): Grant {
    const lease = this.#table.at(row)
    if (!lease.canSpend(min, nowMs)) return spentInShadow(lease, nowMs)
    return grantOf(lease, min, false, lease.spend(min, nowMs), nowMs)
  }

  #answerToOthers(rows: readonly number[]): Promise<unknown> | undefined {
    return this.#table.askingOf(rows.find((row) => this.#table.askingOf(row) !== undefined) ?? -1)
  }

  /**
   * Others are asking for the same: what they get may be enough. Whoever is not served waits for the next of them, for
   * a while, so that not all ask at once. One deadline is for waiting and asking together.
   */
  async #wait(take: Take, first: Promise<unknown>): Promise<Taken> {
    const askedMs = take.askedMs ?? this.#timers.nowMs()
    let answer: Promise<unknown> | undefined = first
    while (answer !== undefined && this.#timers.nowMs() - askedMs < WAIT_MS) {
      await answer.catch(() => undefined) // whoever asked is told
      const known = this.takeSync(take)
      if (known !== undefined) return known
      answer = this.#answerToOthers(take.charges.map((charge) => this.#table.rowOf(charge)))
    }
    return this.#ask({ ...take, askedMs })
  }

  /** Ahead of need, for all leases that are low or about to be asked for; nobody waits for it unless one runs out. */
  #refill(buckets: readonly (BucketName | Charge)[], rows: readonly number[], nowMs: number, empty = false): void {
    const gives: Give[] = []
    const asked: Asked[] = []
    for (let index = 0; index < buckets.length; index += 1) {
      const bucket = buckets[index] as BucketName & Partial<Charge> // as many as there are rows
      const row = rows[index] as number
      if (row < 0 || this.#table.askingOf(row) !== undefined) continue
      const lease = this.#table.at(row)
      if (!empty && !lease.isLow(nowMs, bucket.min) && !lease.isRefusalEnding(bucket, nowMs)) continue
      lease.settle(bucket, nowMs, 'ahead', gives, bucket.min) // what is spent, or no longer good, makes room
      const max = lease.nextBatch(bucket, nowMs)
      if (max < 1) {
        if (empty) lease.note(nowMs)
        continue
      }
      const { limit, owner, detail } = bucket
      const ask: Charge = { limit: chargedLimit(limit), owner, detail, min: 1, max, kind: 'hold' }
      asked.push({ bucket, ask, row })
    }
    if (asked.length > 0) this.#fetch({ gives }, asked, nowMs, [], NOTHING_PAID).catch(() => {})
    else if (gives.length > 0) void this.#giveBack(gives)
  }

  /** For what nothing is held of, and nothing known. */
  #askPlainly(take: Take): Maybe<Taken> {
    this.#counts.asked += 1
    const sentMs = this.#nowMs()
    return andThen(this.#store.take(take), (taken) => {
      const unknown = (charge: Charge) => ({ bucket: charge, ask: charge, row: -1 })
      if (!taken.granted) this.#keep(taken, take.charges.map(unknown), ABOUT_TO_ASK, sentMs)
      return taken
    })
  }

  /** Sets aside what leases can pay and asks the store for the rest. */
  #ask({ charges, op, askedMs }: Take): Promise<Taken> {
    this.#counts.asked += 1
    const nowMs = this.#nowMs()
    const paid = charges.length === 1 ? NOTHING_PAID : this.#payWhatCan(charges, nowMs)
    const gives: Give[] = []
    const asked: Asked[] = []
    for (const [index, charge] of charges.entries()) {
      if (paid[index] !== undefined) continue
      const leased = isLeasable(charge)
      // A strict bucket is known here if it has refused: then one asks, and the others wait for what it hears.
      const known = leased ? this.#table.rowFor(charge, nowMs, gives) : this.#table.rowOf(charge)
      // While others ask for a batch, no more than is needed: all batches together might be more than there is.
      const row = this.#table.askingOf(known) === undefined ? known : -1
      let extra = 0
      if (row >= 0) {
        this.#table.ask(row, ABOUT_TO_ASK)
        const lease = this.#table.at(row)
        lease.settle(charge, nowMs, 'asking', gives, charge.min)
        extra = lease.nextBatch(charge, nowMs, charge.min)
      }
      const { limit, owner, detail, min, max, kind } = charge
      const ask = leased ? { limit: chargedLimit(limit), owner, detail, min, max: max + extra, kind } : charge
      asked.push({ bucket: charge, ask, row })
    }
    return this.#fetch({ op, gives, askedMs }, asked, nowMs, charges, paid)
  }

  #payWhatCan(charges: readonly Charge[], nowMs: number): readonly (Grant | undefined)[] {
    const rows = charges.map((charge) => this.#table.rowOf(charge))
    const paid = charges.map((charge, index) => {
      const row = rows[index] as number // one per charge
      return row >= 0 && canPay(this.#table.at(row), charge, nowMs) ? this.#pay(row, charge, nowMs) : undefined
    })
    const paidRows = rows.map((row, index) => (paid[index] === undefined ? -1 : row)) // the others are asked for anyway
    this.#refill(charges, paidRows, nowMs)
    return paid
  }

  /** Asks the store, and keeps what came beyond what was needed. Answers `charges`, of which some are paid already. */
  #fetch(
    { op, gives, askedMs }: Omit<Take, 'charges'>,
    asked: readonly Asked[],
    sentMs: number,
    charges: readonly Charge[],
    paid: readonly (Grant | undefined)[],
  ): Promise<Taken> {
    const take = { charges: asked.map(({ ask }) => ask), op, gives, askedMs }
    const answer = promised(() => this.#store.take(take)).then(
      (taken) => {
        this.#keep(taken, asked, answer, sentMs)
        return this.#combined(charges, paid, taken)
      },
      (error) => {
        for (const { row } of asked) this.#table.answered(row, answer)
        this.#unpay(charges, paid)
        throw error
      },
    )
    for (const { row } of asked) if (row >= 0) this.#table.ask(row, answer)
    return answer
  }

  #keep(taken: Taken, asked: readonly Asked[], answer: Promise<unknown>, sentMs: number): void {
    const nowMs = this.#nowMs()
    const gives: Give[] = []
    asked.forEach(({ bucket, ask, row }, index) => {
      const forgotten = row >= 0 && !this.#table.answered(row, answer)
      const { limit, owner, detail, kind, min } = ask
      const grant = taken.grants[index] as Grant // one per charge
      const { source, nowUs: bookedUs } = decidedAt(taken, grant)
      if (source !== 'store') return
      if (grant.short === 'now' && limit.algorithm !== 'concurrency' && kind !== 'force') {
        const refused = row >= 0 ? row : this.#table.rowFor(bucket, nowMs, gives)
        if (!forgotten) this.#table.at(refused).refuse(bucket, min, grant, sentMs)
        return
      }
      if (row < 0 || !taken.granted || grant.units === 0) return
      const extra = grant.units - (kind === 'hold' ? 0 : min)
      if (!forgotten && this.#table.at(row).fill(bucket, extra, grant, bookedUs, sentMs, nowMs)) return
      if (extra > 0) gives.push({ limit, owner, detail, units: extra, bookedUs, settled: extra })
    })
    if (gives.length > 0) void this.#giveBack(gives)
  }

  #combined(charges: readonly Charge[], paid: readonly (Grant | undefined)[], taken: Taken): Taken {
    const [only] = charges
    if (only !== undefined && charges.length === 1 && (taken.grants[0]?.units ?? 0) <= only.max) {
      const lease = taken.granted ? undefined : this.#table.find(only)
      // Refused, perhaps because another request, which asked just before, got more than it needed.
      return lease !== undefined && canPay(lease, only, this.#nowMs()) ? (this.#takeOne(only) ?? taken) : taken
    }
    if (!taken.granted) this.#unpay(charges, paid)
    let next = 0
    const grants = charges.map((charge, index): Grant => {
      const own = paid[index]
      if (own !== undefined) return taken.granted ? own : { ...own, units: 0 }
      const grant = taken.grants[next] as Grant // one per open charge
      next += 1
      return grant.units > charge.max ? withoutHeld(grant, charge.min) : grant
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
      const { limit, owner, detail } = charge
      const give = { limit: chargedLimit(limit), owner, detail, units: grant.units, bookedUs: grant.bookedUs ?? 0 }
      if (!this.#table.find(charge)?.unspend(grant.units, give.bookedUs, nowMs)) gives.push(give)
    })
    if (gives.length > 0) void this.#giveBack(gives)
  }

  async #giveBack(gives: readonly Give[]): Promise<void> {
    this.#counts.returned += gives.length
    const given: Promise<unknown>[] = []
    for (let start = 0; start < gives.length; start += GIVES_MAX) {
      given.push(giveQuietly(this.#store, gives.slice(start, start + GIVES_MAX)))
    }
    await Promise.all(given)
  }
}
