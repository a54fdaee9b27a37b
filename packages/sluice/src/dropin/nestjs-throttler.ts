// A storage for `@nestjs/throttler`: `ThrottlerModule.forRoot({ throttlers, storage: new SluiceThrottlerStorage() })`.
// A block lasts `blockDuration` from the hit that exceeded the limit. Afterwards, the client starts with no hits.

import { HitCounter, type HitCounterOptions } from './hit-counter.ts'

export type { HitCounterOptions }

/** Times in whole seconds, rounded up, for headers. */
export type ThrottlerRecord = {
  totalHits: number
  timeToExpire: number
  isBlocked: boolean
  timeToBlockExpire: number
}

export class SluiceThrottlerStorage {
  readonly #counter: HitCounter

  constructor(options: HitCounterOptions = {}) {
    this.#counter = new HitCounter(options, 'throttler:')
  }

  /** `ttl` and `blockDuration` are milliseconds. */
  async increment(
    key: string,
    ttl: number,
    limit: number,
    blockDuration: number,
    throttlerName: string,
  ): Promise<ThrottlerRecord> {
    const counter = this.#counter.named(throttlerName)
    const { hits, resetMs, blockedMs } = await counter.hitUnlessBlocked(key, ttl)
    if (blockedMs > 0) return blocked(limit + 1, ttl, blockedMs)
    if (hits <= limit) {
      return { totalHits: hits, timeToExpire: seconds(resetMs), isBlocked: false, timeToBlockExpire: 0 }
    }
    if (blockDuration <= 0) return blocked(hits, resetMs, resetMs)
    await counter.blockAndForget(key, ttl, blockDuration)
    return blocked(hits, resetMs, blockDuration)
  }
}

function blocked(totalHits: number, expireMs: number, blockedMs: number): ThrottlerRecord {
  return { totalHits, timeToExpire: seconds(expireMs), isBlocked: true, timeToBlockExpire: seconds(blockedMs) }
}

function seconds(durationMs: number): number {
  return Math.ceil(durationMs / 1000)
}
