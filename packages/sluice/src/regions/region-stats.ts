// How a region stands, in numbers: its shares, how far the global store is, and whether the clocks of both agree.

import { compileLimit, type Limit } from '../algorithms/limit.ts'
import type { StoreClock } from '../approximate/store-clock.ts'
import { splitUnits } from './region-parts.ts'
import type { ExactShares } from './shares.ts'
import type { WatchedStore } from './watched-store.ts'

/** Its parts are shares. */
const WHOLE: Limit = compileLimit({ id: '', algorithm: 'fixed_window', units: 1_000_000, windowUs: 1_000_000 })
/** Clocks are compared by answers that took as long as the global ones do, and a little. */
const CLOCK_ERROR_MS = 5

export function regionStats(
  name: string,
  shares: readonly ExactShares[],
  global: WatchedStore,
  regionalClock: StoreClock,
): Readonly<Record<string, number>> {
  const { lagMs } = global
  const { homes, pool } = splitUnits(WHOLE, shares)
  const differenceMs = (global.clock.nowUs() - regionalClock.nowUs()) / 1000
  const agree = Math.abs(differenceMs) <= lagMs + CLOCK_ERROR_MS
  const sum = [...homes.values()].reduce((total, home) => total + home, 0)
  return {
    region_lag_ms: lagMs,
    region_cut_off: global.isLost ? 1 : 0,
    region_home_share: (homes.get(name) ?? 0) / WHOLE.units,
    region_pool_share: pool / WHOLE.units,
    region_clock_difference_ms: differenceMs,
    region_window_excess: agree ? 0 : sum / WHOLE.units,
  }
}
