// A store around a store: of a bucket that is split, one part is charged, and a take that is refused for it is tried
// once more with another part. The parts add up to the limit (compileLimit), so together they never admit more than the
// whole would; they may refuse while another part still has units. A take is all or nothing, as ever.

import { sumOf } from '../algorithms/grant.ts'
import type { Limit } from '../algorithms/limit.ts'
import { systemTimers, type Timers } from '../clock.ts'
import { andThen } from '../maybe.ts'
import {
  type BucketName,
  type Charge,
  decidedAt,
  type Give,
  type Grant,
  isBinding,
  type Once,
  type Returned,
  type Store,
  type Take,
  type Taken,
} from '../store/store.ts'

export type ShardOptions = {
  readonly timers?: Timers
  readonly random?: () => number
}

/** Steps of this size fall evenly into any number of parts, and so do every second, every third, … of them. */
const STEP = (Math.sqrt(5) - 1) / 2

export function shardStore(store: Store, options: ShardOptions = {}): Store {
  return new ShardStore(store, options)
}

class ShardStore implements Store {
  readonly #store: Store
  readonly #timers: Timers
  /** From 0 to 1. Nodes begin at different places, or all would ask for the same part at once. */
  #turn: number

  constructor(store: Store, { timers = systemTimers, random = Math.random }: ShardOptions) {
    this.#store = store
    this.#timers = timers
    this.#turn = random()
  }

  takeSync(asked: Take): Taken | undefined {
    const take = withParts(asked)
    if (!take.charges.some(isSplit)) return this.#store.takeSync?.(take)
    const first = this.#first(take, undefined)
    const taken = this.#store.takeSync?.(first)
    if (taken === undefined) return undefined
    const second = this.#second(take, first, taken)
    if (second === undefined) return asWhole(take, first, taken)
    const retaken = this.#store.takeSync?.(second)
    return retaken && eitherOf(asWhole(take, first, taken), asWhole(take, second, retaken))
  }

  take(asked: Take): Taken | Promise<Taken> {
    const take = withParts(asked)
    if (!take.charges.some(isSplit)) return this.#store.take(take)
    // Both tries share one deadline.
    const first = this.#first(take, take.askedMs ?? this.#timers.nowMs())
    return andThen(this.#store.take(first), (taken) => {
      const second = this.#second(take, first, taken)
      if (second === undefined) return asWhole(take, first, taken)
      return andThen(this.#store.take(second), (retaken) =>
        eitherOf(asWhole(take, first, taken), asWhole(take, second, retaken)),
      )
    })
  }

  give(gives: readonly Give[], opId?: string, once?: Once): Returned | Promise<Returned> {
    return this.#store.give(gives, opId, once) // they name the parts: see Grant
  }

  /** Sees all parts, so it may find units where a take, which tries two, does not. */
  peek(charges: readonly Charge[], mayBeStale?: boolean): Taken | Promise<Taken> {
    if (!charges.some(isSplit)) return this.#store.peek(charges, mayBeStale)
    const parts = charges.map((charge) => charge.limit.shards?.map((limit) => ({ ...charge, limit })) ?? [charge])
    return andThen(this.#store.peek(parts.flat(), mayBeStale), ({ nowUs, grants, source, replayed, stale }) => {
      let at = 0
      const sums = parts.map(({ length }) => {
        at += length
        return sumOf(grants.slice(at - length, at))
      })
      const granted = charges.every(({ kind }, index) => !isBinding(kind) || sums[index]?.short === false)
      return { granted, nowUs, grants: sums, source, replayed, stale }
    })
  }

  async reset(bucket: BucketName): Promise<void> {
    await Promise.all(partsOf(bucket).map((part) => this.#store.reset(part)))
  }

  stats(): Readonly<Record<string, number>> {
    return this.#store.stats?.() ?? {}
  }

  close(): Promise<void> {
    return this.#store.close()
  }

  #first({ charges: wholes, op, gives, resets }: Take, askedMs: number | undefined): Take {
    const charges = wholes.map((charge) => {
      const { shards } = charge.limit
      return shards === undefined ? charge : partOf(charge, shards, this.#next(shards.length))
    })
    return { charges, op, gives, resets, askedMs }
  }

  /**
   * The other try of a take that was refused: whatever was short in one part is asked of another. Undefined where that
   * cannot help, because another limit refuses as well or it was not the store that did.
   */
  #second({ charges: wholes }: Take, first: Take, { granted, grants, source }: Taken): Take | undefined {
    if (granted || !knows(source)) return undefined
    const charges: Charge[] = []
    for (const [index, charge] of first.charges.entries()) {
      const short = grants[index]?.short
      const { shard } = charge.limit
      const shards = wholes[index]?.limit.shards
      if (charge.kind === 'force') return undefined // it was charged, and would be again
      if (short === 'now' && shard !== undefined && shards !== undefined) {
        // Any but its own place, which is `index - 1`.
        charges.push(partOf(charge, shards, (shard.index + this.#next(shards.length - 1)) % shards.length))
      } else if (short !== false && isBinding(charge.kind)) return undefined
      else charges.push(charge)
    }
    return { ...first, charges, gives: undefined, resets: undefined } // both are done
  }

  /** The next of `count` places. */
  #next(count: number): number {
    this.#turn = (this.#turn + STEP) % 1
    return Math.floor(this.#turn * count)
  }
}

/** Every part of the buckets that a take resets. */
function withParts(take: Take): Take {
  return take.resets === undefined ? take : { ...take, resets: take.resets.flatMap(partsOf) }
}

function partsOf(bucket: BucketName): readonly BucketName[] {
  return bucket.limit.shards?.map((limit) => ({ ...bucket, limit })) ?? [bucket]
}

function isSplit({ limit }: Charge): boolean {
  return limit.shards !== undefined
}

function partOf(charge: Charge, shards: readonly Limit[], place: number): Charge {
  return { ...charge, limit: shards[place] as Limit } // places are below the number of parts
}

/** Whether an answer tells what buckets hold. */
function knows(source: Taken['source']): boolean {
  return source === 'store' || source === 'lease'
}

/** The answer in terms of the whole. What is left of it is estimated from the part. */
function asWhole({ charges: wholes }: Take, { charges }: Take, taken: Taken): Taken {
  const { granted, nowUs, source, replayed } = taken
  const grants = taken.grants.map((grant, index): Grant => {
    const whole = wholes[index]?.limit
    const part = charges[index]?.limit
    if (whole === undefined || part === undefined || whole === part) return grant
    const size = decidedAt(taken, grant).source === 'local' ? whole.capacity : part.capacity // locally it is not split
    const remaining = Math.floor((grant.remaining * whole.capacity) / size)
    // Field by field: to add one to a spread object takes V8 a microsecond.
    const { units, short, resetAfterUs, retryAfterUs, delayUs, bookedUs, spentUs, at } = grant
    return { units, short, remaining, resetAfterUs, retryAfterUs, delayUs, bookedUs, spentUs, part, at }
  })
  return { granted, nowUs, grants, source, replayed }
}

/**
 * What is told after two tries. If both refuse: the shorter wait. If the store did not answer the second one, the
 * refusal of the first stands: it was no outage that refused.
 */
function eitherOf(first: Taken, second: Taken): Taken {
  if (!knows(second.source)) return first
  if (second.granted) return second
  const grants = second.grants.map((grant, index) => {
    const other = first.grants[index] ?? grant
    return grant.short === 'now' && other.short === 'now' && other.retryAfterUs < grant.retryAfterUs ? other : grant
  })
  return { ...second, grants }
}
