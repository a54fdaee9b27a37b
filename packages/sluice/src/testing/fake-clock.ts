// Clock that moves only when a test moves it, backwards too.

import type { Clock } from '../clock.ts'

export type FakeClock = Clock & {
  advanceMs(ms: number): void
  advanceUs(us: number): void
  set(nowUs: number): void
}

/** Starts at midnight, so that windows begin at round times. */
const START_US = Date.UTC(2030, 0, 1) * 1000

export function fakeClock(startUs: number = START_US): FakeClock {
  let nowUs = startUs
  return {
    nowUs: () => nowUs,
    advanceMs: (ms) => {
      nowUs += Math.round(ms * 1000)
    },
    advanceUs: (us) => {
      nowUs += us
    },
    set: (us) => {
      nowUs = us
    },
  }
}
