// Settings → the store that holds the counters, wired to the metrics, and whether it is in trouble right now.

import { type ErrorCode, memoryStore, type Store } from 'sluice'
import type { RedisStore } from 'sluice/redis'
import type { RegionStore } from 'sluice/regions'
import type { Log } from '../log.ts'
import type { Metrics } from '../metrics/metrics.ts'
import type { Settings } from '../settings/settings.ts'
import { warmUp } from './probe.ts'
import { RedisHealth } from './redis-health.ts'
import { connectOnce, redisClient } from './redis-url.ts'
import { redisNotes, type SharedNotes } from './shared-notes.ts'
import { StorePressure } from './store-pressure.ts'

export type OpenStore = {
  readonly kind: 'memory' | 'redis'
  readonly store: Store
  /** The code of the last failure, until the store answers again. */
  failure(): ErrorCode | undefined
  /** Whether the store has room. */
  readonly pressure: StorePressure
  /** Leaves Redis alone for a while, on purpose; there is nothing to leave alone in memory. */
  readonly drill: ((forMs: number) => void) | undefined
  /** Texts that all nodes of the store share; undefined where it is in this process. */
  readonly notes?: SharedNotes | undefined
  /** The same store, where this node is in a region that shares limits with others. */
  readonly region?: RegionStore | undefined
}

/** A Redis that cannot be reached must not hold up the start for long. */
export const CONNECT_MS_MAX = 2000

export type StoreSettings = Pick<
  Settings,
  'redis' | 'stores' | 'redisConnections' | 'redisReads' | 'storeDeadlineMs' | 'nodes' | 'workers' | 'maxKeys'
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
  return { kind: 'memory', store, failure: () => undefined, pressure, drill: undefined }
}

/** Redis may be down: the service starts all the same, says so in /readyz, and works as soon as Redis does. */
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
  const health = new RedisHealth(log)
  let isWarm = false
  const store = redisStore(client, {
    stores,
    connections,
    readFrom,
    ...(storeDeadlineMs === undefined ? {} : { deadlineMs: storeDeadlineMs }),
    ...(nodes === undefined ? {} : { nodes }),
    onTransition: (transition) => health.changed(transition),
    onBatch: (takes, seconds) => {
      if (isWarm) metrics.storeAnswered(takes, seconds)
      health.answered()
    },
    onError: (error) => {
      metrics.storeFailed(error.code)
      if (error.code === 'STORE_FULL') pressure.saw('full')
      health.failed(error)
    },
  })
  health.watch(store)
  await store.ready()
  await warmUp(store)
  isWarm = true
  metrics.watchRedis(store)
  await warnOfEviction(store, log)
  pressure.watch(store, store)
  return {
    kind: 'redis',
    store,
    notes: redisNotes(await connectOnce(url, CONNECT_MS_MAX)),
    failure: () => health.failure,
    pressure,
    drill: (forMs) => {
      health.drilled(forMs)
      store.drill(forMs)
    },
  }
}

/** A Redis that cannot be asked now is in trouble that is told elsewhere. */
async function warnOfEviction(store: RedisStore, log: Log): Promise<void> {
  for (const [name, { mayEvict, policy }] of Object.entries(await store.facts())) {
    if (!mayEvict) continue
    const advice = 'redis evicts live buckets when its memory is full, and their owners start anew'
    log.warn({ store: name, policy }, `${advice}: set maxmemory-policy noeviction`)
  }
}
