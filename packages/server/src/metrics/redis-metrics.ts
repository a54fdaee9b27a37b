// What Redis holds, for Prometheus. A scrape asks Redis first and waits a bounded time; a Redis that does not answer
// leaves the values that were last known.

import { Gauge, type Registry } from 'prom-client'
import type { RedisFacts, RedisStore } from 'sluice/redis'

type Facts = Readonly<Record<string, RedisFacts>>

/** `INFO` costs Redis a fraction of a millisecond. However many scrapes there are, ten a second ask for it. */
const FACTS_MS = 100
const WAIT_MS_MAX = 250

export class WatchedRedis {
  store: Pick<RedisStore, 'facts' | 'servers'> | undefined
  facts: Facts = {}
  #asking: Promise<void> | undefined
  #askedMs = Number.NEGATIVE_INFINITY

  /** Resolves once `facts` are up to date, or Redis has had its time. Never rejects. */
  async refresh(): Promise<void> {
    const nowMs = performance.now()
    if (this.store === undefined) return
    if (nowMs - this.#askedMs >= FACTS_MS && this.#asking === undefined) {
      this.#askedMs = nowMs
      this.#asking = this.#ask(this.store)
    }
    if (this.#asking !== undefined) await within(this.#asking, WAIT_MS_MAX)
  }

  async #ask(store: Pick<RedisStore, 'facts'>): Promise<void> {
    const latest = await store.facts().catch(() => ({})) // other metrics tell that Redis does not answer
    this.facts = { ...this.facts, ...latest }
    this.#asking = undefined
  }
}

export function registerRedis(registry: Registry, redis: WatchedRedis): void {
  // Workers ask the same servers, at different moments: the largest value stands for the node.
  const byStore = (name: string, help: string, read: (facts: RedisFacts) => number) =>
    new Gauge({
      name,
      help,
      labelNames: ['store'],
      aggregator: 'max',
      registers: [registry],
      collect() {
        this.reset()
        for (const [store, one] of Object.entries(redis.facts)) this.set({ store }, read(one))
      },
    })
  byStore('sluice_redis_keys', 'Keys in Redis, of whatever kind.', ({ keys }) => keys)
  byStore('sluice_redis_memory_bytes', 'Memory that Redis uses.', ({ usedBytes }) => usedBytes)
  byStore('sluice_redis_may_evict', '1 if Redis drops live buckets when its memory is full.', ({ mayEvict }) =>
    mayEvict ? 1 : 0,
  )
  new Gauge({
    name: 'sluice_server_left_alone',
    help: '1 while that server of Redis, or primary of a Cluster, is not asked.',
    labelNames: ['store', 'server'],
    aggregator: 'max',
    registers: [registry],
    collect() {
      this.reset()
      for (const { store, server = 'all', state } of redis.store?.servers() ?? []) {
        this.set({ store, server }, state === 'closed' ? 0 : 1)
      }
    },
  })
}

async function within(work: Promise<void>, ms: number): Promise<void> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, ms)
  })
  await Promise.race([work, late])
  clearTimeout(timer)
}
