// Wraps the store of a region and a global store from which all regions lease. A limit with `spread: global` is split
// into a home and a pool (region-limits.ts). Exactly one of these pays each charge, tried in this order: units of the
// pool that this node has on lease, the home, the pool over the network. A near pool is tried before the home. A take
// stays all or nothing: units of the pool are given back if the region refuses the rest.
//
// Errs low: units lost between the pool and a node are charged already. Without the global store a region has its homes
// and its leases; `on_fail` applies to the region's own store only.

import type { Limit } from '../algorithms/limit.ts'
import { StoreClock } from '../approximate/store-clock.ts'
import { systemTimers, type Timers, wallClock } from '../clock.ts'
import { optionInvalid } from '../errors.ts'
import { type LeasingStore, leaseStore } from '../lease/lease-store.ts'
import { isPromise, toPromise } from '../maybe-promise.ts'
import { giveQuietly } from '../store/give-quietly.ts'
import { mergeGrants } from '../store/grant.ts'
import { resetThenTake } from '../store/reset-then-take.ts'
import { type SomeStats, storeStats } from '../store/stats.ts'
import {
  type BucketName,
  type Charge,
  type Give,
  type GiveReply,
  type GiveResult,
  type IdempotencyKey,
  isBinding,
  mergeGiveResults,
  type SpentTime,
  type Store,
  type Take,
  type Taken,
} from '../store/store.ts'
import { checkBucket, checkCharges, checkGives, checkTake } from '../store/validate-request.ts'
import {
  isPool,
  isSpread,
  type RegionLimits,
  refusalOf,
  regionLimits,
  type Split,
  splitUnits,
  withLimit,
} from './region-limits.ts'
import { checkRegionOptions, type RegionOptions } from './region-options.ts'
import { regionStats } from './region-stats.ts'
import {
  borrowable,
  combined,
  hasNoHome,
  homeCharges,
  NO_CHARGES,
  NO_SHARE,
  needsPool,
  type PendingCharge,
  PoolTaken,
  SublimitTaken,
  sooner,
} from './region-take.ts'
import { type ExactShares, exactShares, type Shares } from './shares.ts'
import { WatchedStore } from './watched-store.ts'

export type RegionStore = Store & {
  readonly name: string
  readonly shares: Shares
  readonly nextShares: Shares | undefined
  /** The sublimits of all regions, in units. */
  splitOf(limit: Limit): Split
  /** Whether the global store is unreachable: the region has only its homes and its leases. */
  readonly isIsolated: boolean
  stats(): SomeStats
}

export function regionStore(options: RegionOptions): RegionStore {
  checkRegionOptions(options)
  return new PooledRegion(options)
}

class PooledRegion implements RegionStore {
  readonly name: string
  readonly shares: Shares
  readonly nextShares: Shares | undefined
  readonly #regional: Store
  readonly #global: WatchedStore
  readonly #pools: LeasingStore
  readonly #nearMs: number
  readonly #timers: Timers
  readonly #regionalClock: StoreClock
  /** The active shares; two while they are being changed. */
  readonly #shares: readonly ExactShares[]
  readonly #limits = new WeakMap<Limit, RegionLimits>()
  readonly #counts = { region_home_units: 0, region_borrowed_units: 0, region_pool_requests: 0 } satisfies SomeStats

  constructor(options: RegionOptions) {
    const { name, shares, nextShares, regional, global, clock = wallClock, timers } = options
    this.name = name
    this.shares = shares
    this.nextShares = nextShares
    this.#nearMs = options.nearMs ?? NEAR_MS
    this.#shares = [
      exactShares(shares, 'shares'),
      ...(nextShares === undefined ? [] : [exactShares(nextShares, 'nextShares')]),
    ]
    if (!this.#shares.some(({ weights }) => weights.has(name))) {
      throw optionInvalid('name', name, 'give the region a weight in shares or nextShares')
    }
    this.#regional = regional
    this.#timers = timers ?? systemTimers
    this.#global = new WatchedStore(global, this.#timers)
    this.#pools = leaseStore(this.#global, { clock, timers: this.#timers })
    this.#regionalClock = new StoreClock(this.#timers)
  }

  get named(): readonly string[] {
    return this.#regional.named ?? []
  }

  get isIsolated(): boolean {
    return this.#global.isUnreachable
  }

  splitOf(limit: Limit): Split {
    return splitUnits(limit, this.#shares)
  }

  refusesSpread(limit: Limit): string | undefined {
    const refusal = refusalOf(limit, this.#shares)
    if (refusal !== undefined || limit.spread === undefined) return refusal
    try {
      this.#limitsOf(limit)
      return undefined
    } catch {
      return 'use "regional", or a limit that divides the window: its sublimits are too large for exact arithmetic'
    }
  }

  sublimit(whole: Limit, id: string): Limit | undefined {
    const { home, pool } = this.#limitsOf(whole)
    return [home, pool].find((sublimit) => sublimit?.id === id)
  }

  takeSync(take: Take): Taken | undefined {
    checkTake(take)
    const { charges, resets } = take
    if (resets !== undefined) return undefined
    if (!charges.some(isSpread)) return this.#regional.takeSync?.(take)
    const [only] = charges
    const known = charges.length === 1 && only !== undefined ? this.#takeOneSync(take, only) : undefined
    if (known !== undefined) return known
    const pending = charges.map((charge) => this.#payFromLease(charge))
    const taken = this.#poolFirst(pending).length > 0 ? undefined : this.#takeAtHomeSync(take, pending)
    // After a refusal by the home, the pool might still pay.
    if (taken !== undefined && (taken.granted || borrowable(pending, taken).length === 0)) {
      this.#prefetch(pending)
      return this.#finish(pending, taken)
    }
    this.#giveBack(pending)
    return undefined
  }

  take(take: Take): Taken | Promise<Taken> {
    checkTake(take)
    const { charges, resets } = take
    if (!charges.some(isSpread) && !resets?.some(isSpread)) return this.#regional.take(take)
    if (resets !== undefined) return resetThenTake(this, take)
    const [only] = charges
    if (charges.length === 1 && only !== undefined) {
      if (this.#isNear) return this.#takeNear(take, only)
      const known = this.#takeOneSync(take, only)
      if (known !== undefined) return known
    }
    const pending = charges.map((charge) => this.#payFromLease(charge))
    return this.#takeAsync(take, pending)
  }

  /** Fast path of most takes: one charge, paid by a lease of the pool or, if the pool refuses, by the home. */
  #takeOneSync(take: Take, charge: Charge): Taken | undefined {
    const { home, pool } = this.#limitsOf(charge.limit)
    if (home === undefined || pool === undefined) return undefined
    const pooled = this.#pools.takeSync({ charges: [withLimit(charge, pool)] })
    const refusal = pooled?.grants[0]
    if (pooled === undefined || refusal === undefined) return undefined
    if (pooled.granted) {
      if (refusal.units === 0) return undefined
      this.#counts.region_borrowed_units += refusal.units
      return new PoolTaken(charge, pool, pooled, refusal)
    }
    const taken = this.#regional.takeSync?.({ charges: [withLimit(charge, home)], op: take.op })
    const grant = taken?.grants[0]
    if (taken === undefined || grant === undefined) return undefined
    this.#counts.region_home_units += grant.units
    return new SublimitTaken(charge, home, taken, pooled.source === 'lease' ? sooner(grant, refusal) : grant)
  }

  /** One charge while the pool is near: paid by the pool, or by the home if the pool refuses. */
  #takeNear(take: Take, charge: Charge): Taken | Promise<Taken> {
    const limits = this.#limitsOf(charge.limit)
    const { pool } = limits
    const reply = pool === undefined ? undefined : this.#pools.take({ charges: [withLimit(charge, pool)] })
    const onReply = (taken: Taken | undefined) => {
      const grant = taken?.grants[0]
      if (pool !== undefined && taken?.granted && grant !== undefined && grant.units > 0) {
        this.#counts.region_borrowed_units += grant.units
        return new PoolTaken(charge, pool, taken, grant)
      }
      const poolRefusal = taken === undefined || taken.source === 'policy' ? undefined : grant
      return this.#takeAsync(take, [{ charge, limits, paid: undefined, poolRefusal, poolSettled: true }])
    }
    if (!isPromise(reply)) return onReply(reply)
    this.#counts.region_pool_requests += 1
    return reply.then(onReply, () => onReply(undefined))
  }

  async peek(charges: readonly Charge[], mayBeStale?: boolean, expiresMs?: number): Promise<Taken> {
    checkCharges(charges)
    const buckets = charges.map((charge) => this.#bucketsOf(charge))
    const homes = buckets.flatMap(({ home }) => home ?? [])
    const pools = buckets.flatMap(({ pool }) => pool ?? [])
    const [regional, pooled] = await Promise.all([
      homes.length === 0 ? undefined : this.#regional.peek(homes, mayBeStale, expiresMs),
      pools.length === 0 ? undefined : this.#peekPools(pools, expiresMs),
    ])
    const homeGrants = regional?.grants.values()
    const poolGrants = pooled?.grants.values()
    const grants = buckets.map(({ home, pool }) => {
      const both = [home && homeGrants?.next().value, pool && poolGrants?.next().value]
      const known = both.filter((grant) => grant !== undefined)
      return known.length === 0 ? NO_SHARE : mergeGrants(known)
    })
    const granted = charges.every(({ kind }, index) => !isBinding(kind) || grants[index]?.short === false)
    const { nowUs = 0, source = 'store' } = regional ?? pooled ?? {}
    return { granted, nowUs, grants, source, replayed: false, stale: regional?.stale }
  }

  async give(gives: readonly Give[], opId?: string, idempotencyKey?: IdempotencyKey): Promise<GiveResult> {
    checkGives(gives, opId)
    const [pools, others] = [gives.filter(({ limit }) => isPool(limit)), gives.filter(({ limit }) => !isPool(limit))]
    const replies: Promise<GiveReply>[] = []
    if (pools.length > 0) replies.push(toPromise(() => this.#pools.give(pools, undefined, idempotencyKey)))
    if (others.length > 0) replies.push(toPromise(() => this.#regional.give(others, opId, idempotencyKey)))
    return mergeGiveResults(await Promise.all(replies))
  }

  async reset(bucket: BucketName): Promise<void> {
    checkBucket(bucket)
    const { home, pool } = this.#bucketsOf(bucket)
    await Promise.all([home && this.#regional.reset(home), pool && this.#pools.reset(pool)])
  }

  stats(): SomeStats {
    const [regional, pools] = [storeStats(this.#regional), storeStats(this.#pools)]
    return {
      ...regional,
      ...this.#counts,
      ...regionStats(this.name, this.#shares, this.#global, this.#regionalClock),
      region_leases: pools.leases,
      lease_units_expired: regional.lease_units_expired + pools.lease_units_expired,
      units_charged: regional.units_charged + pools.units_charged,
    }
  }

  async close(): Promise<void> {
    await Promise.all([this.#pools.close(), this.#regional.close()])
  }

  /** Pays the charge from a lease of the pool, if it can. */
  #payFromLease(charge: Charge): PendingCharge {
    const { limit } = charge
    const limits = limit.spread === undefined ? undefined : this.#limitsOf(limit)
    const pool = limits?.pool
    if (pool === undefined) return { charge, limits, paid: undefined, poolRefusal: undefined, poolSettled: true }
    const taken = this.#pools.takeSync({ charges: [withLimit(charge, pool)] })
    const grant = taken?.grants[0]
    const isPaid = taken?.granted && grant !== undefined && grant.units > 0
    const paid = isPaid ? new PoolTaken(charge, pool, taken, grant) : undefined
    const poolRefusal = taken?.source === 'lease' && !taken.granted ? grant : undefined
    return { charge, limits, paid, poolRefusal, poolSettled: taken !== undefined }
  }

  /** The deadline of the region does not include the time spent on the global store. */
  async #takeAsync(take: Take, pending: PendingCharge[]): Promise<Taken> {
    const poolSpent: SpentTime = { ms: 0 }
    const first = this.#poolFirst(pending)
    if (first.length > 0) await this.#borrow(first, poolSpent, take.expiresMs)
    if (pending.some((one) => needsPool(one) && isBinding(one.charge.kind))) return this.#finish(pending, undefined)
    this.#prefetch(pending)
    const home = { ...take, spent: take.spent ?? { ms: 0 } }
    const taken = await this.#takeAtHome(home, pending)
    const short = taken.granted ? [] : borrowable(pending, taken)
    if (short.length === 0) return this.#finish(pending, taken)
    await this.#borrow(short, poolSpent, take.expiresMs)
    if (short.every(({ paid }) => paid !== undefined)) {
      return this.#finish(pending, await this.#takeAtHome({ ...home, gives: undefined }, pending))
    }
    this.#giveBack(short)
    for (const one of short) one.paid = undefined
    return this.#finish(pending, taken)
  }

  /** Charges for which the pool is tried before the home: those without a home, and all if the pool is near. */
  #poolFirst(pending: readonly PendingCharge[]): PendingCharge[] {
    const near = this.#isNear
    return pending.filter((one) => !one.poolSettled && (near || hasNoHome(one)))
  }

  get #isNear(): boolean {
    return this.#global.distanceMs <= this.#nearMs
  }

  /** Leases units for later takes while the home pays. */
  #prefetch(pending: readonly PendingCharge[]): void {
    for (const { charge, limits, poolSettled } of pending) {
      const pool = limits?.pool
      if (!poolSettled && pool?.lease !== undefined) this.#pools.prefetch(withLimit(charge, pool))
    }
  }

  /** Takes from the pools over the network. Their units are given back if the request is refused later. */
  async #borrow(pending: readonly PendingCharge[], spent: SpentTime, expiresMs: number | undefined): Promise<void> {
    const beforeMs = spent.ms
    await Promise.all(
      pending.map(async (one) => {
        const pool = one.limits?.pool
        if (pool === undefined) return
        this.#counts.region_pool_requests += 1
        one.poolSettled = true
        const charge = withLimit(one.charge, pool)
        const own = { ms: beforeMs } // these takes run in parallel: their times do not add up
        const lease = () => this.#pools.take({ charges: [charge], spent: own, expiresMs })
        const taken = await toPromise(lease).catch(() => undefined)
        spent.ms = Math.max(spent.ms, own.ms)
        const grant = taken?.grants[0]
        if (taken === undefined || grant === undefined || taken.source === 'policy') return
        if (taken.granted && grant.units > 0) one.paid = new PoolTaken(one.charge, pool, taken, grant)
        else one.poolRefusal = grant
      }),
    )
  }

  /** Takes the charges that the pool has not paid from the region's own store. */
  async #takeAtHome(take: Take, pending: readonly PendingCharge[]): Promise<Taken> {
    const charges = homeCharges(pending)
    if (charges.length === 0) return NO_CHARGES
    const sentMs = this.#timers.nowMs()
    try {
      const taken = await this.#regional.take({ ...take, charges })
      if (taken.source === 'store') this.#regionalClock.sync(taken.nowUs, sentMs)
      return taken
    } catch (error) {
      this.#giveBack(pending)
      throw error
    }
  }

  #takeAtHomeSync(take: Take, pending: readonly PendingCharge[]): Taken | undefined {
    const charges = homeCharges(pending)
    return charges.length === 0 ? NO_CHARGES : this.#regional.takeSync?.({ ...take, charges })
  }

  /** `taken`: the region's reply; undefined if it was not queried because the pool had refused. */
  #finish(pending: readonly PendingCharge[], taken: Taken | undefined): Taken {
    if (!taken?.granted) this.#giveBack(pending)
    const answer = combined(pending, taken)
    pending.forEach(({ limits, paid }, index) => {
      if (paid !== undefined && answer.granted) this.#counts.region_borrowed_units += paid.units
      else if (limits !== undefined) this.#counts.region_home_units += answer.grants[index]?.units ?? 0
    })
    return answer
  }

  #giveBack(pending: readonly PendingCharge[]): void {
    const gives = pending.flatMap(({ charge: { owner, detail, kind }, paid }): Give[] => {
      if (paid === undefined || kind === 'force') return []
      const { sublimit: limit, units, bookedUs } = paid
      return [{ limit, owner, detail, units, bookedUs, leasedUs: bookedUs }]
    })
    if (gives.length > 0) void giveQuietly(this.#pools, gives)
  }

  async #peekPools(charges: readonly Charge[], expiresMs: number | undefined): Promise<Taken | undefined> {
    return toPromise(() => this.#pools.peek(charges, false, expiresMs)).catch(() => undefined)
  }

  /** The home and the pool of a bucket. */
  #bucketsOf<B extends BucketName>(bucket: B): { readonly home: B | undefined; readonly pool: B | undefined } {
    const { home, pool } = this.#limitsOf(bucket.limit)
    return { home: home && { ...bucket, limit: home }, pool: pool && { ...bucket, limit: pool } }
  }

  #limitsOf(limit: Limit): RegionLimits {
    const known = this.#limits.get(limit)
    if (known !== undefined) return known
    const limits = regionLimits(limit, this.#shares, this.name)
    this.#limits.set(limit, limits)
    return limits
  }
}

/** Default of `nearMs`: the global store is in the same region, or in a neighbouring one. */
const NEAR_MS = 5
