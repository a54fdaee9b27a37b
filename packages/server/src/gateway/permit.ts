// The permits of a request while it is under way: renewed before they would expire, released when it is over.

import type { Decision, Limiter } from 'sluice'
import { holdsPermit } from 'sluice/http'

/** Returns what to call when the request is over; undefined when it holds nothing. */
export function keepPermits(limiter: Limiter, decision: Decision): (() => void) | undefined {
  if (!holdsPermit(decision)) return undefined
  const lives = decision.outcomes.filter(({ algorithm }) => algorithm === 'concurrency').map(({ windowMs }) => windowMs)
  // Thrice in a life: one renewal may be lost.
  const everyMs = Math.max(1, Math.floor(Math.min(...lives) / 3))
  const timer = setTimeout(renew, everyMs).unref()
  function renew(): void {
    timer.refresh()
    limiter.renew(decision).catch(() => {}) // tried again soon; the store itself says when it is in trouble
  }
  return () => {
    clearTimeout(timer)
    limiter.release(decision).catch(() => {}) // it expires by itself
  }
}
