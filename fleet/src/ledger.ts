// What was asked and what was answered: live counts for the table, and the proof or disproof of what is promised.

import { type Allowance, ExactBucket, IntervalCheck } from './interval-check.ts'

/** The name under which regions are counted together. */
export const ALL = 'all'

/** A bucket as its clients see it. `place` is the region that counts it, or ALL of them together. */
export class WatchedBucket {
  readonly place: string
  readonly check: IntervalCheck
  readonly exact: ExactBucket

  constructor(place: string, allowance: Allowance) {
    this.place = place
    this.check = new IntervalCheck(allowance)
    this.exact = new ExactBucket(allowance)
  }
}

export type Answer = {
  readonly region: string
  readonly sentMs: number
  readonly answeredMs: number
  readonly allowed: boolean
  /** Redis did not answer: `on_fail` did. */
  readonly byPolicy: boolean
}

export class RegionCounts {
  admitted = 0
  refused = 0
  byPolicy = 0
  failed = 0
  lastPolicyMs = 0
}

/** Nodes find out how much of each limit they need; until then less of it is used. */
const WARMUP_MS = 2000
const LATENCIES_KEPT = 2000

export class Ledger {
  readonly #buckets = new Set<WatchedBucket>()
  readonly #counts = new Map<string, RegionCounts>()
  readonly #used = new Map<string, { admitted: number; exact: number }>()
  readonly #latenciesMs: number[] = []
  readonly #countsFromMs: number

  constructor(startedMs: number) {
    this.#countsFromMs = startedMs + WARMUP_MS
  }

  /** In the order in which answers arrive. */
  answered(bucket: WatchedBucket, { region, sentMs, answeredMs, allowed, byPolicy }: Answer): void {
    const counts = this.counts(region)
    counts[allowed ? 'admitted' : 'refused'] += 1
    if (byPolicy) {
      counts.byPolicy += 1
      counts.lastPolicyMs = answeredMs
    }
    this.#buckets.add(bucket)
    const admits = bucket.exact.asked(answeredMs)
    const isCounted = answeredMs >= this.#countsFromMs
    if (admits && isCounted) this.#usedOf(bucket.place).exact += 1
    if (this.#latenciesMs.push(answeredMs - sentMs) > LATENCIES_KEPT) this.#latenciesMs.shift()
    if (!allowed) return
    bucket.check.admitted(sentMs, answeredMs)
    if (isCounted) this.#usedOf(bucket.place).admitted += 1
  }

  counts(region: string): RegionCounts {
    const counts = this.#counts.get(region) ?? new RegionCounts()
    this.#counts.set(region, counts)
    return counts
  }

  /** By how much more or less was admitted than by one exact limiter that is asked as often, when answers arrive. */
  drift(place: string): number {
    const { admitted, exact } = this.#usedOf(place)
    return exact === 0 ? 0 : admitted / exact - 1
  }

  /** Of the last requests, how long 99 of 100 took at most. */
  p99Ms(): number {
    const sorted = this.#latenciesMs.toSorted((a, b) => a - b)
    return sorted[Math.floor(sorted.length * 0.99)] ?? 0
  }

  /** Admissions that made some interval see more than it may, and the most that an interval saw of what it may. */
  intervals(): { violations: number; fullest: number; buckets: number } {
    const checks = [...this.#buckets].map(({ check }) => check)
    return {
      violations: checks.reduce((sum, { violations }) => sum + violations, 0),
      fullest: Math.max(0, ...checks.map(({ fullest }) => fullest)),
      buckets: checks.length,
    }
  }

  #usedOf(place: string): { admitted: number; exact: number } {
    const used = this.#used.get(place) ?? { admitted: 0, exact: 0 }
    this.#used.set(place, used)
    return used
  }
}
