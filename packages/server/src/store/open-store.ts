// Opens the store of a node, connected to metrics and health.

import { type ErrorCode, memoryStore, type Store } from 'sluice'
import type { RedisInfo } from 'sluice/redis'
import type { RegionStore } from 'sluice/regions'
import type { Log } from '../log.ts'
import type { Metrics } from '../metrics/metrics.ts'
import { STORE_DEADLINE_MS } from '../settings/deadlines.ts'
import { isClusterUrl } from '../settings/redis-url.ts'
import { settingInvalid } from '../settings/setting-invalid.ts'
import type { Settings } from '../settings/settings.ts'
import { warmUp } from './probe.ts'
import { connectOnce, redisClient } from './redis-client.ts'
import { RedisHealth } from './redis-health.ts'
import { redisValues, type SharedValues } from './shared-values.ts'
import { StorePressure } from './store-pressure.ts'

export type OpenStore = {
  readonly kind: 'memory' | 'redis'
  readonly store: Store
  /** The store without the leases of this node, which issues leases to remote nodes. */
  readonly unleased: Store
  /** The code of the last failure, until the store answers again. */
  failure(): ErrorCode | undefined
  /** Tracks whether the store has room. */
  readonly pressure: StorePressure
  /** Opens the circuit breaker of Redis on purpose, for this long; undefined for the memory store. */
  readonly drill: ((forMs: number) => void) | undefined
  /** Values that all nodes of the store share; undefined for the memory store. */
  readonly sharedValues?: SharedValues | undefined
  /** The same store, on a node in a region. */
  readonly region?: RegionStore | undefined
}

/** Interval at which a Redis without requests is probed: /readyz, metrics and log notice an outage without traffic. */
export const IDLE_PROBE_MS = 1000

/** Cap on the time that an unreachable Redis delays the start. */
export const CONNECT_MS_MAX = 2000

export type StoreSettings = Pick<
  Settings,
  | 'redis'
  | 'stores'
  | 'redisConnections'
  | 'redisReads'
  | 'redisSlotGroups'
  | 'storeDeadlineMs'
  | 'nodes'
  | 'workers'
  | 'maxKeys'
>

export async function openStore(settings: StoreSettings, metrics: Metrics, log: Log): Promise<OpenStore> {
  const { redis } = settings
  const pressure = new StorePressure(log)
  const opened =
    redis === undefined ? inMemory(settings, pressure) : await openRedis(redis, settings, metrics, log, pressure)
  metrics.watchStore(opened.store)
  return opened
}

function inMemory({ maxKeys, nodes }: StoreSettings, pressure: StorePressure): OpenStore {
  const store = memoryStore({
    ...(maxKeys === undefined ? {} : { maxKeys }),
    ...(nodes === undefined ? {} : { nodes }),
  })
  pressure.watch(store)
  return { kind: 'memory', store, unleased: store, failure: () => undefined, pressure, drill: undefined }
}

/** The service starts even if Redis is down: it reports so in /readyz, and recovers with Redis. */
async function openRedis(
  url: string,
  settings: StoreSettings,
  metrics: Metrics,
  log: Log,
  pressure: StorePressure,
): Promise<OpenStore> {
  const { redisConnections: connections = 1, redisReads: readFrom = 'primaries', storeDeadlineMs, workers } = settings
  const nodes = settings.nodes ?? workers // each worker is a node
  const { redisStore } = await import('sluice/redis')
  const client = await redisClient(url, CONNECT_MS_MAX)
  const named = Object.entries(settings.stores ?? {}).map(
    async ([name, other]) => [name, await redisClient(other, CONNECT_MS_MAX)] as const,
  )
  const stores = Object.fromEntries(await Promise.all(named))
  const slotGroups = slotGroupsFor([url, ...Object.values(settings.stores ?? {})], settings)
  const health = new RedisHealth(log)
  let isWarm = false
  const store = redisStore(client, {
    stores,
    connections,
    readFrom,
    ...slotGroups,
    deadlineMs: storeDeadlineMs ?? STORE_DEADLINE_MS,
    idleProbeMs: IDLE_PROBE_MS,
    ...(nodes === undefined ? {} : { nodes }),
    onTransition: (transition) => health.changed(transition),
    onBatch: (requests, seconds, at) => {
      if (isWarm) metrics.storeAnswered(requests, seconds, at)
      health.answered()
    },
    onError: (error, at) => {
      metrics.storeFailed(error.code, at)
      if (error.code === 'STORE_FULL') pressure.observed('store_full')
      if (error.code === 'STORE_CORRUPT') pressure.observed('store_corrupt')
      health.failed(error)
    },
  })
  health.watch(store)
  await store.ready()
  const info = await store.info()
  try {
    requireSlotGroups(info)
  } catch (error) {
    await store.close() // open connections would keep the process alive
    throw error
  }
  logServerWarnings(info, log)
  await warmUp(store)
  isWarm = true
  metrics.watchRedis(store)
  pressure.watch(store, store)
  return {
    kind: 'redis',
    store,
    unleased: store.unleased,
    sharedValues: redisValues(await connectOnce(url, CONNECT_MS_MAX)),
    failure: () => health.failure,
    pressure,
    drill: (forMs) => {
      health.drilled(forMs)
      store.drill(forMs)
    },
  }
}

/** The option for a store on these URLs: only a Cluster has slots. */
export function slotGroupsFor(
  urls: readonly string[],
  { redisSlotGroups: slotGroups }: Pick<Settings, 'redisSlotGroups'>,
): { readonly slotGroups?: number } {
  return slotGroups !== undefined && urls.some(isClusterUrl) ? { slotGroups } : {}
}

/** Throws if other nodes use another number of slot groups. An unreachable Redis is compared later: StorePressure. */
export function requireSlotGroups(info: Readonly<Record<string, RedisInfo>>): void {
  for (const [name, { slotGroups }] of Object.entries(info)) {
    if (slotGroups === undefined || slotGroups.own === slotGroups.recorded) continue
    const record = `the ${slotGroups.recorded} that Redis (store ${name}) has on record`
    const fix = `use ${record}, or change the record: see "Slot groups" in docs/guides/redis.md`
    throw settingInvalid('redis-slot-groups', slotGroups.own, fix)
  }
}

function logServerWarnings(info: Readonly<Record<string, RedisInfo>>, log: Log): void {
  for (const [name, { mayEvict, policy, primaries, slotGroups }] of Object.entries(info)) {
    if (mayEvict) log.event('store_may_evict', { store: name, policy })
    if (slotGroups !== undefined && primaries > slotGroups.own) {
      log.event('store_primaries_idle', { store: name, primaries, slot_groups: slotGroups.own })
    }
  }
}
