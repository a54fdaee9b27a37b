// Percentiles of a histogram: linear inside a bucket, and the last bound for values above it.

import { LATENCY_BOUNDS_US } from './rollup.ts'

export type Latency = {
  readonly count: number
  readonly p50_us: number
  readonly p95_us: number
  readonly p99_us: number
}

/** `buckets`: decisions by upper bound, in any order and with repeats; -1 has no bound. All 0 without decisions. */
export function latencyOf(buckets: readonly (readonly [leUs: number, count: number])[]): Latency {
  const counts = [...LATENCY_BOUNDS_US, -1].map((bound) =>
    buckets.reduce((sum, [leUs, count]) => (leUs === bound ? sum + count : sum), 0),
  )
  const count = counts.reduce((sum, one) => sum + one, 0)
  const [p50_us = 0, p95_us = 0, p99_us = 0] = [0.5, 0.95, 0.99].map((share) =>
    percentile(LATENCY_BOUNDS_US, counts, share * count),
  )
  return { count, p50_us, p95_us, p99_us }
}

/** `counts`: per bucket; the last one has no upper bound. `rank`: number of values below the percentile. */
export function percentile(bounds: readonly number[], counts: readonly number[], rank: number): number {
  let below = 0
  for (const [index, count] of counts.entries()) {
    if (count > 0 && below + count >= rank) {
      const low = index === 0 ? 0 : (bounds[index - 1] as number) // one more count than bounds
      const high = bounds[index] ?? low
      return Math.round(low + ((high - low) * (rank - below)) / count)
    }
    below += count
  }
  return 0
}
