// Load for the lease scenarios: one process, at most 200 checks waiting for Redis, Zipf-distributed keys, each a fresh
// string. The keys of a batch are created outside the measured time, so that they are in the CPU caches, as after a
// read from a socket. Records each decision with the start time of its batch (or of its reply, if it was asynchronous),
// and compares all of them with an exact bucket after the round.

import { setImmediate as turn } from 'node:timers/promises'
import { createLimiter, type Decision, type Limiter } from 'sluice'
import { type RedisStore, redisStore } from 'sluice/redis'
import type { Sample } from './measure.ts'
import { clientOf } from './redis-cluster.ts'
import { freshKey } from './zipf.ts'

export const KEYS = 100_000
/** Rate per second, and burst. */
export const RATE = 100
const WAITING_MAX = 200
const CHECKS_PER_TURN = 512

export type Leased = { readonly limiter: Limiter; readonly store: RedisStore }

export async function leasedLimiter(ports: string, rules: readonly object[], deadlineMs = 1000): Promise<Leased> {
  const store = redisStore(clientOf(ports), { deadlineMs })
  await store.ready()
  return { limiter: createLimiter({ rules, store }), store }
}

export function perSecond(number: number, more: object = {}): object {
  return { rule_id: `per_user_${number}`, scope: 'per_user', limit: RATE, burst: RATE, window_seconds: 1, ...more }
}

export type Tally = { checks: number; local: number; admitted: number; ideal: number; over: number; seconds: number }

/** Runs `checks` checks and returns the totals. */
export async function runLoad(
  { limiter }: Pick<Leased, 'limiter'>,
  choose: () => number,
  checks: number,
): Promise<Tally> {
  const ids = Int32Array.from({ length: checks }, choose)
  const log = new DecisionLog(checks)
  let local = 0
  let waiting = 0
  let wake = () => {}
  const wait = async (index: number, decision: Promise<Decision>) => {
    waiting += 1
    const { allowed } = await decision
    waiting -= 1
    log.add(ids[index] ?? 0, allowed, performance.now())
    wake()
  }
  const nextReply = () => new Promise<void>((resolve) => (wake = resolve))
  globalThis.gc?.()
  let ms = 0
  for (let first = 0; first < checks; first += CHECKS_PER_TURN) {
    const subjects = Array.from(ids.subarray(first, first + CHECKS_PER_TURN), (id) => ({ user: freshKey(id) }))
    const startedMs = performance.now()
    subjects.forEach((subject, at) => {
      const decision = limiter.decide(subject)
      if (decision instanceof Promise) void wait(first + at, decision)
      else {
        local += 1
        log.add(ids[first + at] ?? 0, decision.allowed, startedMs)
      }
    })
    await turn()
    while (waiting >= WAITING_MAX) await nextReply()
    ms += performance.now() - startedMs
  }
  const startedMs = performance.now()
  while (waiting > 0) await nextReply()
  const seconds = (ms + performance.now() - startedMs) / 1000
  return { checks, local, seconds, ...log.compare() }
}

export function sampleOf(tally: Tally): Sample {
  return {
    'checks/s': tally.checks / tally.seconds,
    local: tally.local / tally.checks,
    over: tally.over,
    admitted: tally.admitted / tally.ideal,
  }
}

/** Decisions of a round, compared with exact buckets at the end. */
class DecisionLog {
  readonly #ids: Int32Array
  readonly #allowed: Uint8Array
  readonly #times: Float64Array
  #length = 0

  constructor(length: number) {
    this.#ids = new Int32Array(length)
    this.#allowed = new Uint8Array(length)
    this.#times = new Float64Array(length)
  }

  add(id: number, allowed: boolean, atMs: number): void {
    this.#ids[this.#length] = id
    this.#allowed[this.#length] = allowed ? 1 : 0
    this.#times[this.#length] = atMs
    this.#length += 1
  }

  compare(): Pick<Tally, 'admitted' | 'ideal' | 'over'> {
    const ideal = new ExactBuckets()
    const actual = new ExactBuckets()
    const counts = { admitted: 0, ideal: 0, over: 0 }
    this.#ids.forEach((id, index) => {
      const nowMs = this.#times[index] ?? 0
      if (ideal.add(id, nowMs, RATE) <= RATE) counts.ideal += 1
      if (this.#allowed[index] === 0) return
      counts.admitted += 1
      // Replies of Redis arrive with some milliseconds of jitter, which looks like a burst of up to one unit.
      if (actual.add(id, nowMs, Number.POSITIVE_INFINITY) > RATE + 1) counts.over += 1
    })
    return counts
  }
}

/** Exact token bucket per key. */
class ExactBuckets {
  readonly #owed = new Float64Array(KEYS)
  readonly #sinceMs = new Float64Array(KEYS)

  /** Returns the debt including one more unit; the unit is charged unless the debt exceeds `most`. */
  add(id: number, nowMs: number, most: number): number {
    const refilled = ((nowMs - (this.#sinceMs[id] ?? 0)) * RATE) / 1000
    const owed = Math.max(0, (this.#owed[id] ?? 0) - refilled)
    this.#sinceMs[id] = nowMs
    this.#owed[id] = owed + 1 <= most ? owed + 1 : owed
    return owed + 1
  }
}
