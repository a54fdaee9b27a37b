// Counters that a fleet shares, in one Redis. Every take is one atomic script on Redis time, whatever the number of
// rules; nothing is sent twice, so a connection that breaks in mid-reply may lose an answer but never counts double.

import { approximateStore } from '../approximate/approximate-store.ts'
import type { Clock } from '../clock.ts'
import { LimiterError, optionInvalid } from '../errors.ts'
import type { BreakerState, Transition } from '../failure/breaker.ts'
import { DEADLINE_MS, type GuardedStore, guardStore } from '../failure/guard-store.ts'
import { leaseStore } from '../lease/lease-store.ts'
import { shardStore } from '../shards/shard-store.ts'
import {
  type BucketName,
  type Charge,
  type Give,
  requireOp,
  type Store,
  type Take,
  type Taken,
} from '../store/store.ts'
import { Batcher, type BatchObserver } from './batcher.ts'
import { connect, type RedisClient } from './client.ts'
import { KeyNames } from './key.ts'
import type { Request } from './wire.ts'

export type RedisStoreOptions = BatchObserver & {
  /** Connections to Redis; requests are spread over them turn by turn. */
  readonly connections?: number
  /** First part of every key in Redis. */
  readonly prefix?: string
  /** Key of the hash by which owners too long to be written out are named: the same on every node. */
  readonly keySecret?: string
  /** For tests: a time instead of the one of Redis. */
  readonly clock?: Clock
  /** How long a take may wait for Redis before the rules' `on_fail` decides; 0: for ever, and failures are errors. */
  readonly deadlineMs?: number
  /** Whether units of leased rules are held ahead of need; without it every check asks Redis. */
  readonly leases?: boolean
  /** How many nodes share the limits, for rules with `consistency: local` or `on_fail: local`. */
  readonly nodes?: number
  /** Told when Redis is given up, and when it is back. */
  readonly onTransition?: (transition: Transition) => void
}

export type RedisStore = Store & {
  /** Settles when the first attempt to connect has ended, well or not. */
  ready(): Promise<void>
  /** `closed` while Redis answers. */
  breaker(): BreakerState
  /** Leaves Redis alone for a while, on purpose: an outage to rehearse. */
  drill(forMs: number): void
}

const CONNECTIONS_MAX = 64

export function redisStore(client: RedisClient, options: RedisStoreOptions = {}): RedisStore {
  const { connections = 1, prefix = 'sl' } = options
  check('connections', connections, `give a whole number from 1 to ${CONNECTIONS_MAX}`, () => {
    return Number.isInteger(connections) && connections >= 1 && connections <= CONNECTIONS_MAX
  })
  check('prefix', prefix, 'give 1 to 32 characters of a-z, A-Z, 0-9, "_", "." and "-"', () =>
    /^[\w.-]{1,32}$/.test(prefix),
  )
  const { deadlineMs = DEADLINE_MS, nodes = 1 } = options
  check('deadlineMs', deadlineMs, 'give milliseconds, 0 for no deadline', () => deadlineMs >= 0 && deadlineMs < 60_000)
  check('nodes', nodes, 'give a whole number of at least 1', () => Number.isInteger(nodes) && nodes >= 1)
  const batched = new BatchedRedisStore(client, options, connections, prefix)
  const ready = batched.ready()
  const guarded = deadlineMs === 0 ? undefined : guardStore(batched, { ...options, deadlineMs, nodes, ready })
  const inner = guarded ?? batched
  const leased = options.leases === false ? inner : leaseStore(inner)
  return new LayeredStore(approximateStore(shardStore(leased), { nodes }), guarded, ready)
}

/** The layers as one: whatever is asked goes to the outermost. */
class LayeredStore implements RedisStore {
  readonly #outer: Store
  readonly #guarded: GuardedStore | undefined
  readonly #ready: Promise<void>

  constructor(outer: Store, guarded: GuardedStore | undefined, ready: Promise<void>) {
    this.#outer = outer
    this.#guarded = guarded
    this.#ready = ready
  }

  ready(): Promise<void> {
    return this.#ready
  }

  breaker(): BreakerState {
    return this.#guarded?.breaker ?? 'closed'
  }

  drill(forMs: number): void {
    this.#guarded?.drill(forMs)
  }

  take(take: Take): Taken | Promise<Taken> {
    return this.#outer.take(take)
  }

  takeSync(take: Take): Taken | undefined {
    return this.#outer.takeSync?.(take)
  }

  peek(charges: readonly Charge[]): Taken | Promise<Taken> {
    return this.#outer.peek(charges)
  }

  give(gives: readonly Give[], opId?: string): void | Promise<void> {
    return this.#outer.give(gives, opId)
  }

  reset(bucket: BucketName): void | Promise<void> {
    return this.#outer.reset(bucket)
  }

  stats(): Readonly<Record<string, number>> {
    return this.#outer.stats?.() ?? {}
  }

  close(): Promise<void> {
    return this.#outer.close()
  }
}

class BatchedRedisStore implements Store {
  readonly #batchers: readonly Batcher[]
  readonly #attempted: Promise<unknown>
  #turn = 0
  #closed = false

  constructor(client: RedisClient, options: RedisStoreOptions, connections: number, prefix: string) {
    const names = new KeyNames(prefix, options.keySecret ?? 'sluice')
    const { clock } = options
    const nowArgument = clock === undefined ? () => '' : () => String(clock.nowUs())
    const own = Array.from({ length: connections }, () => connect(client))
    this.#batchers = own.map((connection) => new Batcher(connection, names, options, nowArgument))
    this.#attempted = Promise.all(own.map(({ attempted }) => attempted))
  }

  async ready(): Promise<void> {
    await this.#attempted
  }

  take({ charges, op, gives }: Take): Promise<Taken> {
    requireOp({ charges, op })
    return this.#answer({ verb: 'take', charges, opId: op?.id, gives })
  }

  peek(charges: readonly Charge[]): Promise<Taken> {
    return this.#answer({ verb: 'peek', charges, opId: undefined, gives: undefined })
  }

  async give(gives: readonly Give[], opId?: string): Promise<void> {
    if (gives.length > 0) await this.#run({ verb: 'give', gives, opId })
  }

  async reset(bucket: BucketName): Promise<void> {
    await this.#run({ verb: 'reset', bucket })
  }

  stats(): Readonly<Record<string, number>> {
    const sum = (read: (batcher: Batcher) => number) => this.#batchers.reduce((total, one) => total + read(one), 0)
    return {
      batches: sum((one) => one.batches),
      requests: sum((one) => one.requests),
      errors: sum((one) => one.errors),
    }
  }

  async close(): Promise<void> {
    this.#closed = true
    await Promise.all(this.#batchers.map((batcher) => batcher.close()))
  }

  #answer(request: Request): Promise<Taken> {
    return this.#run(request) as Promise<Taken> // takes and peeks are always answered
  }

  #run(request: Request): Promise<Taken | undefined> {
    if (this.#closed) throw new LimiterError('CLOSED', 'the Redis store was closed: create a new one')
    const batchers = this.#batchers
    this.#turn = (this.#turn + 1) % batchers.length
    return (batchers[this.#turn] as Batcher).run(request) // the turn is below the number of batchers
  }
}

function check(field: string, value: unknown, fix: string, holds: () => boolean): void {
  if (holds()) return
  throw optionInvalid(field, value, fix)
}
