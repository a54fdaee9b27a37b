// Result of one check of `sluice doctor`, with a fix if there is a problem.

import { type Clock, wallClock } from 'sluice'

export type Health = 'ok' | 'warning' | 'error'

export type Finding = {
  /** Subject of the check: `Redis`, `rules`. */
  readonly about: string
  readonly health: Health
  readonly found: string
  /** Empty if ok. */
  readonly fix: string
}

/** Larger differences make times in responses and logs misleading. */
const CLOCK_SKEW_MS_MAX = 1000

export function ok(about: string, found: string): Finding {
  return { about, health: 'ok', found, fix: '' }
}

export function warning(about: string, found: string, fix: string): Finding {
  return { about, health: 'warning', found, fix }
}

export function failure(about: string, found: string, fix: string): Finding {
  return { about, health: 'error', found, fix }
}

/** Compares a remote clock with the local one, accurate to half a round trip. */
export async function clockFinding(
  about: string,
  readMs: () => Promise<number>,
  clock: Clock = wallClock,
): Promise<Finding> {
  const beforeMs = clock.nowUs() / 1000
  const theirsMs = await readMs()
  const afterMs = clock.nowUs() / 1000
  const skewMs = Math.round(theirsMs - (beforeMs + afterMs) / 2)
  const errorMs = Math.ceil((afterMs - beforeMs) / 2) + 1
  const found = `${Math.abs(skewMs)} ms ${skewMs < 0 ? 'behind' : 'ahead of'} this machine, ± ${errorMs} ms`
  if (Math.abs(skewMs) - errorMs <= CLOCK_SKEW_MS_MAX) return ok(about, found)
  const fix =
    'synchronize both clocks with NTP: limits use the clock of Redis; reset_at, expires_at and logs use the local clock'
  return warning(about, found, fix)
}
