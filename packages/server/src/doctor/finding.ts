// What the doctor finds: how something is, and for what is not well, what to do about it.

import { type Clock, wallClock } from 'sluice'

export type Health = 'well' | 'doubtful' | 'wrong'

export type Finding = {
  /** What was looked at: `Redis`, `rules`. */
  readonly about: string
  readonly health: Health
  readonly found: string
  /** What to do; empty when all is well. */
  readonly fix: string
}

/** Clocks that differ by more than this make times in answers and logs misleading. */
const CLOCKS_APART_MS_MAX = 1000

export function well(about: string, found: string): Finding {
  return { about, health: 'well', found, fix: '' }
}

export function doubtful(about: string, found: string, fix: string): Finding {
  return { about, health: 'doubtful', found, fix }
}

export function wrong(about: string, found: string, fix: string): Finding {
  return { about, health: 'wrong', found, fix }
}

/** Compares a clock elsewhere with ours. The way there and back makes it uncertain by half of the time it takes. */
export async function clockFinding(
  about: string,
  readMs: () => Promise<number>,
  clock: Clock = wallClock,
): Promise<Finding> {
  const beforeMs = clock.nowUs() / 1000
  const theirsMs = await readMs()
  const afterMs = clock.nowUs() / 1000
  const apartMs = Math.round(theirsMs - (beforeMs + afterMs) / 2)
  const unsureMs = Math.ceil((afterMs - beforeMs) / 2) + 1
  const found = `${Math.abs(apartMs)} ms ${apartMs < 0 ? 'behind' : 'ahead of'} this machine, ± ${unsureMs} ms`
  if (Math.abs(apartMs) - unsureMs <= CLOCKS_APART_MS_MAX) return well(about, found)
  const fix = 'let NTP set both clocks: limits go by the clock of Redis, but reset_at, expires_at and logs by ours'
  return doubtful(about, found, fix)
}
