// Timers that stand still until they are moved.

import type { Timers } from '../clock.ts'

export type HandTimers = Timers & { advance(ms: number): void }

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
  return {
    nowMs: () => nowMs,
    after: (ms, work) => at(ms, undefined, work),
    every: (ms, work) => at(ms, ms, work),
    soon: (work) => work(),
    advance(ms) {
      nowMs += ms
      const ready = due.filter(({ atMs }) => atMs <= nowMs)
      due = due.filter(({ atMs, everyMs }) => atMs > nowMs || everyMs !== undefined)
      for (const entry of ready) {
        entry.atMs = nowMs + (entry.everyMs ?? 0)
        entry.work()
      }
    },
  }
}
