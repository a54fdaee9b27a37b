// Counters of one process. Every answer is synchronous and exact; memory is bounded by `maxKeys`, above which new keys
// share overflow buckets: a flood of new keys slows itself down and never frees a blocked one.

import { type Algorithm, freshPacked, type ListAlgorithm, type PackedState } from '../algorithms/algorithm.ts'
import { concurrency, holds, type PermitState } from '../algorithms/concurrency.ts'
import { isGivable, type Settled, settleList, settlePacked } from '../algorithms/edit.ts'
import { grantOf, retryAfterUs, SoleTaken, shortOf, unitsOf } from '../algorithms/grant.ts'
import type { Limit } from '../algorithms/limit.ts'
import { isPacked, type PackedLimit } from '../algorithms/registry.ts'
import { slidingWindowLog } from '../algorithms/sliding-window-log.ts'
import { type Clock, systemClock } from '../clock.ts'
import { optionInvalid } from '../errors.ts'
import { type KnownFields, requireKnown } from '../known-fields.ts'
import { BucketTable } from './bucket-table.ts'
import { KeyHash } from './half-sip-hash.ts'
import { LimitBook, type LimitPage } from './limit-book.ts'
import { ListTable } from './list-table.ts'
import { OnceMarks } from './once-marks.ts'
import { partedStore, type SyncStore } from './parted-store.ts'
import { checkBucket, checkCharges, checkGives, checkTake } from './request-check.ts'
import {
  type BucketName,
  type Charge,
  type Give,
  type Given,
  type Grant,
  isBinding,
  type Once,
  requireOp,
  type Short,
  type Take,
  type Taken,
  untilUs,
} from './store.ts'

export type MemoryStoreOptions = {
  /** Most keys held at once, 34 to 43 bytes each. Above it, new keys share 4096 overflow buckets per limit. */
  readonly maxKeys?: number
  /** How many nodes share the limits of rules with `consistency: local`: this one counts against its part. */
  readonly nodes?: number
  /** Time of all buckets: must not step. */
  readonly clock?: Clock
}

export const MAX_KEYS_DEFAULT = 20_000_000
const LISTS_MAX = 100_000
const MARKS_MAX = 200_000
const OVERFLOW_BUCKETS = 4096
/** A segment of the table is looked over for vacant buckets once in so many calls. */
const CALLS_PER_SWEEP = 16_384
/** Windows follow the time of day, if it was set, after so long. */
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
  return nodes === 1 ? store : partedStore(store, nodes)
}

/** One charge on its way through a take: everything is decided before anything is charged. */
type Work = {
  readonly charge: Charge
  readonly bucket: Bucket
  readonly short: Short
  readonly units: number
}

/** A bucket as the general path sees it, wherever it is kept. */
type Bucket = {
  readonly id: string
  readonly algorithm: Algorithm<unknown>
  readonly settled: Settled<unknown>
  write(): void
}

class MemoryStore implements SyncStore {
  readonly #clock: Clock
  readonly #maxKeys: number
  readonly #hash = new KeyHash()
  /** The bucket at hand on the hot path. */
  readonly #cell: PackedState = freshPacked()
  readonly #swept: PackedState = freshPacked()
  readonly #book = new LimitBook()
  readonly #lists = new ListTable(LISTS_MAX)
  readonly #marks = new OnceMarks(MARKS_MAX)
  readonly #table: BucketTable
  #nowUs = 0
  #calls = 0
  #overflowed = 0
  /** When windows next follow the time of day. */
  #followUs = 0

  constructor(maxKeys: number, clock: Clock) {
    this.#maxKeys = maxKeys
    this.#clock = clock
    this.#table = new BucketTable({
      isVacant: (tag, first, second) => this.#isVacant(tag, first, second),
      dropped: (tag) => {
        this.#book.pageAt(tag).buckets -= 1
      },
    })
  }

  takeSync(take: Take): Taken {
    return this.take(take)
  }

  /** Nothing is ever on lease here: in the process that holds the buckets it would save nothing. */
  take(take: Take): Taken {
    checkTake(take)
    const { charges: asked, op, gives, resets } = take
    if (resets !== undefined) for (const bucket of resets) this.reset(bucket)
    if (gives !== undefined) this.give(gives)
    const charges = asked.some(asksForLease) ? asked.map(withoutLease) : asked
    const nowUs = this.#now()
    const only = charges.length === 1 ? charges[0] : undefined
    if (only !== undefined && isPacked(only.limit)) return this.#takeOne(only, only.limit, nowUs)
    requireOp({ charges, op })
    return this.#takeAll(charges, op?.id, nowUs)
  }

  peek(charges: readonly Charge[]): Taken {
    checkCharges(charges)
    const nowUs = this.#now()
    const works = this.#works(charges, undefined, nowUs, true)
    const grants = works.map(({ charge, bucket: { algorithm, settled }, short }) => {
      const used = algorithm.used(charge.limit, settled.state, nowUs)
      return grantOf(algorithm, charge, settled.state, nowUs, used, short, 0, 0, undefined)
    })
    return { granted: works.every(passes), nowUs, grants, source: 'store', replayed: false }
  }

  give(gives: readonly Give[], opId?: string, once?: Once): Given {
    checkGives(gives, opId)
    const nowUs = this.#now()
    const outcome = once === undefined ? 'given' : this.#marks.mark(once.id, untilUs(gives, once), nowUs)
    if (outcome !== 'given') return outcome
    for (const give of gives) {
      const { limit, owner, detail, units, bookedUs } = give
      const { algorithm, settled, write } = this.#bucketOf(limit, owner, detail, nowUs, true)
      if (!isGivable(settled, give, algorithm.resetUs(limit, settled.state, nowUs))) continue
      if (units < 0) algorithm.charge(limit, settled.state, nowUs, -units, opId)
      else algorithm.refund(limit, settled.state, nowUs, units, bookedUs, opId)
      write()
    }
    return 'given'
  }

  reset(bucket: BucketName): void {
    checkBucket(bucket)
    const { limit, owner, detail } = bucket
    const nowUs = this.#now()
    if (!isPacked(limit)) this.#lists.delete(this.#lists.keyOf(limit, owner, detail, nowUs))
    else if (this.#find(this.#book.pageOf(limit), owner, detail, nowUs)) {
      this.#save(this.#book.pageOf(limit), true, freshPacked(), nowUs)
    }
  }

  stats(): Readonly<Record<string, number>> {
    return { keys: this.#table.count + this.#lists.count, overflowed: this.#overflowed + this.#lists.overflowed }
  }

  wallAheadUs(): number {
    return this.#clock.wallAheadUs?.() ?? 0
  }

  async close(): Promise<void> {}

  #now(): number {
    const nowUs = this.#clock.nowUs()
    this.#nowUs = nowUs
    if (nowUs >= this.#followUs) {
      this.#followUs = nowUs + FOLLOW_US
      this.#book.follow(this.wallAheadUs(), nowUs)
    }
    this.#calls += 1
    if (this.#calls % CALLS_PER_SWEEP === 0) this.#table.sweepNext(nowUs)
    return nowUs
  }

  /** The hot path: one charge against a bucket of three numbers, with no object but the answer. */
  #takeOne(charge: Charge, limit: PackedLimit, nowUs: number): Taken {
    const page = this.#book.pageOf(limit)
    const table = this.#table
    const found = this.#find(page, charge.owner, charge.detail, nowUs)
    if (found && table.tag !== page.index) return this.#takeAll([charge], undefined, nowUs) // the rule was edited
    const { algorithm } = page
    const state = this.#cell
    unpack(state, table.first, table.second, page.twoCounts) // a free slot holds zeros, which are the fresh state
    const moved = algorithm.advance(limit, state, nowUs)
    const used = algorithm.used(limit, state, nowUs)
    const short = shortOf(limit, used, charge.min)
    const units = unitsOf(charge, used, short)
    const delayUs = units > 0 ? algorithm.delayUs(limit, state) : 0
    if (units > 0) algorithm.charge(limit, state, nowUs, units)
    if (units > 0 || moved) this.#save(page, found, state, nowUs)
    return new SoleTaken(
      short === false || !isBinding(charge.kind),
      nowUs,
      units,
      short,
      Math.max(0, limit.capacity - used - units),
      algorithm.resetUs(limit, state, nowUs),
      retryAfterUs(algorithm, charge, state, nowUs, short, undefined),
      delayUs,
    )
  }

  #takeAll(charges: readonly Charge[], opId: string | undefined, nowUs: number): Taken {
    const works = this.#works(charges, opId, nowUs)
    const granted = works.every(passes)
    const replayed = opId !== undefined && isRenewal(works, opId, nowUs)
    const grants = works.map((work) => this.#settle(work, granted || work.charge.kind === 'force', nowUs, opId))
    return { granted, nowUs, grants, source: 'store', replayed }
  }

  #works(charges: readonly Charge[], opId: string | undefined, nowUs: number, mayDrop = false): Work[] {
    const works: Work[] = []
    for (const charge of charges) {
      const { limit } = charge
      const found = this.#bucketOf(limit, charge.owner, charge.detail, nowUs, mayDrop)
      // A bucket used twice in one take is one bucket, and counts what the earlier uses would take.
      const twins = works.filter(({ bucket }) => bucket.id === found.id)
      const bucket = twins[0]?.bucket ?? found
      const { algorithm, settled } = bucket
      const spoken = twins.reduce((sum, { units }) => sum + units, 0)
      const used = algorithm.used(limit, settled.state, nowUs, opId) + spoken
      const short = settled.stale ? 'stale_rules' : shortOf(limit, used, charge.min)
      works.push({ charge, bucket, short, units: unitsOf(charge, used, short) })
    }
    return works
  }

  /** Charges a bucket, if the take is granted, and stores what changed. */
  #settle({ charge, bucket, short, units }: Work, charged: boolean, nowUs: number, opId?: string): Grant {
    const { algorithm, settled } = bucket
    const spent = charged ? units : 0
    const delayUs = spent > 0 ? algorithm.delayUs(charge.limit, settled.state) : 0
    if (spent > 0) algorithm.charge(charge.limit, settled.state, nowUs, spent, opId)
    if (spent > 0 || (settled.moved && !settled.stale)) bucket.write()
    const used = algorithm.used(charge.limit, settled.state, nowUs)
    return grantOf(algorithm, charge, settled.state, nowUs, used, short, spent, delayUs, opId)
  }

  /** `mayDrop`: perhaps nothing will be written, so a list must not be brought to now where it is kept. */
  #bucketOf(limit: Limit, owner: string, detail: string, nowUs: number, mayDrop = false): Bucket {
    return isPacked(limit)
      ? this.#packedBucket(limit, owner, detail, nowUs)
      : this.#listBucket(limit, owner, detail, nowUs, mayDrop)
  }

  #packedBucket(limit: PackedLimit, owner: string, detail: string, nowUs: number): Bucket {
    const page = this.#book.pageOf(limit)
    const found = this.#find(page, owner, detail, nowUs)
    const { high, low } = this.#hash
    const writer = found ? this.#writer() : page
    const stored = freshPacked()
    unpack(stored, this.#table.first, this.#table.second, writer.twoCounts)
    const settled = settlePacked(writer.limit, stored, limit, nowUs, writer.algorithm, page.algorithm)
    const write = () => {
      this.#hash.high = high
      this.#hash.low = low
      // Asked for again: other charges of the take may have opened pages since, and unused pages go to others.
      this.#save(this.#book.pageOf(limit), this.#table.find(high, low), settled.state, nowUs)
    }
    return { id: `${high}:${low}`, algorithm: page.algorithm, settled, write }
  }

  #listBucket(limit: Limit, owner: string, detail: string, nowUs: number, mayDrop: boolean): Bucket {
    const algorithm: ListAlgorithm<unknown> = limit.algorithm === 'concurrency' ? concurrency : slidingWindowLog
    const id = this.#lists.keyOf(limit, owner, detail, nowUs)
    const stored = this.#lists.get(id)
    const written = stored?.limit ?? limit
    const apart = mayDrop || written.generation > limit.generation || written.windowUs !== limit.windowUs
    const state = stored === undefined ? algorithm.fresh() : apart ? structuredClone(stored.state) : stored.state
    const settled = settleList(algorithm, written, state, limit, nowUs)
    const write = () => {
      this.#lists.set(id, { limit, algorithm, state: settled.state }, nowUs)
    }
    return { id, algorithm, settled, write }
  }

  /**
   * Leaves the fingerprint in #hash and the place in #table: of the bucket, or of the overflow bucket it must share.
   */
  #find(page: LimitPage, owner: string, detail: string, nowUs: number): boolean {
    const hash = this.#hash
    hash.hash(page.seed, owner, detail)
    if (hash.high === 0 && hash.low === 0) hash.low = 1
    if (this.#table.find(hash.high, hash.low)) return true
    if (this.#table.count < this.#maxKeys || this.#table.reclaim(hash.high, nowUs)) return false
    this.#overflowed += 1
    hash.hash(page.seed, 'overflow', String((hash.low >>> 0) % OVERFLOW_BUCKETS))
    return this.#table.find(hash.high, hash.low)
  }

  /** The page of the limit that wrote the bucket just found. */
  #writer(): LimitPage {
    return this.#book.pageAt(this.#table.tag)
  }

  /** Writes the bucket just found, or adds it. */
  #save(page: LimitPage, found: boolean, { at, x, y }: PackedState, nowUs: number): void {
    const second = y * COUNT_SIZE + x
    if (!found) {
      this.#table.insert(this.#hash.high, this.#hash.low, page.index, at, second, nowUs)
      page.buckets += 1
      return
    }
    const writer = this.#writer()
    if (writer !== page) {
      writer.buckets -= 1
      page.buckets += 1
    }
    this.#table.write(page.index, at, second)
  }

  #isVacant(tag: number, at: number, second: number): boolean {
    const { limit, algorithm, twoCounts } = this.#book.pageAt(tag)
    const state = this.#swept
    unpack(state, at, second, twoCounts)
    algorithm.advance(limit, state, this.#nowUs)
    return algorithm.resetUs(limit, state, this.#nowUs) === 0
  }
}

function asksForLease({ limit, min, max }: Charge): boolean {
  return min !== max && limit.holdTicks > 0
}

function withoutLease(charge: Charge): Charge {
  return asksForLease(charge) ? { ...charge, max: charge.min } : charge
}

function unpack(into: PackedState, at: number, second: number, twoCounts: boolean): void {
  const y = twoCounts ? Math.floor(second / COUNT_SIZE) : 0
  into.at = at
  into.x = second - y * COUNT_SIZE
  into.y = y
}

function passes({ charge, short }: Work): boolean {
  return short === false || !isBinding(charge.kind)
}

/** Whether every permit asked for is already held by this op. */
function isRenewal(works: readonly Work[], opId: string, nowUs: number): boolean {
  const permits = works.filter(({ charge }) => charge.limit.algorithm === 'concurrency')
  return permits.length > 0 && permits.every(({ bucket }) => holds(bucket.settled.state as PermitState, opId, nowUs))
}
