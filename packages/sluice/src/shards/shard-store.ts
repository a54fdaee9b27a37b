// Wraps a store to split hot buckets into shards. A take charges one shard and, if that refuses, is retried once with
// another. The shards add up to the limit (compileLimit), so together they never admit more than the limit; they may
// refuse while another shard still has units. A take stays all or nothing.

import type { Limit } from '../algorithms/limit.ts'
import { andThen } from '../maybe-promise.ts'
import { mergeGrants } from '../store/grant.ts'
import type { SomeStats } from '../store/stats.ts'
import {
  type BucketName,
  type Charge,
  decidedAt,
  type Give,
  type GiveReply,
  type Grant,
  type IdempotencyKey,
  isBinding,
  type SpentTime,
  type Store,
  type Take,
  type Taken,
} from '../store/store.ts'

export type ShardOptions = {
  readonly random?: () => number
}

/** Golden-ratio sequence: evenly distributed for any shard count, also when subsampled. */
const STEP = (Math.sqrt(5) - 1) / 2

export function shardStore(store: Store, options: ShardOptions = {}): Store {
  return new ShardStore(store, options)
}

class ShardStore implements Store {
  readonly #store: Store
  /** From 0 to 1. Nodes start at different positions, or all would charge the same shard at the same time. */
  #turn: number

  constructor(store: Store, { random = Math.random }: ShardOptions) {
    this.#store = store
    this.#turn = random()
  }

  takeSync(wanted: Take): Taken | undefined {
    const take = withShards(wanted)
    if (!take.charges.some(isSplit)) return this.#store.takeSync?.(take)
    const first = this.#first(take, undefined)
    const taken = this.#store.takeSync?.(first)
    if (taken === undefined) return undefined
    const second = this.#second(take, first, taken)
    if (second === undefined) return asWhole(take, first, taken)
    const retaken = this.#store.takeSync?.(second)
    return retaken && betterOf(asWhole(take, first, taken), asWhole(take, second, retaken))
  }

  take(wanted: Take): Taken | Promise<Taken> {
    const take = withShards(wanted)
    if (!take.charges.some(isSplit)) return this.#store.take(take)
    // Both attempts share one deadline.
    const first = this.#first(take, take.spent ?? { ms: 0 })
    return andThen(this.#store.take(first), (taken) => {
      const second = this.#second(take, first, taken)
      if (second === undefined) return asWhole(take, first, taken)
      return andThen(this.#store.take(second), (retaken) =>
        betterOf(asWhole(take, first, taken), asWhole(take, second, retaken)),
      )
    })
  }

  give(gives: readonly Give[], opId?: string, idempotencyKey?: IdempotencyKey): GiveReply | Promise<GiveReply> {
    return this.#store.give(gives, opId, idempotencyKey) // they name the shards: see Grant
  }

  /** Reads all shards, so it may find units where a take, which tries two, does not. */
  peek(charges: readonly Charge[], mayBeStale?: boolean, expiresMs?: number): Taken | Promise<Taken> {
    if (!charges.some(isSplit)) return this.#store.peek(charges, mayBeStale, expiresMs)
    const perCharge = charges.map((charge) => charge.limit.shards?.map((limit) => ({ ...charge, limit })) ?? [charge])
    return andThen(
      this.#store.peek(perCharge.flat(), mayBeStale, expiresMs),
      ({ nowUs, grants, source, replayed, stale }) => {
        let at = 0
        const sums = perCharge.map(({ length }) => {
          at += length
          return mergeGrants(grants.slice(at - length, at))
        })
        const granted = charges.every(({ kind }, index) => !isBinding(kind) || sums[index]?.short === false)
        return { granted, nowUs, grants: sums, source, replayed, stale }
      },
    )
  }

  async reset(bucket: BucketName): Promise<void> {
    await Promise.all(shardsOf(bucket).map((shard) => this.#store.reset(shard)))
  }

  stats(): SomeStats {
    return this.#store.stats?.() ?? {}
  }

  close(): Promise<void> {
    return this.#store.close()
  }

  #first({ charges: wholes, op, gives, resets, expiresMs }: Take, spent: SpentTime | undefined): Take {
    const charges = wholes.map((charge) => {
      const { shards } = charge.limit
      return shards === undefined ? charge : toShard(charge, shards, this.#next(shards.length))
    })
    return { charges, op, gives, resets, spent, expiresMs }
  }

  /**
   * The retry of a refused take, with another shard for each short one. Undefined where that cannot help: another limit
   * refuses as well, or the refusal did not come from the store.
   */
  #second({ charges: wholes }: Take, first: Take, { granted, grants, source }: Taken): Take | undefined {
    if (granted || !isFromStore(source)) return undefined
    const charges: Charge[] = []
    for (const [index, charge] of first.charges.entries()) {
      const short = grants[index]?.short
      const { shard } = charge.limit
      const shards = wholes[index]?.limit.shards
      if (charge.kind === 'force') return undefined // it was charged, and would be charged again
      if (short === 'now' && shard !== undefined && shards !== undefined) {
        // Any position but its own, which is `index - 1`.
        charges.push(toShard(charge, shards, (shard.index + this.#next(shards.length - 1)) % shards.length))
      } else if (short !== false && isBinding(charge.kind)) return undefined
      else charges.push(charge)
    }
    return { ...first, charges, gives: undefined, resets: undefined } // both are applied by the first attempt
  }

  /** The next of `count` positions. */
  #next(count: number): number {
    this.#turn = (this.#turn + STEP) % 1
    return Math.floor(this.#turn * count)
  }
}

/** The take with every shard of the buckets that it resets. */
function withShards(take: Take): Take {
  return take.resets === undefined ? take : { ...take, resets: take.resets.flatMap(shardsOf) }
}

function shardsOf(bucket: BucketName): readonly BucketName[] {
  return bucket.limit.shards?.map((limit) => ({ ...bucket, limit })) ?? [bucket]
}

function isSplit({ limit }: Charge): boolean {
  return limit.shards !== undefined
}

function toShard(charge: Charge, shards: readonly Limit[], position: number): Charge {
  return { ...charge, limit: shards[position] as Limit } // positions are below the number of shards
}

/** Whether a reply reflects the state of the buckets. */
function isFromStore(source: Taken['source']): boolean {
  return source === 'store' || source === 'lease'
}

/** The result in terms of the whole limit. Its remaining units are estimated from the shard. */
function asWhole({ charges: wholes }: Take, { charges }: Take, taken: Taken): Taken {
  const { granted, nowUs, source, policyReason, replayed } = taken
  const grants = taken.grants.map((grant, index): Grant => {
    const whole = wholes[index]?.limit
    const shard = charges[index]?.limit
    if (whole === undefined || shard === undefined || whole === shard) return grant
    const size = decidedAt(taken, grant).source === 'local' ? whole.capacity : shard.capacity // local: not split
    const remaining = Math.floor((grant.remaining * whole.capacity) / size)
    const { units, short, resetAfterUs, retryAfterUs, delayUs, bookedUs, spentUs, at } = grant
    return { units, short, remaining, resetAfterUs, retryAfterUs, delayUs, bookedUs, spentUs, sublimit: shard, at }
  })
  return { granted, nowUs, grants, source, policyReason, replayed }
}

/**
 * The result of two attempts. If both refuse: the shorter wait. If the store did not reply to the second, the refusal
 * of the first stands.
 */
function betterOf(first: Taken, second: Taken): Taken {
  if (!isFromStore(second.source)) return first
  if (second.granted) return second
  const grants = second.grants.map((grant, index) => {
    const other = first.grants[index] ?? grant
    return grant.short === 'now' && other.short === 'now' && other.retryAfterUs < grant.retryAfterUs ? other : grant
  })
  return { ...second, grants }
}
