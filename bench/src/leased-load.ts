// The load of the scenarios with leases: one process, 200 checks in flight, keys by Zipf's law. Whatever can be
// answered at once is; the event loop gets its turn all the same. Each answer is held against an exact bucket of the
// same limit.

import { setImmediate as turn } from 'node:timers/promises'
import { Redis } from 'ioredis'
import { createLimiter, type Limiter } from 'sluice'
import { type RedisStore, redisStore } from 'sluice/redis'
import type { Sample } from './measure.ts'
import { freshKey } from './zipf.ts'

export const KEYS = 100_000
/** Per second and in a burst. */
export const RATE = 100
const IN_FLIGHT = 200
const SYNC_CHECKS_PER_TURN = 64

export type Leased = { readonly limiter: Limiter; readonly store: RedisStore }

export async function leasedLimiter(port: string, rules: readonly object[], deadlineMs = 1000): Promise<Leased> {
  const client = new Redis(Number(port), { lazyConnect: true, retryStrategy: () => 100 })
  const store = redisStore(client, { deadlineMs })
  await store.ready()
  return { limiter: createLimiter({ rules, store }), store }
}

export function perSecond(number: number, more: object = {}): object {
  return { rule_id: `per_user_${number}`, scope: 'per_user', limit: RATE, burst: RATE, window_seconds: 1, ...more }
}

export type Tally = { checks: number; local: number; admitted: number; ideal: number; over: number; seconds: number }

/** Runs for a while, and tells what came of it. */
export async function runLoad({ limiter }: Leased, choose: () => number, ms: number): Promise<Tally> {
  const tally = { checks: 0, local: 0, admitted: 0, ideal: 0, over: 0, seconds: 0 }
  const buckets = new ExactBuckets()
  const startedMs = performance.now()
  const worker = async () => {
    for (let checks = 1; performance.now() - startedMs < ms; checks += 1) {
      const id = choose()
      const subject = { user: freshKey(id) }
      const known = limiter.checkSync(subject)
      const { allowed } = known ?? (await limiter.check(subject))
      const nowMs = performance.now()
      tally.checks += 1
      if (known !== undefined) tally.local += 1
      if (buckets.asked(id, nowMs)) tally.ideal += 1
      if (allowed) tally.admitted += 1
      if (allowed && buckets.admitted(id, nowMs)) tally.over += 1
      if (checks % SYNC_CHECKS_PER_TURN === 0) await turn()
    }
  }
  await Promise.all(Array.from({ length: IN_FLIGHT }, worker))
  tally.seconds = (performance.now() - startedMs) / 1000
  return tally
}

export function sampleOf(tally: Tally): Sample {
  return {
    'checks/s': tally.checks / tally.seconds,
    local: tally.local / tally.checks,
    over: tally.over,
    admitted: tally.admitted / tally.ideal,
  }
}

/** Two exact buckets per key: one sees what was asked, and admits what there is; the other what was admitted. */
class ExactBuckets {
  readonly #asked = new Float64Array(2 * KEYS)
  readonly #admitted = new Float64Array(2 * KEYS)

  /** Whether an exact bucket that nobody else uses would have admitted it. */
  asked(id: number, nowMs: number): boolean {
    const owed = owedAt(this.#asked, id, nowMs)
    if (owed + 1 <= RATE) this.#asked[2 * id + 1] = owed + 1
    return owed + 1 <= RATE
  }

  /**
   * Whether this was more than the limit. Answers of Redis are seen here some milliseconds after they were given, one
   * later than another, which looks like a burst of up to a unit.
   */
  admitted(id: number, nowMs: number): boolean {
    const owed = owedAt(this.#admitted, id, nowMs) + 1
    this.#admitted[2 * id + 1] = owed
    return owed > RATE + 1
  }
}

function owedAt(buckets: Float64Array, id: number, nowMs: number): number {
  const sinceMs = nowMs - (buckets[2 * id] ?? 0)
  buckets[2 * id] = nowMs
  const owed = Math.max(0, (buckets[2 * id + 1] ?? 0) - (sinceMs * RATE) / 1000)
  buckets[2 * id + 1] = owed
  return owed
}
