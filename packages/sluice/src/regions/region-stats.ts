// Statistics of a region: its shares, the lag of the global store, and the clock difference between both stores.

import { compileLimit, type Limit } from '../algorithms/limit.ts'
import type { StoreClock } from '../approximate/store-clock.ts'
import type { SomeStats } from '../store/stats.ts'
import { splitUnits } from './region-limits.ts'
import type { ExactShares } from './shares.ts'
import type { WatchedStore } from './watched-store.ts'

/** A limit whose sublimits are the shares in millionths. */
const WHOLE: Limit = compileLimit({ id: '', algorithm: 'fixed_window', units: 1_000_000, windowUs: 1_000_000 })
/** Tolerance of the clock comparison, on top of the lag of the global store. */
const CLOCK_ERROR_MS = 5

export function regionStats(
  name: string,
  shares: readonly ExactShares[],
  global: WatchedStore,
  regionalClock: StoreClock,
): SomeStats {
  const { lagMs } = global
  const { homes, pool } = splitUnits(WHOLE, shares)
  const differenceMs = (global.clock.nowUs() - regionalClock.nowUs()) / 1000
  const agree = Math.abs(differenceMs) <= lagMs + CLOCK_ERROR_MS
  const sum = [...homes.values()].reduce((total, home) => total + home, 0)
  return {
    region_lag_ms: lagMs,
    region_isolated: global.isUnreachable ? 1 : 0,
    region_home_share: (homes.get(name) ?? 0) / WHOLE.units,
    region_pool_share: pool / WHOLE.units,
    region_clock_difference_ms: differenceMs,
    region_window_excess: agree ? 0 : sum / WHOLE.units,
  }
}
