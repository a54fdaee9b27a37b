// The only place that reads the wall clock. Everything else is handed one, so tests can move time by hand.

export type Clock = {
  /** Wall time in microseconds since the epoch: windows are aligned to it. */
  nowUs(): number
}

export const systemClock: Clock = { nowUs: () => Date.now() * 1000 }
