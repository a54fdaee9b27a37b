// Timers that stand still until they are moved.

import type { Timers } from '../clock.ts'

export type HandTimers = Timers & {
  /** Lets time pass: each timer fires at its time. */
  advance(ms: number): void
  /** Lets time pass while the process does nothing: timers that came due meanwhile fire late, at its end. */
  stall(ms: number): void
}

export function handTimers(): HandTimers {
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
