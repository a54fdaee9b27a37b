// Worst case of a limit: the most units that one key can get within one window, wherever the window begins.

import type { Limit } from '../algorithms/limit.ts'
import { hasPermits } from '../algorithms/traits.ts'

/** Matches the figures in docs/guides/algorithms.md: a token bucket of 100 per minute admits up to 199 in 60 s. */
export function mostPerWindow({ algorithm, units, capacity }: Limit): number {
  if (units === 0) return 0
  switch (algorithm) {
    case 'token_bucket': // a full bucket, plus the refill before the window ends
    case 'leaky_bucket':
      return capacity + units - 1
    case 'fixed_window': // the end of one window and the start of the next
      return 2 * units
    case 'sliding_window': // a burst at the end of a window is weighted as if it were spread evenly
      return 2 * units - 1
    case 'sliding_window_log':
    case 'concurrency':
      return units
  }
}

/** `100 per 60 s, up to 199 in the worst 60 s (token_bucket)`. */
export function describeLimit(limit: Limit): string {
  const { algorithm, units, windowUs } = limit
  if (units === 0) return 'nothing is allowed'
  if (hasPermits(limit)) return `${units} concurrent`
  const seconds = `${windowUs / 1e6} s`
  const most = mostPerWindow(limit)
  const worst = most === units ? '' : `, up to ${most} in the worst ${seconds}`
  return `${units} per ${seconds}${worst} (${algorithm})`
}
