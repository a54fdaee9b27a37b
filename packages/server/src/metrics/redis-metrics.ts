// What Redis holds, for Prometheus: asked at scrape, at most every few seconds, and never waited for.

import { Gauge, type Registry } from 'prom-client'
import type { RedisFacts, RedisStore } from 'sluice/redis'

type Facts = Readonly<Record<string, RedisFacts>>

/** `INFO` costs Redis a fraction of a millisecond. */
const FACTS_MS = 5000

export function registerRedis(
  registry: Registry,
  redis: () => Pick<RedisStore, 'facts' | 'servers'> | undefined,
): void {
  let known: Facts = {}
  let askedMs = Number.NEGATIVE_INFINITY
  const facts = () => {
    const nowMs = performance.now()
    if (nowMs - askedMs >= FACTS_MS) {
      askedMs = nowMs
      void redis()
        ?.facts()
        .then((latest) => {
          known = { ...known, ...latest } // the last that is known stands; that one does not answer is told elsewhere
        })
    }
    return Object.entries(known)
  }
  const byStore = (name: string, help: string, read: (facts: RedisFacts) => number) =>
    new Gauge({
      name,
      help,
      labelNames: ['store'],
      registers: [registry],
      collect() {
        this.reset()
        for (const [store, one] of facts()) this.set({ store }, read(one))
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
    registers: [registry],
    collect() {
      this.reset()
      for (const { store, server = 'all', state } of redis()?.servers() ?? []) {
        this.set({ store, server }, state === 'closed' ? 0 : 1)
      }
    },
  })
}
