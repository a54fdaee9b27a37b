// Watches for a store that runs out of room: Redis at its maxmemory, Redis that evicts live buckets, and the key cap of
// the memory store. Each makes the node degraded for as long as it goes on, and is logged once.

import type { Store } from 'sluice'
import type { RedisStore } from 'sluice/redis'
import type { Log } from '../log.ts'

const POLL_MS = 2000
/** A pressure that was not seen again for so long is over. */
const OVER_MS = 3 * POLL_MS

const PRESSURES = {
  full: {
    trouble: 'STORE_FULL, buckets that exist keep deciding and new ones follow on_fail',
    fix: 'redis is out of memory; buckets that exist keep deciding, new ones follow on_fail: raise maxmemory',
  },
  evicting: {
    trouble: 'redis evicts live buckets, and their owners start anew',
    fix: 'redis evicts live buckets, and their owners start anew: set maxmemory-policy noeviction and raise maxmemory',
  },
  capped: {
    trouble: 'the key cap is reached, and new keys share buckets',
    fix: 'the key cap of the memory store is reached, and new keys share buckets: raise --max-keys',
  },
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

  /** Looks at the store from time to time, until `stop`. */
  watch(store: Store, redis?: Pick<RedisStore, 'facts'>): void {
    const look = async () => {
      this.#logEnds()
      if (this.#grew('overflowed', store.stats?.().overflowed ?? 0)) this.saw('capped')
      for (const [name, { evictedKeys }] of Object.entries((await redis?.facts()) ?? {})) {
        if (this.#grew(`evicted ${name}`, evictedKeys)) this.saw('evicting')
      }
      this.#timer = setTimeout(() => void look(), POLL_MS).unref()
    }
    void look()
  }

  stop(): void {
    clearTimeout(this.#timer)
  }

  saw(pressure: Pressure): void {
    if (!this.#seenMs.has(pressure)) this.#log.warn({ event: `store_${pressure}` }, PRESSURES[pressure].fix)
    this.#seenMs.set(pressure, performance.now())
  }

  /** For /readyz: what goes on at present. */
  trouble(): string | undefined {
    const names = Object.keys(PRESSURES) as Pressure[]
    const going = names.filter((pressure) => this.#goesOn(pressure))
    return going.length === 0 ? undefined : going.map((pressure) => PRESSURES[pressure].trouble).join('; ')
  }

  #logEnds(): void {
    for (const pressure of [...this.#seenMs.keys()].filter((seen) => !this.#goesOn(seen))) {
      this.#seenMs.delete(pressure)
      this.#log.info({ event: `store_${pressure}_over` }, `not seen any more: ${PRESSURES[pressure].trouble}`)
    }
  }

  #goesOn(pressure: Pressure): boolean {
    return performance.now() - (this.#seenMs.get(pressure) ?? Number.NEGATIVE_INFINITY) < OVER_MS
  }

  /** The first total that is seen says nothing: it may be of long ago. */
  #grew(name: string, total: number): boolean {
    const before = this.#totals.get(name)
    this.#totals.set(name, total)
    return before !== undefined && total > before
  }
}
