// Settings → the store that holds the counters, wired to the metrics, and whether it is in trouble right now.

import { type Charge, compileLimit, type ErrorCode, memoryStore, type Store } from 'sluice'
import type { RegionStore } from 'sluice/regions'
import type { Log } from './log.ts'
import type { Metrics } from './metrics.ts'
import type { Settings } from './settings.ts'

export type OpenStore = {
  readonly kind: 'memory' | 'redis'
  readonly store: Store
  /** The code of the last failure, until the store answers again. */
  failure(): ErrorCode | undefined
  /** Leaves Redis alone for a while, on purpose; there is nothing to leave alone in memory. */
  readonly drill: ((forMs: number) => void) | undefined
  /** The same store, where this node is in a region that shares limits with others. */
  readonly region?: RegionStore | undefined
}

/** A Redis that cannot be reached must not hold up the start for long. */
export const CONNECT_MS_MAX = 2000

export type StoreSettings = Pick<
  Settings,
  'redis' | 'redisConnections' | 'storeDeadlineMs' | 'nodes' | 'workers' | 'maxKeys'
>

export async function openStore(settings: StoreSettings, metrics: Metrics, log: Log): Promise<OpenStore> {
  const opened = settings.redis === undefined ? inMemory(settings) : await openRedis(settings, metrics, log)
  metrics.watchStore(opened.store)
  return opened
}

function inMemory({ maxKeys, nodes }: StoreSettings): OpenStore {
  const store = memoryStore({
    ...(maxKeys === undefined ? {} : { maxKeys }),
    ...(nodes === undefined ? {} : { nodes }),
  })
  return { kind: 'memory', store, failure: () => undefined, drill: undefined }
}

/** Redis may be down: the service starts all the same, says so in /readyz, and works as soon as Redis does. */
async function openRedis(settings: StoreSettings, metrics: Metrics, log: Log): Promise<OpenStore> {
  const { redis: url = '', redisConnections: connections = 1, storeDeadlineMs, workers } = settings
  const nodes = settings.nodes ?? workers // each worker is a node
  // Loaded when needed only: a node that counts in memory starts faster without.
  const [{ Redis }, { redisStore }] = await Promise.all([import('ioredis'), import('sluice/redis')])
  let failure: ErrorCode | undefined
  let asking = false
  const store = redisStore(new Redis(url, { lazyConnect: true, connectTimeout: CONNECT_MS_MAX }), {
    connections,
    ...(storeDeadlineMs === undefined ? {} : { deadlineMs: storeDeadlineMs }),
    ...(nodes === undefined ? {} : { nodes }),
    onTransition: ({ state, afterMs, answered }) => {
      const after_ms = Math.round(afterMs)
      if (state === 'open') log.error({ after_ms }, 'Redis is left alone for a while: on_fail decides')
      else log.info({ after_ms, answered }, 'Redis is asked again')
    },
    onBatch: (takes, seconds) => {
      metrics.storeAnswered(takes, seconds)
      if (failure !== undefined) log.info('Redis answers again')
      failure = undefined
    },
    onError: ({ code, message }) => {
      metrics.storeFailed(code)
      if (code !== 'STORE_UNAVAILABLE') return // one bad value, named to whoever asked for it
      if (failure === undefined) log.error({ code, reason: message }, 'Redis does not answer: on_fail decides')
      failure = code
    },
  })
  const ask = async () => {
    asking = true
    await probe(store)
    asking = false
  }
  await store.ready()
  await ask()
  return {
    kind: 'redis',
    store,
    failure: () => {
      // Without requests nobody would notice that it works again.
      if ((failure !== undefined || store.breaker() !== 'closed') && !asking) void ask()
      return failure ?? (store.breaker() === 'closed' ? undefined : 'STORE_UNAVAILABLE')
    },
    drill: (forMs) => store.drill(forMs),
  }
}

/** Looks at a bucket that nobody uses: changes nothing. How it went is seen by onBatch and onError. */
async function probe(store: Store): Promise<void> {
  await Promise.resolve(store.peek([PROBE])).catch(() => {})
}

const PROBE: Charge = {
  limit: compileLimit({ id: 'sluice.probe', algorithm: 'fixed_window', units: 1, windowUs: 1_000_000 }),
  owner: '',
  detail: '',
  min: 1,
  max: 1,
  kind: 'shadow',
}
