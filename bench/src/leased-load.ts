// The load of the scenarios with leases: one process, no new turn while 200 checks wait for Redis, keys by Zipf's law,
// each a string of its own. Those of a turn are made while the clock stands still, so that they are as warm in the
// caches as what a server has just read from a socket. Whatever can be answered at once is; the event loop gets its
// turn all the same. Each answer is written down, with the time at which its turn began (or at which it came, if it was
// waited for), and after the round held against an exact bucket of the same limit.

import { setImmediate as turn } from 'node:timers/promises'
import { createLimiter, type Decision, type Limiter } from 'sluice'
import { type RedisStore, redisStore } from 'sluice/redis'
import type { Sample } from './measure.ts'
import { clientOf } from './redis-cluster.ts'
import { freshKey } from './zipf.ts'

export const KEYS = 100_000
/** Per second and in a burst. */
export const RATE = 100
const WAITING_MAX = 200
const CHECKS_PER_TURN = 512

export type Leased = { readonly limiter: Limiter; readonly store: RedisStore }

export async function leasedLimiter(place: string, rules: readonly object[], deadlineMs = 1000): Promise<Leased> {
  const store = redisStore(clientOf(place), { deadlineMs })
  await store.ready()
  return { limiter: createLimiter({ rules, store }), store }
}

export function perSecond(number: number, more: object = {}): object {
  return { rule_id: `per_user_${number}`, scope: 'per_user', limit: RATE, burst: RATE, window_seconds: 1, ...more }
}

export type Tally = { checks: number; local: number; admitted: number; ideal: number; over: number; seconds: number }

/** Runs so many checks, and tells what came of them. */
export async function runLoad(
  { limiter }: Pick<Leased, 'limiter'>,
  choose: () => number,
  checks: number,
): Promise<Tally> {
  const ids = Int32Array.from({ length: checks }, choose)
  const log = new AnswerLog(checks)
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
  const answer = () => new Promise<void>((resolve) => (wake = resolve))
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
    while (waiting >= WAITING_MAX) await answer()
    ms += performance.now() - startedMs
  }
  const startedMs = performance.now()
  while (waiting > 0) await answer()
  const seconds = (ms + performance.now() - startedMs) / 1000
  return { checks, local, seconds, ...log.judge() }
}

export function sampleOf(tally: Tally): Sample {
  return {
    'checks/s': tally.checks / tally.seconds,
    local: tally.local / tally.checks,
    over: tally.over,
    admitted: tally.admitted / tally.ideal,
  }
}

/** Who was answered what, and when. */
class AnswerLog {
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

  judge(): Pick<Tally, 'admitted' | 'ideal' | 'over'> {
    const asked = new ExactBuckets()
    const passed = new ExactBuckets()
    const verdict = { admitted: 0, ideal: 0, over: 0 }
    this.#ids.forEach((id, index) => {
      const nowMs = this.#times[index] ?? 0
      if (asked.add(id, nowMs, RATE) <= RATE) verdict.ideal += 1
      if (this.#allowed[index] === 0) return
      verdict.admitted += 1
      // Answers of Redis are seen here some milliseconds after they were given, one later than another, which looks
      // like a burst of up to a unit.
      if (passed.add(id, nowMs, Number.POSITIVE_INFINITY) > RATE + 1) verdict.over += 1
    })
    return verdict
  }
}

/** What each key owes, exactly, and since when. */
class ExactBuckets {
  readonly #owed = new Float64Array(KEYS)
  readonly #sinceMs = new Float64Array(KEYS)

  /** What is owed with one unit more; the unit counts unless that is above `most`. */
  add(id: number, nowMs: number, most: number): number {
    const flownBack = ((nowMs - (this.#sinceMs[id] ?? 0)) * RATE) / 1000
    const owed = Math.max(0, (this.#owed[id] ?? 0) - flownBack)
    this.#sinceMs[id] = nowMs
    this.#owed[id] = owed + 1 <= most ? owed + 1 : owed
    return owed + 1
  }
}
