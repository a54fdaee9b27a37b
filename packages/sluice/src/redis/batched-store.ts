// The store that Redis itself is: requests go out in batches, over one or several connections, and come back as Redis
// answered them. Whatever waits, gives up or decides otherwise is around it.

import type { Clock } from '../clock.ts'
import { LimiterError } from '../errors.ts'
import type { Peek } from '../failure/guard-store.ts'
import {
  type BucketName,
  type Charge,
  type Give,
  type Given,
  type Once,
  requireOp,
  type Store,
  type Take,
  type Taken,
} from '../store/store.ts'
import { Batcher, type BatchObserver } from './batcher.ts'
import { type Connection, connect, type RedisClient } from './client.ts'
import type { KeyNames } from './key.ts'
import { factsOf, type RedisFacts } from './redis-facts.ts'
import type { Answer, Request } from './request.ts'
import { inPatience } from './unreachable.ts'

export type BatchedOptions = BatchObserver & {
  readonly connections: number
  readonly names: KeyNames
  readonly clock: Clock | undefined
  readonly readsReplicas: boolean
}

export class BatchedStore implements Store {
  /** Settles when the first attempt to connect has ended, well or not. */
  readonly ready: Promise<unknown>
  /** Of a Cluster: see Connection. */
  readonly primaryOf: Connection['primaryOf']
  readonly #connections: readonly Connection[]
  readonly #batchers: readonly Batcher[]
  /** One for what replicas are asked; they say nothing about how the primaries are, so nobody observes them. */
  readonly #reader: Batcher | undefined
  #turn = 0
  #closed = false

  constructor(client: RedisClient, options: BatchedOptions) {
    const { connections, names, clock, readsReplicas } = options
    const nowArgument = clock === undefined ? () => '' : () => String(clock.nowUs())
    const own = Array.from({ length: connections }, () => connect(client, readsReplicas))
    this.#connections = own
    this.#batchers = own.map((connection) => new Batcher(connection, names, options, nowArgument))
    this.ready = Promise.all(own.map(({ attempted }) => attempted))
    this.primaryOf = own[0]?.primaryOf
    const [first] = own
    this.#reader = first?.read && new Batcher({ ...first, send: first.read }, names, {}, nowArgument)
  }

  take({ charges, op, gives, resets }: Take): Promise<Taken> {
    requireOp({ charges, op })
    return this.#answer({ verb: 'take', charges, opId: op?.id, gives, resets })
  }

  peek(charges: readonly Charge[]): Promise<Taken> {
    return this.#answer(peekOf(charges))
  }

  /** Undefined where no replica is to be asked. */
  get peekReplicas(): Peek | undefined {
    const reader = this.#reader
    if (reader === undefined) return undefined
    return async (charges) => {
      const taken = await reader.run(peekOf(charges))
      const { granted, nowUs, grants, source, replayed } = taken as Taken // peeks are always answered
      return { granted, nowUs, grants, source, replayed, stale: true }
    }
  }

  async give(gives: readonly Give[], opId?: string, once?: Once): Promise<Given> {
    if (gives.length === 0) return 'given'
    const given = await this.#run({ verb: 'give', gives, opId, once })
    return (given as Given | undefined) ?? 'given' // gives are answered in no other way
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
      dropped: sum((one) => one.dropped),
    }
  }

  async facts(): Promise<RedisFacts> {
    const infos = await inPatience(this.#connections[0]?.infos() ?? Promise.resolve([]))
    if (infos.length === 0) throw new LimiterError('STORE_UNAVAILABLE', 'no primary is known yet')
    return factsOf(infos)
  }

  async close(): Promise<void> {
    this.#closed = true
    await Promise.all(this.#batchers.map((batcher) => batcher.close()))
  }

  #answer(request: Request): Promise<Taken> {
    return this.#run(request) as Promise<Taken> // takes and peeks are always answered
  }

  #run(request: Request): Promise<Answer> {
    if (this.#closed) throw new LimiterError('CLOSED', 'the Redis store was closed: create a new one')
    const batchers = this.#batchers
    this.#turn = (this.#turn + 1) % batchers.length
    return (batchers[this.#turn] as Batcher).run(request) // the turn is below the number of batchers
  }
}

function peekOf(charges: readonly Charge[]): Request {
  return { verb: 'peek', charges, opId: undefined, gives: undefined, resets: undefined }
}
