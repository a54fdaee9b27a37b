// Store for a fleet, in Redis. Every take is one atomic script call, for any number of rules, or one per target
// (slot, server). Time is that of Redis. Nothing is sent twice: a connection that breaks may lose a reply, but no take
// counts twice.

import { DEFAULT_STORE } from '../algorithms/limit.ts'
import { approximateStore } from '../approximate/approximate-store.ts'
import { type Clock, systemTimers } from '../clock.ts'
import { optionInvalid } from '../errors.ts'
import type { BreakerState } from '../failure/breaker.ts'
import { DEADLINE_MS } from '../failure/guard-store.ts'
import { type KnownFields, requireKnown } from '../known-fields.ts'
import { leaseStore } from '../lease/lease-store.ts'
import { scatterStore } from '../scatter/scatter-store.ts'
import { shardStore } from '../shards/shard-store.ts'
import type { SomeStats } from '../store/stats.ts'
import type { BucketName, Charge, Give, GiveReply, IdempotencyKey, Store, Take, Taken } from '../store/store.ts'
import { checkBucket, checkCharges, checkGives, checkTake } from '../store/validate-request.ts'
import { warn } from '../warning.ts'
import { BatchedStore } from './batched-store.ts'
import type { BatchObserver } from './batcher.ts'
import { isCluster, type RedisClient, requireClient } from './client.ts'
import { GuardedRedis, type ServerState, type ServerTransition } from './guarded-redis.ts'
import { KeyNames } from './key.ts'
import type { RedisInfo } from './redis-info.ts'
import { isSlotGroups, SLOT_GROUPS_FIX, SlotGroups } from './slot-groups.ts'

export type RedisStoreOptions = BatchObserver & {
  /** Connections to Redis; requests are distributed round robin. Default: 1. */
  readonly connections?: number
  /** Prefix of every key in Redis. Default: sl. */
  readonly prefix?: string
  /** Secret of the hash that replaces long owners in keys and chooses slot groups. Must be the same on every node. */
  readonly keySecret?: string
  /** For tests: replaces the clock of Redis. */
  readonly clock?: Clock
  /** Deadline of a take, after which `on_fail` of the rules decides. 0: none, and failures are errors. Default: 100. */
  readonly deadlineMs?: number
  /** Servers of a Cluster that answer `peek` and `explain`. Replicas may be behind: their answers say `stale`. */
  readonly readFrom?: 'primaries' | 'replicas'
  /**
   * Slot groups of a Cluster: a power of two, at least the number of primaries, the same on every node. Changing it
   * moves buckets to other keys, so all counts start from zero. Default: 16.
   */
  readonly slotGroups?: number
  /** Whether leased rules use leases; without them every check is a request to Redis. Default: true. */
  readonly leases?: boolean
  /** Number of nodes that share the limits, for `consistency: local` and `on_fail: local`. Default: 1. */
  readonly nodes?: number
  /**
   * Interval at which servers without requests are probed, so that `onTransition` reports an outage without traffic,
   * too. Needs a deadline. Default: none; the first check notices.
   */
  readonly idleProbeMs?: number
  /**
   * Called when the circuit breaker of Redis, or of a primary of a Cluster, opens or closes. Without it, the process
   * emits the warnings SLUICE_STORE_DOWN and SLUICE_STORE_UP.
   */
  readonly onTransition?: (transition: ServerTransition) => void
  /** Further servers by name, for rules with `store: <name>`. */
  readonly stores?: Readonly<Record<string, RedisClient>>
}

export type RedisStore = Store & {
  /** Settles after the first attempt to connect, successful or not. */
  ready(): Promise<void>
  /** State of the circuit breaker; `open` if that of any server is. */
  breaker(): BreakerState
  /** State per server. A primary of a Cluster is listed after the first request to it. */
  servers(): readonly ServerState[]
  /** Keys, memory and eviction of each Redis, by the name of its store. Omits those that do not reply. */
  info(): Promise<Readonly<Record<string, RedisInfo>>>
  /** Opens all circuit breakers for a while, to rehearse an outage. */
  drill(forMs: number): void
  /** The store below the leases of this node: for services that issue leases to remote nodes. */
  readonly unleased: Store
}

const CONNECTIONS_MAX = 64

const OPTIONS: KnownFields<RedisStoreOptions> = {
  connections: true,
  prefix: true,
  keySecret: true,
  clock: true,
  deadlineMs: true,
  readFrom: true,
  slotGroups: true,
  leases: true,
  nodes: true,
  idleProbeMs: true,
  onTransition: true,
  stores: true,
  onBatch: true,
  onError: true,
}

export function redisStore(client: RedisClient, options: RedisStoreOptions = {}): RedisStore {
  requireClient('client', client)
  requireKnown(options, OPTIONS, '{ prefix, … } after the client, or nothing')
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
  const { idleProbeMs } = options
  check('idleProbeMs', idleProbeMs, 'give milliseconds from 100, with deadlineMs above 0', () => {
    return idleProbeMs === undefined || (typeof idleProbeMs === 'number' && idleProbeMs >= 100 && deadlineMs > 0)
  })
  const { readFrom = 'primaries' } = options
  check('readFrom', readFrom, 'use "primaries", or "replicas" with a Cluster client', () => {
    return readFrom === 'primaries' || (readFrom === 'replicas' && [client, ...Object.values(stores)].some(isCluster))
  })
  const readsReplicas = readFrom === 'replicas'
  const { slotGroups } = options
  check('slotGroups', slotGroups, `${SLOT_GROUPS_FIX}, with a Cluster client`, () => {
    return slotGroups === undefined || (isSlotGroups(slotGroups) && [client, ...Object.values(stores)].some(isCluster))
  })
  const { keySecret = 'sluice', leases = true, clock, onTransition = warnOfOutage, onBatch, onError } = options
  check('keySecret', keySecret, 'give a string', () => typeof keySecret === 'string' && keySecret !== '')
  check('leases', leases, 'use true or false', () => typeof leases === 'boolean')
  for (const [field, listener] of Object.entries({ onTransition, onBatch, onError })) {
    check(field, listener, 'pass a function', () => listener === undefined || typeof listener === 'function')
  }
  const open = ([name, own]: [string, RedisClient]): GuardedRedis => {
    const names = new KeyNames(prefix, keySecret, isCluster(own) ? new SlotGroups(keySecret, slotGroups) : undefined)
    const batched = new BatchedStore(own, { store: name, connections, names, clock, readsReplicas, onBatch, onError })
    return new GuardedRedis(name, batched, { deadlineMs, nodes, names, clock, onTransition })
  }
  const all = [[DEFAULT_STORE, client] as [string, RedisClient], ...Object.entries(stores)].map(open)
  for (const redis of all) void warnOfGroupMismatch(redis)
  const inner = combined(all)
  const leased = leases ? leaseStore(inner) : inner
  const layered = approximateStore(shardStore(leased), { nodes })
  return new LayeredStore(layered, inner, all, Object.keys(stores), idleProbeMs)
}

/** Combines several servers, or the slots of a Cluster, into one store. */
function combined(all: readonly GuardedRedis[]): Store {
  const [first] = all
  if (all.length === 1 && first?.single !== undefined) return first.single
  const byName = new Map(all.map((redis) => [redis.name, redis]))
  return scatterStore({
    // The limiter rejects rules with unknown stores. Charges of earlier rules may name one: they go to the default.
    targetOf: (bucket) => ((byName.get(bucket.limit.store) ?? first) as GuardedRedis).targetOf(bucket),
    stores: () => all.flatMap((redis) => redis.stores()),
  })
}

/** Validates every request and passes it to the outermost layer. */
class LayeredStore implements RedisStore {
  readonly named: readonly string[]
  readonly unleased: Store
  readonly #outer: Store
  readonly #all: readonly GuardedRedis[]
  readonly #stopProbing: (() => void) | undefined

  constructor(
    outer: Store,
    unleased: Store,
    all: readonly GuardedRedis[],
    named: readonly string[],
    idleProbeMs: number | undefined,
  ) {
    this.#outer = outer
    this.unleased = unleased
    this.#all = all
    this.named = named
    if (idleProbeMs === undefined) return
    this.#stopProbing = systemTimers.every(idleProbeMs, () => {
      for (const redis of all) redis.probeIdle(idleProbeMs / 2) // the last probe is a little less than a period old
    })
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

  async info(): Promise<Readonly<Record<string, RedisInfo>>> {
    const facts = await Promise.allSettled(this.#all.map(async (redis) => [redis.name, await redis.info()] as const))
    return Object.fromEntries(facts.flatMap((one) => (one.status === 'fulfilled' ? [one.value] : [])))
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

  peek(charges: readonly Charge[], mayBeStale?: boolean, expiresMs?: number): Taken | Promise<Taken> {
    checkCharges(charges)
    return this.#outer.peek(charges, mayBeStale, expiresMs)
  }

  give(gives: readonly Give[], opId?: string, idempotencyKey?: IdempotencyKey): GiveReply | Promise<GiveReply> {
    checkGives(gives, opId)
    return this.#outer.give(gives, opId, idempotencyKey)
  }

  reset(bucket: BucketName): void | Promise<void> {
    checkBucket(bucket)
    return this.#outer.reset(bucket)
  }

  lastUs(): number {
    return Math.max(...this.#all.map((redis) => redis.lastUs()))
  }

  stats(): SomeStats {
    return this.#outer.stats?.() ?? {}
  }

  close(): Promise<void> {
    this.#stopProbing?.()
    return this.#outer.close()
  }
}

/** Default of `onTransition`. */
function warnOfOutage({ state, store, server }: ServerTransition): void {
  const about = server === undefined ? `store ${store}` : `store ${store}, server ${server}`
  warn(state === 'open' ? 'SLUICE_STORE_DOWN' : 'SLUICE_STORE_UP', about)
}

/** Nodes with different numbers of slot groups each admit the full limit. Checked once, after connecting. */
async function warnOfGroupMismatch(redis: GuardedRedis): Promise<void> {
  await redis.ready
  if (redis.single !== undefined) return
  const { slotGroups } = await redis.info().catch(() => ({ slotGroups: undefined })) // the breaker reports an outage
  if (slotGroups === undefined || slotGroups.own === slotGroups.recorded) return
  warn('SLUICE_SLOT_GROUPS', `store ${redis.name} with ${slotGroups.own} slot groups, not ${slotGroups.recorded}`)
}

function check(field: string, value: unknown, fix: string, holds: () => boolean): void {
  if (holds()) return
  throw optionInvalid(field, value, fix)
}
