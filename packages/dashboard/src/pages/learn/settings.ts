// Settings of the simulator, kept in the URL, and examples to try.

import { ALGORITHM_NAMES, type AlgorithmName } from 'sluice/algorithms'
import { PATTERNS, type Pattern } from '../../bucket/arrivals.ts'
import type { Query } from '../../location.ts'

export type Settings = {
  readonly algorithm: AlgorithmName
  /** Units per window. */
  readonly limit: number
  readonly window: number
  readonly burst: number
  readonly arrivals: number
  readonly pattern: Pattern
}

const DEFAULTS: Settings = {
  algorithm: 'token_bucket',
  limit: 5,
  window: 1,
  burst: 10,
  arrivals: 8,
  pattern: 'steady',
}

export const BOUNDS = {
  limit: { min: 1, max: 50 },
  window: { min: 1, max: 30 },
  burst: { min: 1, max: 100 },
  arrivals: { min: 0, max: 60 },
} as const

export function settingsOf(query: Query): Settings {
  const number = (name: keyof typeof BOUNDS) => {
    const { min, max } = BOUNDS[name]
    const value = Math.round(Number(query[name] ?? Number.NaN))
    return value >= min && value <= max ? value : DEFAULTS[name]
  }
  return {
    algorithm: ALGORITHM_NAMES.find((name) => name === query.algorithm) ?? DEFAULTS.algorithm,
    pattern: Object.hasOwn(PATTERNS, query.pattern ?? '') ? (query.pattern as Pattern) : DEFAULTS.pattern,
    ...{ limit: number('limit'), window: number('window'), burst: number('burst'), arrivals: number('arrivals') },
  }
}

export function queryOf(settings: Settings): Record<string, string> {
  return Object.fromEntries(Object.entries(settings).map(([name, value]) => [name, String(value)]))
}

type Lesson = { readonly title: string; readonly text: string; readonly settings: Partial<Settings> }

export const LESSONS: readonly Lesson[] = [
  {
    title: 'Within the limit',
    text: 'Arrivals equal the refill: every request fits.',
    settings: { algorithm: 'token_bucket', limit: 5, window: 1, burst: 10, arrivals: 5, pattern: 'steady' },
  },
  {
    title: 'Over the limit',
    text: 'The full bucket absorbs the first seconds; then the refill decides.',
    settings: { algorithm: 'token_bucket', limit: 5, window: 1, burst: 10, arrivals: 8, pattern: 'steady' },
  },
  {
    title: 'A large burst',
    text: 'Twenty requests at once, every two seconds: a burst of 20 admits them, as the average is within the limit.',
    settings: { algorithm: 'token_bucket', limit: 10, window: 1, burst: 20, arrivals: 10, pattern: 'bursts' },
  },
  {
    title: 'The window edge',
    text: 'A fixed window admits its limit twice within milliseconds. A sliding window does not.',
    settings: { algorithm: 'fixed_window', limit: 10, window: 4, burst: 10, arrivals: 0, pattern: 'edges' },
  },
  {
    title: 'Smooth output',
    text: 'A leaky bucket admits the burst, but each request waits for its turn.',
    settings: { algorithm: 'leaky_bucket', limit: 5, window: 1, burst: 20, arrivals: 5, pattern: 'bursts' },
  },
]
