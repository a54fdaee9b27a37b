// Innermost store: sends requests to Redis in batches, over one or several connections, and returns its replies. Has no
// deadline and no fallback; wrappers add them.

import type { Clock } from '../clock.ts'
import { LimiterError } from '../errors.ts'
import type { Peek } from '../failure/guard-store.ts'
import type { SomeStats } from '../store/stats.ts'
import {
  type BucketName,
  type Charge,
  type Give,
  type GiveResult,
  type IdempotencyKey,
  requireOp,
  type Store,
  type Take,
  type Taken,
} from '../store/store.ts'
import { Batcher, type BatchObserver, unavailable } from './batcher.ts'
import { type Connection, connect, type RedisClient } from './client.ts'
import { keyNameOf } from './full-redis.ts'
import type { KeyNames } from './key.ts'
import { type RedisInfo, redisInfo } from './redis-info.ts'
import type { Reply, Request } from './request.ts'
import { recordSlotGroups } from './slot-record.ts'
import { withTimeout } from './unreachable.ts'

export type BatchedOptions = BatchObserver & {
  readonly connections: number
  readonly names: KeyNames
  readonly clock: Clock | undefined
  readonly readsReplicas: boolean
  /** Name of the store, for the observer. */
  readonly store: string
}

export class BatchedStore implements Store {
  /** Settles after the first attempt to connect, successful or not. */
  readonly ready: Promise<unknown>
  /** Undefined unless Redis is a Cluster. */
  readonly primaryOf: Connection['primaryOf']
  readonly #connections: readonly Connection[]
  readonly #batchers: readonly Batcher[]
  readonly #names: KeyNames
  /** Reads from replicas. Has no observer: replicas say nothing about the health of the primaries. */
  readonly #reader: Batcher | undefined
  #next = 0
  #closed = false

  constructor(client: RedisClient, options: BatchedOptions) {
    const { connections, names, clock, readsReplicas, onBatch, onError, store } = options
    const timeArguments = clock === undefined ? () => [] : () => [String(clock.nowUs())]
    const own = Array.from({ length: connections }, () => connect(client, readsReplicas))
    this.#connections = own
    this.#names = names
    this.#batchers = own.map((connection) => new Batcher(connection, names, { onBatch, onError }, timeArguments, store))
    this.ready = Promise.all(own.map(({ attempted }) => attempted))
    this.primaryOf = own[0]?.primaryOf
    const [first] = own
    this.#reader = first?.read && new Batcher({ ...first, send: first.read }, names, {}, timeArguments, store)
  }

  take({ charges, op, gives, resets, onSent }: Take): Promise<Taken> {
    requireOp({ charges, op })
    return this.#runTake({ verb: 'take', charges, opId: op?.id, gives, resets, onSent })
  }

  peek(charges: readonly Charge[]): Promise<Taken> {
    return this.#runTake(peekOf(charges))
  }

  /** A write that changes nothing and that no figure counts. Redis refuses it whenever it would refuse a take. */
  async probeIdle(bucket: BucketName): Promise<void> {
    const key = keyNameOf(this.#names, bucket)
    const [connection] = this.#connections
    await connection?.attempted
    try {
      await connection?.send('DEL', [key], key)
    } catch (cause) {
      throw unavailable(cause)
    }
  }

  /** Undefined unless replicas are read. */
  get peekReplicas(): Peek | undefined {
    const reader = this.#reader
    if (reader === undefined) return undefined
    return async (charges) => {
      const taken = await reader.run(peekOf(charges))
      const { granted, nowUs, grants, source, replayed } = taken as Taken // peeks always have a result
      return { granted, nowUs, grants, source, replayed, stale: true }
    }
  }

  async give(gives: readonly Give[], opId?: string, idempotencyKey?: IdempotencyKey): Promise<GiveResult> {
    if (gives.length === 0) return 'given'
    const given = await this.#run({ verb: 'give', gives, opId, idempotencyKey })
    return (given as GiveResult | undefined) ?? 'given' // gives have no other result
  }

  async reset(bucket: BucketName): Promise<void> {
    await this.#run({ verb: 'reset', bucket })
  }

  lastUs(): number {
    return Math.max(...this.#batchers.map(({ lastUs }) => lastUs))
  }

  stats(): SomeStats {
    const sum = (read: (batcher: Batcher) => number) => this.#batchers.reduce((total, one) => total + read(one), 0)
    return {
      batches: sum((one) => one.batches),
      requests: sum((one) => one.requests),
      errors: sum((one) => one.errors),
      dropped: sum((one) => one.dropped),
    }
  }

  async info(): Promise<RedisInfo> {
    const [connection] = this.#connections
    const infos = await withTimeout(connection?.infos() ?? Promise.resolve([]))
    if (connection === undefined || infos.length === 0) {
      throw new LimiterError('STORE_UNAVAILABLE', 'no primary is known yet')
    }
    return redisInfo(infos, await withTimeout(recordSlotGroups(connection, this.#names)))
  }

  async close(): Promise<void> {
    this.#closed = true
    await Promise.all(this.#batchers.map((batcher) => batcher.close()))
  }

  #runTake(request: Request): Promise<Taken> {
    return this.#run(request) as Promise<Taken> // takes and peeks always have a result
  }

  #run(request: Request): Promise<Reply> {
    if (this.#closed) throw new LimiterError('CLOSED', 'the Redis store was closed: create a new one')
    const batchers = this.#batchers
    this.#next = (this.#next + 1) % batchers.length
    return (batchers[this.#next] as Batcher).run(request) // the index is below the number of batchers
  }
}

function peekOf(charges: readonly Charge[]): Request {
  return { verb: 'peek', charges, opId: undefined, gives: undefined, resets: undefined }
}
