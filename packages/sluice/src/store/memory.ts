// Memory store: buckets of one process. Synchronous and exact. Memory is capped by `maxKeys`; above it, new keys share
// overflow buckets, so a flood of new keys limits itself and never evicts a refused client.

import { type Algorithm, freshPacked, type PackedState } from '../algorithms/algorithm.ts'
import { holds, type PermitState } from '../algorithms/concurrency.ts'
import { type CurrentState, migrateList, migratePacked } from '../algorithms/edit.ts'
import type { Limit } from '../algorithms/limit.ts'
import { isPacked, LISTED, type PackedLimit } from '../algorithms/registry.ts'
import { ALGORITHMS, hasPermits, type ListedName } from '../algorithms/traits.ts'
import { type Clock, systemClock } from '../clock.ts'
import { optionInvalid } from '../errors.ts'
import { type KnownFields, requireKnown } from '../known-fields.ts'
import { BucketTable } from './bucket-table.ts'
import { COUNTERFACTUAL_RETENTION_US, isCharged } from './counterfactual.ts'
import { buildGrant, isGivable, retryAfterUs, SoleTaken, shortOf, unitsOf } from './grant.ts'
import { HalfSipHash } from './half-sip-hash.ts'
import { IdempotencyKeys } from './idempotency-keys.ts'
import { LimitRegistry, type RegisteredLimit } from './limit-registry.ts'
import { ListTable } from './list-table.ts'
import { nodeShareStore, type SyncStore } from './node-share-store.ts'
import type { StoreStats } from './stats.ts'
import {
  type BucketName,
  type Charge,
  type Give,
  type GiveResult,
  type Grant,
  type IdempotencyKey,
  isBinding,
  requireOp,
  type Short,
  type Take,
  type Taken,
  untilUs,
} from './store.ts'
import { checkBucket, checkCharges, checkGives, checkTake } from './validate-request.ts'

export type MemoryStoreOptions = {
  /** Cap on keys, 34 to 43 bytes each. Above it, new keys share 4096 overflow buckets per limit. */
  readonly maxKeys?: number
  /** Number of nodes that share the limits of rules with `consistency: local`; each counts against its node share. */
  readonly nodes?: number
  /** Clock of all buckets; must not step. */
  readonly clock?: Clock
}

export const MAX_KEYS_DEFAULT = 20_000_000
const LISTS_MAX = 100_000
const IDEMPOTENCY_KEYS_MAX = 200_000
const OVERFLOW_BUCKETS = 4096
/** Calls between sweeps, each of which reclaims vacant buckets in one segment of the table. */
const CALLS_PER_SWEEP = 16_384
/** Interval at which windows follow changes of wall-clock time. */
const FOLLOW_US = 1_000_000
/** The two counts of a sliding window share one number: y × 2^26 + x (SLIDING_UNITS_MAX keeps both below 2^26). */
const COUNT_SIZE = 2 ** 26

const OPTIONS: KnownFields<MemoryStoreOptions> = { maxKeys: true, nodes: true, clock: true }

export function memoryStore(options: MemoryStoreOptions = {}): SyncStore {
  requireKnown(options, OPTIONS, '{ maxKeys }, or nothing')
  const { maxKeys = MAX_KEYS_DEFAULT, nodes = 1, clock = systemClock } = options
  for (const [name, value] of Object.entries({ maxKeys, nodes })) {
    if (!Number.isInteger(value) || value < 1) throw optionInvalid(name, value, 'give a whole number of at least 1')
  }
  const store = new MemoryStore(maxKeys, clock)
  return nodes === 1 ? store : nodeShareStore(store, nodes)
}

/** A charge of a take, decided but not applied yet: all charges are decided before any is applied. */
type EvaluatedCharge = {
  readonly charge: Charge
  readonly bucket: Bucket
  readonly short: Short
  readonly units: number
}

/** A bucket of either table. Not used by the hot path. */
type Bucket = {
  readonly id: string
  readonly algorithm: Algorithm<unknown>
  readonly current: CurrentState<unknown>
  /** absent: not stored. seeded: not stored, and its state comes from the live bucket, so it must be stored. */
  readonly origin: 'stored' | 'absent' | 'seeded'
  write(state: unknown): void
}

class MemoryStore implements SyncStore {
  readonly #clock: Clock
  readonly #maxKeys: number
  readonly #hash = new HalfSipHash()
  /** Reused states: of the hot path, and of sweeps. */
  readonly #scratch: PackedState = freshPacked()
  readonly #sweepScratch: PackedState = freshPacked()
  readonly #limits = new LimitRegistry()
  readonly #lists = new ListTable(LISTS_MAX)
  readonly #keys = new IdempotencyKeys(IDEMPOTENCY_KEYS_MAX)
  readonly #table: BucketTable
  #nowUs = 0
  #calls = 0
  #overflowed = 0
  /** Time at which windows next follow wall-clock time. */
  #followUs = 0

  constructor(maxKeys: number, clock: Clock) {
    this.#maxKeys = maxKeys
    this.#clock = clock
    this.#table = new BucketTable({
      isVacant: (tag, first, second) => this.#isVacant(tag, first, second),
      dropped: (tag) => {
        this.#limits.at(tag).buckets -= 1
      },
    })
  }

  takeSync(take: Take): Taken {
    return this.take(take)
  }

  /** Grants no leases: they would save no round trip. */
  take(take: Take): Taken {
    checkTake(take)
    const { charges: given, op, gives, resets } = take
    if (resets !== undefined) for (const bucket of resets) this.reset(bucket)
    if (gives !== undefined) this.give(gives)
    const charges = given.some(requestsLease) ? given.map(withoutLease) : given
    const nowUs = this.#now()
    const only = charges.length === 1 ? charges[0] : undefined
    if (only !== undefined && isPacked(only.limit) && only.kind !== 'counterfactual')
      return this.#takeOne(only, only.limit, nowUs)
    requireOp({ charges, op })
    return this.#takeAll(charges, op?.id, nowUs)
  }

  peek(charges: readonly Charge[]): Taken {
    checkCharges(charges)
    const nowUs = this.#now()
    const evaluated = this.#evaluate(charges, undefined, nowUs, true)
    const grants = evaluated.map(({ charge, bucket: { algorithm, current }, short }) => {
      const used = algorithm.used(charge.limit, current.state, nowUs)
      return buildGrant(algorithm, charge, current.state, nowUs, used, short, 0, 0, undefined)
    })
    return { granted: evaluated.every(passes), nowUs, grants, source: 'store', replayed: false }
  }

  give(gives: readonly Give[], opId?: string, idempotencyKey?: IdempotencyKey): GiveResult {
    checkGives(gives, opId)
    const nowUs = this.#now()
    const outcome =
      idempotencyKey === undefined ? 'given' : this.#keys.add(idempotencyKey.id, untilUs(gives, idempotencyKey), nowUs)
    if (outcome !== 'given') return outcome
    for (const give of gives) {
      const { limit, owner, detail, units, bookedUs } = give
      const { algorithm, current, write } = this.#bucketOf(limit, owner, detail, nowUs, true)
      if (!isGivable(current, give, algorithm.resetUs(limit, current.state, nowUs))) continue
      if (units < 0) algorithm.charge(limit, current.state, nowUs, -units, opId)
      else algorithm.refund(limit, current.state, nowUs, units, bookedUs, opId)
      write(current.state)
    }
    return 'given'
  }

  reset(bucket: BucketName): void {
    checkBucket(bucket)
    const { limit, owner, detail } = bucket
    const nowUs = this.#now()
    if (!isPacked(limit)) this.#lists.delete(this.#lists.keyOf(limit, owner, detail, nowUs))
    else if (this.#find(this.#limits.register(limit), owner, detail, nowUs)) {
      this.#save(this.#limits.register(limit), true, freshPacked(), nowUs)
    }
  }

  stats(): Pick<StoreStats, 'keys' | 'overflowed'> {
    return { keys: this.#table.count + this.#lists.count, overflowed: this.#overflowed + this.#lists.overflowed }
  }

  wallAheadUs(): number {
    return this.#clock.wallAheadUs?.() ?? 0
  }

  lastUs(): number {
    return this.#nowUs
  }

  async close(): Promise<void> {}

  #now(): number {
    const nowUs = this.#clock.nowUs()
    this.#nowUs = nowUs
    if (nowUs >= this.#followUs) {
      this.#followUs = nowUs + FOLLOW_US
      this.#limits.follow(this.wallAheadUs(), nowUs)
    }
    this.#calls += 1
    if (this.#calls % CALLS_PER_SWEEP === 0) this.#table.sweepNext(nowUs)
    return nowUs
  }

  /** Hot path: one charge against a packed bucket. Allocates only the result. */
  #takeOne(charge: Charge, limit: PackedLimit, nowUs: number): Taken {
    const registered = this.#limits.register(limit)
    const table = this.#table
    const found = this.#find(registered, charge.owner, charge.detail, nowUs)
    if (found && table.tag !== registered.index) return this.#takeAll([charge], undefined, nowUs) // the rule was edited
    const { algorithm } = registered
    const state = this.#scratch
    unpack(state, table.first, table.second, registered.twoCounts) // a free entry is all zeros, the fresh state
    const moved = algorithm.advance(limit, state, nowUs)
    const used = algorithm.used(limit, state, nowUs)
    const short = shortOf(limit, used, charge.min)
    const units = unitsOf(charge, used, short)
    const delayUs = units > 0 ? algorithm.delayUs(limit, state) : 0
    if (units > 0) algorithm.charge(limit, state, nowUs, units)
    if (units > 0 || moved) this.#save(registered, found, state, nowUs)
    return new SoleTaken({
      granted: short === false || !isBinding(charge.kind),
      nowUs,
      units,
      short,
      remaining: Math.max(0, limit.capacity - used - units),
      resetAfterUs: algorithm.resetUs(limit, state, nowUs),
      retryAfterUs: retryAfterUs(algorithm, charge, state, nowUs, used + units, short, undefined),
      delayUs,
      source: 'store',
    })
  }

  #takeAll(charges: readonly Charge[], opId: string | undefined, nowUs: number): Taken {
    const evaluated = this.#evaluate(charges, opId, nowUs)
    const granted = evaluated.every(passes)
    const replayed = opId !== undefined && isRenewal(evaluated, opId, nowUs)
    const grants = evaluated.map((one) => this.#apply(one, isCharged(one.charge, granted, evaluated), nowUs, opId))
    return { granted, nowUs, grants, source: 'store', replayed }
  }

  #evaluate(
    charges: readonly Charge[],
    opId: string | undefined,
    nowUs: number,
    mayDiscard = false,
  ): EvaluatedCharge[] {
    const evaluated: EvaluatedCharge[] = []
    for (const charge of charges) {
      const { limit } = charge
      const loaded = this.#bucketOf(limit, charge.owner, charge.detail, nowUs, mayDiscard)
      const found = charge.kind === 'counterfactual' ? this.#seeded(loaded, charge, nowUs) : loaded
      // A bucket charged twice in one take counts the units of the earlier charges.
      const earlier = evaluated.filter(({ bucket }) => bucket.id === found.id)
      const bucket = earlier[0]?.bucket ?? found
      const { algorithm, current } = bucket
      const reserved = earlier.reduce((sum, { units }) => sum + units, 0)
      const used = algorithm.used(limit, current.state, nowUs, opId) + reserved
      const short = current.stale ? 'stale_rules' : shortOf(limit, used, charge.min)
      evaluated.push({ charge, bucket, short, units: unitsOf(charge, used, short) })
    }
    return evaluated
  }

  /** Charges a bucket if the take is granted, and stores changes. */
  #apply({ charge, bucket, short, units }: EvaluatedCharge, charged: boolean, nowUs: number, opId?: string): Grant {
    const { algorithm, current } = bucket
    const spent = charged ? units : 0
    const delayUs = spent > 0 ? algorithm.delayUs(charge.limit, current.state) : 0
    if (spent > 0) algorithm.charge(charge.limit, current.state, nowUs, spent, opId)
    if (spent > 0 || ((current.moved || bucket.origin === 'seeded') && !current.stale)) {
      bucket.write(current.state)
    }
    const used = algorithm.used(charge.limit, current.state, nowUs)
    return buildGrant(algorithm, charge, current.state, nowUs, used, short, spent, delayUs, opId)
  }

  /**
   * A counterfactual bucket that is not stored starts with the state of the live bucket, without expired entries: if
   * the clock steps back later, they must not count again.
   */
  #seeded(bucket: Bucket, { limit, owner, detail }: Charge, nowUs: number): Bucket {
    if (limit.seed === undefined || bucket.origin !== 'absent') return bucket
    const { current } = this.#bucketOf(limit.seed, owner, detail, nowUs, true)
    if (!isPacked(limit)) LISTED[limit.algorithm as ListedName].dropExpired(limit, current.state, nowUs)
    return { ...bucket, current, origin: 'seeded' }
  }

  /** `mayDiscard`: the caller may not write the bucket back, so a stored list is copied. */
  #bucketOf(limit: Limit, owner: string, detail: string, nowUs: number, mayDiscard = false): Bucket {
    return isPacked(limit)
      ? this.#packedBucket(limit, owner, detail, nowUs)
      : this.#listBucket(limit, owner, detail, nowUs, mayDiscard)
  }

  #packedBucket(limit: PackedLimit, owner: string, detail: string, nowUs: number): Bucket {
    const registered = this.#limits.register(limit)
    const found = this.#find(registered, owner, detail, nowUs)
    const { high, low } = this.#hash
    const writer = found ? this.#writer() : registered
    const stored = freshPacked()
    unpack(stored, this.#table.first, this.#table.second, writer.twoCounts)
    const current = migratePacked(writer.limit, stored, limit, nowUs, writer.algorithm, registered.algorithm)
    const write = (state: unknown) => {
      this.#hash.high = high
      this.#hash.low = low
      // Looked up again: other charges of the take may have reused the index of a limit without buckets.
      this.#save(this.#limits.register(limit), this.#table.find(high, low), state as PackedState, nowUs)
    }
    const origin = found && this.#table.first > 0 ? 'stored' : 'absent' // position 0: it was reset
    return { id: `${high}:${low}`, algorithm: registered.algorithm, current, origin, write }
  }

  #listBucket(limit: Limit, owner: string, detail: string, nowUs: number, mayDiscard: boolean): Bucket {
    const algorithm = LISTED[limit.algorithm as ListedName] // every limit that is not packed
    const id = this.#lists.keyOf(limit, owner, detail, nowUs)
    const stored = this.#lists.get(id)
    const written = stored?.limit ?? limit
    const mustCopy = mayDiscard || written.generation > limit.generation || written.windowUs !== limit.windowUs
    const state = stored === undefined ? algorithm.fresh() : mustCopy ? structuredClone(stored.state) : stored.state
    const current = migrateList(algorithm, written, state, limit, nowUs)
    const write = (changed: unknown) => {
      this.#lists.set(id, { limit, algorithm, state: changed, changedUs: nowUs }, nowUs)
    }
    return { id, algorithm, current, origin: stored === undefined ? 'absent' : 'stored', write }
  }

  /**
   * Leaves the fingerprint in #hash and the position in #table: of the bucket, or of its overflow bucket.
   */
  #find(registered: RegisteredLimit, owner: string, detail: string, nowUs: number): boolean {
    const hash = this.#hash
    hash.hash(registered.seed, owner, detail)
    if (hash.high === 0 && hash.low === 0) hash.low = 1
    if (this.#table.find(hash.high, hash.low)) return true
    if (this.#table.count < this.#maxKeys || this.#table.reclaim(hash.high, nowUs)) return false
    this.#overflowed += 1
    hash.hash(registered.seed, 'overflow', String((hash.low >>> 0) % OVERFLOW_BUCKETS))
    return this.#table.find(hash.high, hash.low)
  }

  /** Limit that wrote the bucket just found. */
  #writer(): RegisteredLimit {
    return this.#limits.at(this.#table.tag)
  }

  /** Writes the bucket just found, or adds it. */
  #save(registered: RegisteredLimit, found: boolean, { at, x, y }: PackedState, nowUs: number): void {
    const second = y * COUNT_SIZE + x
    if (!found) {
      this.#table.insert(this.#hash.high, this.#hash.low, registered.index, at, second, nowUs)
      registered.buckets += 1
      return
    }
    const writer = this.#writer()
    if (writer !== registered) {
      writer.buckets -= 1
      registered.buckets += 1
    }
    this.#table.write(registered.index, at, second)
  }

  #isVacant(tag: number, at: number, second: number): boolean {
    const { limit, algorithm, twoCounts } = this.#limits.at(tag)
    const state = this.#sweepScratch
    unpack(state, at, second, twoCounts)
    if (limit.seed !== undefined && this.#nowUs < lastChangeUs(limit, at) + COUNTERFACTUAL_RETENTION_US) return false
    algorithm.advance(limit, state, this.#nowUs)
    return algorithm.resetUs(limit, state, this.#nowUs) === 0
  }
}

function requestsLease({ limit, min, max }: Charge): boolean {
  return min !== max && limit.holdTicks > 0
}

function withoutLease(charge: Charge): Charge {
  return requestsLease(charge) ? { ...charge, max: charge.min } : charge
}

function unpack(into: PackedState, at: number, second: number, twoCounts: boolean): void {
  const y = twoCounts ? Math.floor(second / COUNT_SIZE) : 0
  into.at = at
  into.x = second - y * COUNT_SIZE
  into.y = y
}

/** Time of the last change of a state, or the end of that window. */
function lastChangeUs({ algorithm, tickUs, windowUs }: Limit, at: number): number {
  return ALGORITHMS[algorithm].windows === 0 ? at * tickUs : (at + 1) * windowUs
}

function passes({ charge, short }: EvaluatedCharge): boolean {
  return short === false || !isBinding(charge.kind)
}

/** Whether `opId` already holds every permit of the take. */
function isRenewal(evaluated: readonly EvaluatedCharge[], opId: string, nowUs: number): boolean {
  const permits = evaluated.filter(({ charge }) => hasPermits(charge.limit))
  return permits.length > 0 && permits.every(({ bucket }) => holds(bucket.current.state as PermitState, opId, nowUs))
}
