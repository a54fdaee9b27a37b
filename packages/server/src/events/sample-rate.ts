// Share of the admissions that become events: as configured, or by the load of this process.

/** Decisions per second below which every admission is recorded. */
const BUSY = 500
const BUSY_RATE = 0.01

export type SampleRate = {
  /** Counts a decision and returns the rate that applies to it. */
  at(atMs: number): number
  /** Rate of the last decision. */
  readonly current: number
}

/** Fixed if `configured` is set. Otherwise 1 until a second has 500 decisions, and 0.01 while seconds have more. */
export function createSampleRate(configured: number | undefined): SampleRate {
  if (configured !== undefined) return { at: () => configured, current: configured }
  let second = 0
  let count = 0
  let wasBusy = false
  let current = 1
  return {
    get current() {
      return current
    },
    at: (atMs) => {
      const now = Math.floor(atMs / 1000)
      if (now !== second) {
        wasBusy = now === second + 1 && count >= BUSY
        second = now
        count = 0
      }
      count += 1
      current = wasBusy || count > BUSY ? BUSY_RATE : 1
      return current
    },
  }
}
