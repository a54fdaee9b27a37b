// A clock that stands still until it is told to move, backwards too.

import type { Clock } from '../clock.ts'

export type FakeClock = Clock & {
  advanceMs(ms: number): void
  advanceUs(us: number): void
  set(nowUs: number): void
}

/** Starts on a round day, so that windows begin where a reader expects them to. */
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
