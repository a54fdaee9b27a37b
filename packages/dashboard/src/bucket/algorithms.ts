// Names and one sentence about each algorithm, for people.

import type { AlgorithmName } from 'sluice/algorithms'

type About = {
  readonly title: string
  readonly about: string
  /** Name of a free unit. */
  readonly unit: string
  /** Says when units refill. */
  readonly refill: (limit: number, windowSeconds: number) => string
}

const perWindow = (limit: number, seconds: number) => `${limit} per ${seconds === 1 ? 'second' : `${seconds} s`}`
const RATE = new Intl.NumberFormat('en', { maximumSignificantDigits: 3 })

export const ABOUT: Readonly<Record<AlgorithmName, About>> = {
  token_bucket: {
    title: 'Token bucket',
    about: 'Refills continuously. A full bucket absorbs a burst. The default choice.',
    unit: 'tokens',
    refill: (limit, seconds) => `refills ${RATE.format(limit / seconds)}/s`,
  },
  leaky_bucket: {
    title: 'Leaky bucket',
    about: 'Admitted requests wait in a queue that drains at a constant rate.',
    unit: 'places in the queue',
    refill: (limit, seconds) => `drains ${RATE.format(limit / seconds)}/s`,
  },
  fixed_window: {
    title: 'Fixed window',
    about: 'Counts per window. Cheap, but admits twice the limit around a window edge.',
    unit: 'left in this window',
    refill: perWindow,
  },
  sliding_window: {
    title: 'Sliding window',
    about: 'Weights the previous window by its overlap. No burst at the edge, two numbers per client.',
    unit: 'left in the last window',
    refill: perWindow,
  },
  sliding_window_log: {
    title: 'Sliding window log',
    about: 'Remembers every admitted request. Exact, at the cost of memory.',
    unit: 'left in the last window',
    refill: perWindow,
  },
  concurrency: {
    title: 'Concurrency',
    about: 'Caps requests that run at the same time, however many start per second.',
    unit: 'free permits',
    refill: (limit) => `${limit} at a time`,
  },
}
