// Detects a store that runs out of room (Redis at its maxmemory, Redis evicting live buckets, or the key cap of the
// memory store) or holds values that cannot be read. Each degrades the node while it lasts, and is logged once.

import type { Store } from 'sluice'
import type { RedisStore } from 'sluice/redis'
import type { Log } from '../log.ts'

const POLL_MS = 2000
/** A pressure ends when it was not observed for this long. */
const ACTIVE_MS = 3 * POLL_MS

/** Log event → reason that /readyz reports. */
const PRESSURES = {
  store_corrupt:
    'STORE_CORRUPT, redis has values that cannot be read: damaged, or written by a newer version; their checks fail',
  store_full: 'STORE_FULL, existing buckets keep deciding and on_fail applies to new ones',
  store_evicting: 'redis evicts live buckets and forgets their usage',
  store_capped: 'the key cap is reached, and new keys share overflow buckets',
  slot_groups_mismatch: 'slot groups differ from those of other nodes, so clients get the limit twice',
} as const

type Pressure = keyof typeof PRESSURES

export class StorePressure {
  readonly #log: Log
  readonly #seenMs = new Map<Pressure, number>()
  readonly #totals = new Map<string, number>()
  #timer: NodeJS.Timeout | undefined

  constructor(log: Log) {
    this.#log = log
  }

  /** Polls the store until `stop`. */
  watch(store: Store, redis?: Pick<RedisStore, 'info'>): void {
    const poll = async () => {
      this.#logEnds()
      if (this.#grew('overflowed', store.stats?.().overflowed ?? 0)) this.observed('store_capped')
      for (const [name, { evictedKeys, slotGroups }] of Object.entries((await redis?.info()) ?? {})) {
        if (slotGroups !== undefined && slotGroups.own !== slotGroups.recorded) this.observed('slot_groups_mismatch')
        if (this.#grew(`evicted ${name}`, evictedKeys)) this.observed('store_evicting')
      }
      this.#timer = setTimeout(() => void poll(), POLL_MS).unref()
    }
    void poll()
  }

  stop(): void {
    clearTimeout(this.#timer)
  }

  observed(pressure: Pressure): void {
    if (!this.#seenMs.has(pressure)) this.#log.event(pressure, {})
    this.#seenMs.set(pressure, performance.now())
  }

  /** Active pressures, for /readyz. */
  degradedReason(): string | undefined {
    const names = Object.keys(PRESSURES) as Pressure[]
    const active = names.filter((pressure) => this.#isActive(pressure))
    return active.length === 0 ? undefined : active.map((pressure) => PRESSURES[pressure]).join('; ')
  }

  #logEnds(): void {
    for (const pressure of [...this.#seenMs.keys()].filter((seen) => !this.#isActive(seen))) {
      this.#seenMs.delete(pressure)
      this.#log.event(`${pressure}_ended`, {})
    }
  }

  #isActive(pressure: Pressure): boolean {
    return performance.now() - (this.#seenMs.get(pressure) ?? Number.NEGATIVE_INFINITY) < ACTIVE_MS
  }

  /** The first total is a baseline only: it may be old. */
  #grew(name: string, total: number): boolean {
    const before = this.#totals.get(name)
    this.#totals.set(name, total)
    return before !== undefined && total > before
  }
}
