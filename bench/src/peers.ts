// The peers as their manuals set them up, with one limit for all: a user's requests per day. No contender writes
// headers or logs. A refusal is part of the job, so a peer that rejects is caught as its API demands.

import { MemoryStore, type Options } from 'express-rate-limit'
import type { Redis } from 'ioredis'
import { RateLimiterMemory, RateLimiterRedis, RateLimiterUnion } from 'rate-limiter-flexible'

/** High enough that most requests are admitted, for every contender alike. */
export const LIMIT = 10_000
/** Long enough that nobody, by whatever algorithm, may forget a key before the run is over. */
export const WINDOW_SECONDS = 86_400

export type Consumer = { consume(key: string): Promise<unknown> }

export function flexibleMemory(): Consumer {
  return new RateLimiterMemory({ points: LIMIT, duration: WINDOW_SECONDS })
}

export function flexibleRedis(storeClient: Redis, keyPrefix = 'rlflx'): RateLimiterRedis {
  return new RateLimiterRedis({ storeClient, keyPrefix, points: LIMIT, duration: WINDOW_SECONDS })
}

/** Not all or nothing: when one of the five refuses, the others have counted. There is no closer peer. */
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
  store.init({ windowMs: WINDOW_SECONDS * 1000 } as Options) // all that it reads of the middleware's options
  return store
}
