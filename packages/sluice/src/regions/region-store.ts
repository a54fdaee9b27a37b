// A store around two: the one of this region, and a global one that all regions lease from. A limit with
// `spread: global` is split into a home and a pool (region-parts.ts), and each charge is paid by exactly one of them:
// by units of the pool that this node holds, else by the home, else by the pool itself, which then has to be asked.
// Where the pool is near, it is asked before the home. A take is still all or nothing: what the pool has paid goes back
// if the region refuses the rest.
//
// Errs low: whatever is lost between a pool and a node was charged before. Without the global store a region keeps its
// homes and what its nodes hold; `on_fail` is for the region's own store only.

import { sumOf } from '../algorithms/grant.ts'
import type { Limit } from '../algorithms/limit.ts'
import { StoreClock } from '../approximate/store-clock.ts'
import { systemTimers, type Timers, wallClock } from '../clock.ts'
import { optionInvalid } from '../errors.ts'
import { type LeasingStore, leaseStore } from '../lease/lease-store.ts'
import { isPromised, promised } from '../maybe.ts'
import { giveQuietly } from '../store/give-quietly.ts'
import { checkBucket, checkCharges, checkGives, checkTake } from '../store/request-check.ts'
import {
  type BucketName,
  type Charge,
  type Give,
  type Given,
  givenOf,
  isBinding,
  type Once,
  type Returned,
  type Store,
  type Take,
  type Taken,
} from '../store/store.ts'
import { takeAnew } from '../store/take-anew.ts'
import { checkRegionOptions, type RegionOptions } from './region-options.ts'
import {
  isPool,
  isSpread,
  ofPart,
  type RegionParts,
  refusalOf,
  regionParts,
  type Split,
  splitUnits,
} from './region-parts.ts'
import { regionStats } from './region-stats.ts'
import { type ExactShares, exactShares, type Shares } from './shares.ts'
import {
  answerOf,
  borrowable,
  homeCharges,
  isHomeless,
  isOpen,
  type Line,
  NO_CHARGES,
  NOTHING,
  PartTaken,
  PoolTaken,
  sooner,
} from './taken-lines.ts'
import { WatchedStore } from './watched-store.ts'

export type RegionStore = Store & {
  readonly name: string
  readonly shares: Shares
  readonly nextShares: Shares | undefined
  /** The parts of a limit, in units, of all regions. */
  splitOf(limit: Limit): Split
  /** Whether the global store does not answer: then this region has its homes only, and what its nodes hold. */
  readonly isCutOff: boolean
  /** With what is on its way and in hand: `region_…` of `stats`. */
  stats(): Readonly<Record<string, number>>
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
  /** Those in force; two while they are being changed. */
  readonly #shares: readonly ExactShares[]
  readonly #parts = new WeakMap<Limit, RegionParts>()
  #lastLimit: Limit | undefined
  #lastParts: RegionParts | undefined
  readonly #counts = { region_home_units: 0, region_borrowed_units: 0, region_asked: 0 }

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

  get isCutOff(): boolean {
    return this.#global.isLost
  }

  splitOf(limit: Limit): Split {
    return splitUnits(limit, this.#shares)
  }

  refusesSpread(limit: Limit): string | undefined {
    const refusal = refusalOf(limit, this.#shares)
    if (refusal !== undefined || limit.spread === undefined) return refusal
    try {
      this.#partsOf(limit)
      return undefined
    } catch {
      return 'use "regional", or a limit that divides the window: its parts are too large for exact arithmetic'
    }
  }

  partOf(whole: Limit, id: string): Limit | undefined {
    const { home, pool } = this.#partsOf(whole)
    return [home, pool].find((part) => part?.id === id)
  }

  takeSync(take: Take): Taken | undefined {
    checkTake(take)
    const { charges, resets } = take
    if (resets !== undefined) return undefined
    if (!charges.some(isSpread)) return this.#regional.takeSync?.(take)
    const [only] = charges
    const known = charges.length === 1 && only !== undefined ? this.#takeOneSync(take, only) : undefined
    if (known !== undefined) return known
    const lines = charges.map((charge) => this.#draw(charge))
    const taken = this.#askedFirst(lines).length > 0 ? undefined : this.#takeAtHomeSync(take, lines)
    // Refused here, and nobody knows what the pool would say: it has to be asked.
    if (taken !== undefined && (taken.granted || borrowable(lines, taken).length === 0)) {
      this.#askAhead(lines)
      return this.#answer(lines, taken)
    }
    this.#giveBack(lines)
    return undefined
  }

  take(take: Take): Taken | Promise<Taken> {
    checkTake(take)
    const { charges, resets } = take
    if (!charges.some(isSpread) && !resets?.some(isSpread)) return this.#regional.take(take)
    if (resets !== undefined) return takeAnew(this, take)
    const [only] = charges
    if (charges.length === 1 && only !== undefined) {
      if (this.#isNear) return this.#takeNear(take, only)
      const known = this.#takeOneSync(take, only)
      if (known !== undefined) return known
    }
    const lines = charges.map((charge) => this.#draw(charge))
    return this.#ask(take, lines)
  }

  /** The short way of most takes: of the pool, in hand, or refused by it, and by the home then. */
  #takeOneSync(take: Take, charge: Charge): Taken | undefined {
    const { home, pool } = this.#partsOf(charge.limit)
    if (home === undefined || pool === undefined) return undefined
    const pooled = this.#pools.takeSync({ charges: [ofPart(charge, pool)] })
    const refusal = pooled?.grants[0]
    if (pooled === undefined || refusal === undefined) return undefined
    if (pooled.granted) {
      if (refusal.units === 0) return undefined
      this.#counts.region_borrowed_units += refusal.units
      return new PoolTaken(charge, pool, pooled, refusal)
    }
    const taken = this.#regional.takeSync?.({ charges: [ofPart(charge, home)], op: take.op })
    const grant = taken?.grants[0]
    if (taken === undefined || grant === undefined) return undefined
    this.#counts.region_home_units += grant.units
    return new PartTaken(charge, home, taken, pooled.source === 'lease' ? sooner(grant, refusal) : grant)
  }

  /** The same of one that has to wait: of the pool, in hand or not, and of the home if that refuses. */
  #takeNear(take: Take, charge: Charge): Taken | Promise<Taken> {
    const parts = this.#partsOf(charge.limit)
    const { pool } = parts
    const asked = pool === undefined ? undefined : this.#pools.take({ charges: [ofPart(charge, pool)] })
    const heard = (taken: Taken | undefined) => {
      const grant = taken?.grants[0]
      if (pool !== undefined && taken?.granted && grant !== undefined && grant.units > 0) {
        this.#counts.region_borrowed_units += grant.units
        return new PoolTaken(charge, pool, taken, grant)
      }
      const said = taken === undefined || taken.source === 'policy' ? undefined : grant
      return this.#ask(take, [{ charge, parts, paid: undefined, pool: said, asked: true }])
    }
    if (!isPromised(asked)) return heard(asked)
    this.#counts.region_asked += 1
    return asked.then(heard, () => heard(undefined))
  }

  async peek(charges: readonly Charge[], mayBeStale?: boolean): Promise<Taken> {
    checkCharges(charges)
    const sides = charges.map((charge) => this.#sides(charge))
    const home = sides.flatMap(({ here }) => here ?? [])
    const pools = sides.flatMap(({ pool }) => pool ?? [])
    const [there, pooled] = await Promise.all([
      home.length === 0 ? undefined : this.#regional.peek(home, mayBeStale),
      pools.length === 0 ? undefined : this.#peekPools(pools),
    ])
    const homeGrants = there?.grants.values()
    const poolGrants = pooled?.grants.values()
    const grants = sides.map(({ here, pool }) => {
      const both = [here && homeGrants?.next().value, pool && poolGrants?.next().value]
      const known = both.filter((grant) => grant !== undefined)
      return known.length === 0 ? NOTHING : sumOf(known)
    })
    const granted = charges.every(({ kind }, index) => !isBinding(kind) || grants[index]?.short === false)
    const { nowUs = 0, source = 'store' } = there ?? pooled ?? {}
    return { granted, nowUs, grants, source, replayed: false, stale: there?.stale }
  }

  async give(gives: readonly Give[], opId?: string, once?: Once): Promise<Given> {
    checkGives(gives, opId)
    const [pools, others] = [gives.filter(({ limit }) => isPool(limit)), gives.filter(({ limit }) => !isPool(limit))]
    const asked: Promise<Returned>[] = []
    if (pools.length > 0) asked.push(promised(() => this.#pools.give(pools, undefined, once)))
    if (others.length > 0) asked.push(promised(() => this.#regional.give(others, opId, once)))
    return givenOf(await Promise.all(asked))
  }

  async reset(bucket: BucketName): Promise<void> {
    checkBucket(bucket)
    const { here, pool } = this.#sides(bucket)
    await Promise.all([here && this.#regional.reset(here), pool && this.#pools.reset(pool)])
  }

  stats(): Readonly<Record<string, number>> {
    const { leases = 0 } = this.#pools.stats?.() ?? {}
    return {
      ...this.#regional.stats?.(),
      ...this.#counts,
      ...regionStats(this.name, this.#shares, this.#global, this.#regionalClock),
      region_leases: leases,
    }
  }

  async close(): Promise<void> {
    await Promise.all([this.#pools.close(), this.#regional.close()])
  }

  /** Pays what leases of the pool can pay. */
  #draw(charge: Charge): Line {
    const { limit } = charge
    const parts = limit.spread === undefined ? undefined : this.#partsOf(limit)
    const pool = parts?.pool
    if (pool === undefined) return { charge, parts, paid: undefined, pool: undefined, asked: true }
    const taken = this.#pools.takeSync({ charges: [ofPart(charge, pool)] })
    const grant = taken?.grants[0]
    if (taken?.granted && grant !== undefined && grant.units > 0) {
      return { charge, parts, paid: new PoolTaken(charge, pool, taken, grant), pool: undefined, asked: true }
    }
    const said = taken?.source === 'lease' && !taken.granted ? grant : undefined
    return { charge, parts, paid: undefined, pool: said, asked: taken !== undefined }
  }

  /** The region has a deadline of its own, which does not count the time that the global store took. */
  async #ask(take: Take, lines: Line[]): Promise<Taken> {
    const askedMs = take.askedMs ?? this.#timers.nowMs()
    const first = this.#askedFirst(lines)
    if (first.length > 0) await this.#borrow(first, askedMs)
    if (lines.some((line) => isOpen(line) && isBinding(line.charge.kind))) return this.#answer(lines, undefined)
    this.#askAhead(lines)
    const rest = { ...take, askedMs: undefined }
    const taken = await this.#takeAtHome(first.length === 0 ? take : rest, lines)
    const short = taken.granted ? [] : borrowable(lines, taken)
    if (short.length === 0) return this.#answer(lines, taken)
    await this.#borrow(short, askedMs)
    if (short.every(({ paid }) => paid !== undefined)) {
      return this.#answer(lines, await this.#takeAtHome({ ...rest, gives: undefined }, lines))
    }
    this.#giveBack(short)
    for (const line of short) line.paid = undefined
    return this.#answer(lines, taken)
  }

  /** Lines for which the pool is asked before the home is: those that have no home, or all, if it is near. */
  #askedFirst(lines: readonly Line[]): Line[] {
    const near = this.#isNear
    return lines.filter((line) => !line.asked && (near || isHomeless(line)))
  }

  get #isNear(): boolean {
    return this.#global.distanceMs <= this.#nearMs
  }

  /** For the next ones: the home pays meanwhile. */
  #askAhead(lines: readonly Line[]): void {
    for (const { charge, parts, asked } of lines) {
      const pool = parts?.pool
      if (!asked && pool?.lease !== undefined) this.#pools.ahead(ofPart(charge, pool))
    }
  }

  /** Asks the pools. Whatever they pay goes back if the request is refused after all. */
  async #borrow(lines: readonly Line[], askedMs: number): Promise<void> {
    await Promise.all(
      lines.map(async (line) => {
        const pool = line.parts?.pool
        if (pool === undefined) return
        this.#counts.region_asked += 1
        line.asked = true
        const charge = ofPart(line.charge, pool)
        const taken = await promised(() => this.#pools.take({ charges: [charge], askedMs })).catch(() => undefined)
        const grant = taken?.grants[0]
        if (taken === undefined || grant === undefined || taken.source === 'policy') return
        if (taken.granted && grant.units > 0) line.paid = new PoolTaken(line.charge, pool, taken, grant)
        else line.pool = grant
      }),
    )
  }

  /** What the pool has not paid, of the region's own store. */
  async #takeAtHome(take: Take, lines: readonly Line[]): Promise<Taken> {
    const charges = homeCharges(lines)
    if (charges.length === 0) return NO_CHARGES
    const sentMs = this.#timers.nowMs()
    try {
      const taken = await this.#regional.take({ ...take, charges })
      if (taken.source === 'store') this.#regionalClock.tell(taken.nowUs, sentMs)
      return taken
    } catch (error) {
      this.#giveBack(lines)
      throw error
    }
  }

  #takeAtHomeSync(take: Take, lines: readonly Line[]): Taken | undefined {
    const charges = homeCharges(lines)
    return charges.length === 0 ? NO_CHARGES : this.#regional.takeSync?.({ ...take, charges })
  }

  /** `taken` is what the region said, undefined when it was not asked because the pool had refused. */
  #answer(lines: readonly Line[], taken: Taken | undefined): Taken {
    if (!taken?.granted) this.#giveBack(lines)
    const answer = answerOf(lines, taken)
    lines.forEach(({ parts, paid }, index) => {
      if (paid !== undefined && answer.granted) this.#counts.region_borrowed_units += paid.units
      else if (parts !== undefined) this.#counts.region_home_units += answer.grants[index]?.units ?? 0
    })
    return answer
  }

  #giveBack(lines: readonly Line[]): void {
    const gives = lines.flatMap(({ charge: { owner, detail, kind }, paid }): Give[] => {
      if (paid === undefined || kind === 'force') return []
      return [{ limit: paid.part, owner, detail, units: paid.units, bookedUs: paid.bookedUs, leasedUs: paid.bookedUs }]
    })
    if (gives.length > 0) void giveQuietly(this.#pools, gives)
  }

  async #peekPools(charges: readonly Charge[]): Promise<Taken | undefined> {
    return promised(() => this.#pools.peek(charges)).catch(() => undefined)
  }

  /** A bucket as it is known here, and in the pool. */
  #sides<B extends BucketName>(bucket: B): { readonly here: B | undefined; readonly pool: B | undefined } {
    const { home, pool } = this.#partsOf(bucket.limit)
    return { here: home && { ...bucket, limit: home }, pool: pool && { ...bucket, limit: pool } }
  }

  #partsOf(limit: Limit): RegionParts {
    if (limit === this.#lastLimit && this.#lastParts !== undefined) return this.#lastParts
    let parts = this.#parts.get(limit)
    if (parts === undefined) {
      parts = regionParts(limit, this.#shares, this.name)
      this.#parts.set(limit, parts)
    }
    this.#lastLimit = limit
    this.#lastParts = parts
    return parts
  }
}

/** Of a region that has the global store in it, or next door. */
const NEAR_MS = 5
