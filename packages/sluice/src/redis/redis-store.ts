// Counters that a fleet shares, in Redis. Every take is one atomic script on Redis time, whatever the number of rules,
// or one in each place (slot, server) that it concerns; nothing is sent twice, so a connection that breaks in mid-reply
// may lose an answer but never counts double.

import { DEFAULT_STORE } from '../algorithms/limit.ts'
import { approximateStore } from '../approximate/approximate-store.ts'
import type { Clock } from '../clock.ts'
import { optionInvalid } from '../errors.ts'
import type { BreakerState } from '../failure/breaker.ts'
import { DEADLINE_MS } from '../failure/guard-store.ts'
import { type KnownFields, requireKnown } from '../known-fields.ts'
import { leaseStore } from '../lease/lease-store.ts'
import { scatterStore } from '../scatter/scatter-store.ts'
import { shardStore } from '../shards/shard-store.ts'
import { checkBucket, checkCharges, checkGives, checkTake } from '../store/request-check.ts'
import type { BucketName, Charge, Give, Once, Returned, Store, Take, Taken } from '../store/store.ts'
import { warn } from '../warning.ts'
import { BatchedStore } from './batched-store.ts'
import type { BatchObserver } from './batcher.ts'
import { isCluster, type RedisClient, requireClient } from './client.ts'
import { GuardedRedis, type ServerState, type ServerTransition } from './guarded-redis.ts'
import { KeyNames } from './key.ts'
import type { RedisFacts } from './redis-facts.ts'
import { SlotGroups } from './slot-groups.ts'

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
  /** Of a Cluster: who answers `peek` and `explain`. Replicas may be behind, so such an answer says `stale`. */
  readonly readFrom?: 'primaries' | 'replicas'
  /** Whether units of leased rules are held ahead of need; without it every check asks Redis. */
  readonly leases?: boolean
  /** How many nodes share the limits, for rules with `consistency: local` or `on_fail: local`. */
  readonly nodes?: number
  /**
   * Called when the circuit breaker of Redis, or of a primary of a Cluster, changes its state. Without it, a warning of
   * the process says when an outage begins and ends.
   */
  readonly onTransition?: (transition: ServerTransition) => void
  /** Other servers by name, for rules that are pinned to one of them (`store: hot`). */
  readonly stores?: Readonly<Record<string, RedisClient>>
}

export type RedisStore = Store & {
  /** Settles when the first attempt to connect has ended, well or not. */
  ready(): Promise<void>
  /** `closed` while Redis answers; with several servers, while all of them do. */
  breaker(): BreakerState
  /** The same of each server: a primary of a Cluster is listed once something was asked of it. */
  servers(): readonly ServerState[]
  /** What each Redis says about itself, by the name of its store; nothing of one that cannot be asked now. */
  facts(): Promise<Readonly<Record<string, RedisFacts>>>
  /** Leaves Redis alone for a while, on purpose: an outage to rehearse. */
  drill(forMs: number): void
}

const CONNECTIONS_MAX = 64

const OPTIONS: KnownFields<RedisStoreOptions> = {
  connections: true,
  prefix: true,
  keySecret: true,
  clock: true,
  deadlineMs: true,
  readFrom: true,
  leases: true,
  nodes: true,
  onTransition: true,
  stores: true,
  onBatch: true,
  onError: true,
}

export function redisStore(client: RedisClient, options: RedisStoreOptions = {}): RedisStore {
  requireClient('client', client)
  requireKnown(options, OPTIONS, '{ prefix, … } behind the client, or nothing')
  const { connections = 1, prefix = 'sl', stores = {} } = options
  for (const [name, other] of Object.entries(stores)) requireClient(`stores.${name}`, other)
  check('connections', connections, `give a whole number from 1 to ${CONNECTIONS_MAX}`, () => {
    return Number.isInteger(connections) && connections >= 1 && connections <= CONNECTIONS_MAX
  })
  check(
    'prefix',
    prefix,
    'give 1 to 32 characters of a-z, A-Z, 0-9, "_", "." and "-"',
    () => typeof prefix === 'string' && /^[\w.-]{1,32}$/.test(prefix),
  )
  const { deadlineMs = DEADLINE_MS, nodes = 1 } = options
  check('deadlineMs', deadlineMs, 'give milliseconds, 0 for no deadline', () => {
    return typeof deadlineMs === 'number' && deadlineMs >= 0 && deadlineMs < 60_000
  })
  check('nodes', nodes, 'give a whole number of at least 1', () => Number.isInteger(nodes) && nodes >= 1)
  const { readFrom = 'primaries' } = options
  check('readFrom', readFrom, 'use "primaries", or "replicas" with a client of a Cluster', () => {
    return readFrom === 'primaries' || (readFrom === 'replicas' && [client, ...Object.values(stores)].some(isCluster))
  })
  const readsReplicas = readFrom === 'replicas'
  const { keySecret = 'sluice', leases = true, onTransition = warnOfOutage, onBatch, onError } = options
  check('keySecret', keySecret, 'give a text', () => typeof keySecret === 'string' && keySecret !== '')
  check('leases', leases, 'use true or false', () => typeof leases === 'boolean')
  for (const [field, listener] of Object.entries({ onTransition, onBatch, onError })) {
    check(field, listener, 'pass a function', () => listener === undefined || typeof listener === 'function')
  }
  const open = ([name, own]: [string, RedisClient]): GuardedRedis => {
    const names = new KeyNames(prefix, keySecret, isCluster(own) ? new SlotGroups(keySecret) : undefined)
    const batched = new BatchedStore(own, { ...options, connections, names, clock: options.clock, readsReplicas })
    return new GuardedRedis(name, batched, { ...options, deadlineMs, nodes, names, onTransition })
  }
  const all = [[DEFAULT_STORE, client] as [string, RedisClient], ...Object.entries(stores)].map(open)
  const inner = joined(all)
  const leased = leases ? leaseStore(inner) : inner
  return new LayeredStore(approximateStore(shardStore(leased), { nodes }), all, Object.keys(stores))
}

/** Several servers, or the slots of a Cluster, as one store. */
function joined(all: readonly GuardedRedis[]): Store {
  const [first] = all
  if (all.length === 1 && first?.whole !== undefined) return first.whole
  const byName = new Map(all.map((redis) => [redis.name, redis]))
  return scatterStore({
    // The limiter refuses rules that name another store; what is left of such goes to the default one.
    placeOf: (bucket) => ((byName.get(bucket.limit.store) ?? first) as GuardedRedis).placeOf(bucket),
    stores: () => all.flatMap((redis) => redis.stores()),
  })
}

/** The layers as one: every request is checked here, then goes to the outermost. */
class LayeredStore implements RedisStore {
  readonly named: readonly string[]
  readonly #outer: Store
  readonly #all: readonly GuardedRedis[]

  constructor(outer: Store, all: readonly GuardedRedis[], named: readonly string[]) {
    this.#outer = outer
    this.#all = all
    this.named = named
  }

  async ready(): Promise<void> {
    await Promise.all(this.#all.map(({ ready }) => ready))
  }

  breaker(): BreakerState {
    return this.servers().some(({ state }) => state === 'open') ? 'open' : 'closed'
  }

  servers(): readonly ServerState[] {
    return this.#all.flatMap((redis) => redis.states())
  }

  async facts(): Promise<Readonly<Record<string, RedisFacts>>> {
    const asked = await Promise.allSettled(this.#all.map(async (redis) => [redis.name, await redis.facts()] as const))
    return Object.fromEntries(asked.flatMap((one) => (one.status === 'fulfilled' ? [one.value] : [])))
  }

  drill(forMs: number): void {
    for (const redis of this.#all) redis.drill(forMs)
  }

  take(take: Take): Taken | Promise<Taken> {
    checkTake(take)
    return this.#outer.take(take)
  }

  takeSync(take: Take): Taken | undefined {
    checkTake(take)
    return this.#outer.takeSync?.(take)
  }

  peek(charges: readonly Charge[], mayBeStale?: boolean): Taken | Promise<Taken> {
    checkCharges(charges)
    return this.#outer.peek(charges, mayBeStale)
  }

  give(gives: readonly Give[], opId?: string, once?: Once): Returned | Promise<Returned> {
    checkGives(gives, opId)
    return this.#outer.give(gives, opId, once)
  }

  reset(bucket: BucketName): void | Promise<void> {
    checkBucket(bucket)
    return this.#outer.reset(bucket)
  }

  stats(): Readonly<Record<string, number>> {
    return this.#outer.stats?.() ?? {}
  }

  close(): Promise<void> {
    return this.#outer.close()
  }
}

/** Stands in for an absent `onTransition`: without a word, on_fail would decide for the length of an outage. */
function warnOfOutage({ state, store, server }: ServerTransition): void {
  const about = server === undefined ? `store ${store}` : `store ${store}, server ${server}`
  warn(state === 'open' ? 'SLUICE_STORE_DOWN' : 'SLUICE_STORE_UP', about)
}

function check(field: string, value: unknown, fix: string, holds: () => boolean): void {
  if (holds()) return
  throw optionInvalid(field, value, fix)
}
