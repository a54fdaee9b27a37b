// Records requests and responses: live counts for the table, and the evidence for the guarantees.

import { type Allowance, ExactBucket, IntervalCheck } from './interval-check.ts'

/** Name for all regions together. */
export const ALL = 'all'

/** A bucket as observed by its clients. `region` is the region that counts it, or ALL. */
export class WatchedBucket {
  readonly region: string
  readonly check: IntervalCheck
  readonly exact: ExactBucket

  constructor(region: string, allowance: Allowance) {
    this.region = region
    this.check = new IntervalCheck(allowance)
    this.exact = new ExactBucket(allowance)
  }
}

export type Answer = {
  readonly region: string
  readonly sentMs: number
  readonly answeredMs: number
  readonly allowed: boolean
  /** Decided by `on_fail`, because Redis did not answer. */
  readonly byPolicy: boolean
}

export class RegionCounts {
  admitted = 0
  refused = 0
  byPolicy = 0
  failed = 0
  lastPolicyMs = 0
}

/** Nodes learn their share of each limit during this time, so usage is lower at first. */
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

  /** Call in the order of the responses. */
  answered(bucket: WatchedBucket, { region, sentMs, answeredMs, allowed, byPolicy }: Answer): void {
    const counts = this.counts(region)
    counts[allowed ? 'admitted' : 'refused'] += 1
    if (byPolicy) {
      counts.byPolicy += 1
      counts.lastPolicyMs = answeredMs
    }
    this.#buckets.add(bucket)
    const admits = bucket.exact.take(answeredMs)
    const isCounted = answeredMs >= this.#countsFromMs
    if (admits && isCounted) this.#usedOf(bucket.region).exact += 1
    if (this.#latenciesMs.push(answeredMs - sentMs) > LATENCIES_KEPT) this.#latenciesMs.shift()
    if (!allowed) return
    bucket.check.admitted(sentMs, answeredMs)
    if (isCounted) this.#usedOf(bucket.region).admitted += 1
  }

  counts(region: string): RegionCounts {
    const counts = this.#counts.get(region) ?? new RegionCounts()
    this.#counts.set(region, counts)
    return counts
  }

  /** Relative difference from the admissions of one exact limiter for the same requests. */
  drift(region: string): number {
    const { admitted, exact } = this.#usedOf(region)
    return exact === 0 ? 0 : admitted / exact - 1
  }

  /** p99 latency of the last requests. */
  p99Ms(): number {
    const sorted = this.#latenciesMs.toSorted((a, b) => a - b)
    return sorted[Math.floor(sorted.length * 0.99)] ?? 0
  }

  /** Admissions that exceeded the limit of an interval, and the highest usage of an interval. */
  intervals(): { violations: number; peakUsage: number; buckets: number } {
    const checks = [...this.#buckets].map(({ check }) => check)
    return {
      violations: checks.reduce((sum, { violations }) => sum + violations, 0),
      peakUsage: Math.max(0, ...checks.map(({ peakUsage }) => peakUsage)),
      buckets: checks.length,
    }
  }

  #usedOf(region: string): { admitted: number; exact: number } {
    const used = this.#used.get(region) ?? { admitted: 0, exact: 0 }
    this.#used.set(region, used)
    return used
  }
}
