// Metrics of the Redis servers. A scrape queries Redis with a timeout; without a reply it reports the last
// known values.

import type { Registry } from 'prom-client'
import type { RedisInfo, RedisStore, ServerState } from 'sluice/redis'
import { type CounterDefinition, type GaugeDefinition, registerCounters, registerGauges } from './registration.ts'
import { serverLabels } from './server-counts.ts'

type InfoByStore = Readonly<Record<string, RedisInfo>>
type Watched = Pick<RedisStore, 'info' | 'servers'>

/** Minimum interval between queries: `INFO` costs Redis a fraction of a millisecond. */
const QUERY_MS_MIN = 100
const WAIT_MS_MAX = 250

export class WatchedRedis {
  info: InfoByStore = {}
  readonly #stores: Watched[] = []
  #query: Promise<unknown> | undefined
  #queriedMs = Number.NEGATIVE_INFINITY

  add(store: Watched, name: string | undefined): void {
    this.#stores.push(name === undefined ? store : renamed(store, name))
  }

  servers(): readonly ServerState[] {
    return this.#stores.flatMap((store) => store.servers())
  }

  /** Resolves once `info` is up to date, or after `WAIT_MS_MAX`. Never rejects. */
  async refresh(): Promise<void> {
    const nowMs = performance.now()
    if (nowMs - this.#queriedMs >= QUERY_MS_MIN && this.#query === undefined) {
      this.#queriedMs = nowMs
      this.#query = Promise.all(this.#stores.map((store) => this.#readInfo(store))).then(() => {
        this.#query = undefined
      })
    }
    if (this.#query !== undefined) await withTimeout(this.#query, WAIT_MS_MAX)
  }

  async #readInfo(store: Watched): Promise<void> {
    const latest = await store.info().catch(() => ({})) // sluice_breaker_open reports an outage
    this.info = { ...this.info, ...latest }
  }
}

/** The store with another name than `default`. */
function renamed(store: Watched, name: string): Watched {
  return {
    info: async () => {
      const { default: own, ...named } = await store.info()
      return own === undefined ? named : { ...named, [name]: own }
    },
    servers: () => store.servers().map((one) => (one.store === 'default' ? { ...one, store: name } : one)),
  }
}

export function registerRedis(registry: Registry, redis: WatchedRedis): void {
  registerGauges(registry, () => redis, GAUGES)
  registerCounters(registry, () => redis, COUNTERS)
}

const perStore = (read: (info: RedisInfo) => number) => (redis: WatchedRedis) =>
  Object.entries(redis.info).map(([store, info]) => [{ store }, read(info)] as const)

/** Aggregated by `max`, because workers query the same servers at different times. */
const GAUGES: readonly GaugeDefinition<WatchedRedis>[] = [
  {
    name: 'sluice_redis_keys',
    help: 'Keys in Redis, including those of other applications.',
    labels: ['store'],
    aggregator: 'max',
    read: perStore(({ keys }) => keys),
  },
  {
    name: 'sluice_redis_memory_bytes',
    help: 'Memory used by Redis.',
    labels: ['store'],
    aggregator: 'max',
    read: perStore(({ usedBytes }) => usedBytes),
  },
  {
    name: 'sluice_redis_memory_max_bytes',
    help: 'Memory limit of Redis (maxmemory); 0 if it has none.',
    labels: ['store'],
    aggregator: 'max',
    read: perStore(({ maxBytes }) => maxBytes),
  },
  {
    name: 'sluice_redis_commands_per_second',
    help: 'Commands per second that Redis executes, for all its clients, as it measures them itself.',
    labels: ['store'],
    aggregator: 'max',
    read: perStore(({ commandsPerSecond }) => commandsPerSecond),
  },
  {
    name: 'sluice_redis_may_evict',
    help: '1 if Redis evicts live buckets when its memory is full.',
    labels: ['store'],
    aggregator: 'max',
    read: perStore(({ mayEvict }) => (mayEvict ? 1 : 0)),
  },
  {
    name: 'sluice_breaker_open',
    help: '1 while the circuit breaker of a Redis server or Cluster primary is not closed.',
    labels: ['store', 'server'],
    aggregator: 'max',
    read: (redis) => redis.servers().map((one) => [serverLabels(one), one.state === 'closed' ? 0 : 1]),
  },
]

const COUNTERS: readonly CounterDefinition<WatchedRedis>[] = [
  {
    name: 'sluice_store_timeouts_total',
    help: 'Checks that a Redis server did not answer within the deadline.',
    labels: ['store', 'server'],
    read: (redis) => redis.servers().map((one) => [serverLabels(one), one.timeouts]),
  },
]

async function withTimeout(work: Promise<unknown>, ms: number): Promise<void> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, ms)
  })
  await Promise.race([work, late])
  clearTimeout(timer)
}
