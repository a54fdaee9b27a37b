// Other libraries (peers), configured as documented, all with the same limit per user and day. No contender writes
// headers or logs. Rejections of peers that reject on refusal are caught, as their API requires.

import { MemoryStore, type Options } from 'express-rate-limit'
import type { Redis } from 'ioredis'
import { RateLimiterMemory, RateLimiterRedis, RateLimiterUnion } from 'rate-limiter-flexible'

/** High enough that most requests are admitted, for every contender alike. */
export const LIMIT = 10_000
/** Long enough that no algorithm may forget a key during the run. */
export const WINDOW_SECONDS = 86_400

export type Consumer = { consume(key: string): Promise<unknown> }

export function flexibleMemory(): Consumer {
  return new RateLimiterMemory({ points: LIMIT, duration: WINDOW_SECONDS })
}

export function flexibleRedis(storeClient: Redis, keyPrefix = 'rlflx'): RateLimiterRedis {
  return new RateLimiterRedis({ storeClient, keyPrefix, points: LIMIT, duration: WINDOW_SECONDS })
}

/** Closest peer, though not all-or-nothing: if one limiter refuses, the others have already counted. */
export function flexibleUnion(storeClient: Redis, count: number): Consumer {
  const limiters = Array.from({ length: count }, (_, index) => flexibleRedis(storeClient, `rlflx${index}`))
  return new RateLimiterUnion(...limiters)
}

/** rate-limiter-flexible rejects with its result, the union with one per limiter; anything else is a failure. */
export function requireRefusal(rejection: unknown): void {
  if (rejection instanceof Error) throw rejection
}

export function expressMemory(): MemoryStore {
  const store = new MemoryStore()
  store.init({ windowMs: WINDOW_SECONDS * 1000 } as Options) // the only option that it reads
  return store
}
