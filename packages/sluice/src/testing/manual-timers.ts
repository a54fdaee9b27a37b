// Timers that fire only when a test advances time.

import type { Timers } from '../clock.ts'

export type ManualTimers = Timers & {
  /** Advances time; each timer fires at its time. */
  advance(ms: number): void
  /** Advances time as if the process were blocked: due timers fire late, at the end. */
  stall(ms: number): void
}

export function manualTimers(): ManualTimers {
  let nowMs = 0
  let due: { atMs: number; work: () => void; everyMs: number | undefined }[] = []
  const at = (ms: number, everyMs: number | undefined, work: () => void) => {
    const entry = { atMs: nowMs + ms, work, everyMs }
    due.push(entry)
    return () => {
      due = due.filter((one) => one !== entry)
    }
  }
  const run = (entry: (typeof due)[number]) => {
    if (entry.everyMs === undefined) due = due.filter((one) => one !== entry)
    else entry.atMs = nowMs + entry.everyMs
    entry.work()
  }
  return {
    nowMs: () => nowMs,
    after: (ms, work) => at(ms, undefined, work),
    every: (ms, work) => at(ms, ms, work),
    soon: (work) => work(),
    advance(ms) {
      const endMs = nowMs + ms
      for (;;) {
        const next = due.filter(({ atMs }) => atMs <= endMs).sort((a, b) => a.atMs - b.atMs)[0]
        if (next === undefined) break
        nowMs = Math.max(nowMs, next.atMs)
        run(next)
      }
      nowMs = endMs
    },
    stall(ms) {
      nowMs += ms
      for (const entry of due.filter(({ atMs }) => atMs <= nowMs)) run(entry)
    },
  }
}
