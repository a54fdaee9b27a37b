// Merges the figures of all nodes into windows. One key counts for at most a share of the pairs of a window, so that
// one flooding client decides nothing. Refusals of a key are offset by requests that only the new version admits: above
// both limits, two buckets admit different requests of a flood, though nearly equally many.

import { mergedSketch, type Sketch } from './distinct-keys.ts'
import { bottom, type KeyDifference, type PairFigures } from './pair-statistics.ts'

/** Pairs of one rule in one window, over all nodes. */
export type PairWindow = {
  readonly startMs: number
  /** Requests to a global bucket, paired or not; 0 for other rules. */
  readonly checks: number
  /** With the cap per key; fractions are possible. */
  readonly pairs: number
  readonly newlyDenied: number
  /** Without the cap. */
  readonly rawPairs: number
  readonly rawNewlyDenied: number
  readonly newlyAllowed: number
  readonly bothDenied: number
  /** Newly denied requests that `offsetDenials` has subtracted, without the cap. */
  readonly offset: number
  /** Differing keys with the smallest hashes. */
  readonly sample: readonly SampledKey[]
  readonly keys: Sketch
}

/** `weight`: below 1 if the cap per key applies. */
type SampledKey = readonly [...counts: KeyDifference, weight: number]

/** Decisions of all nodes in one window. */
export type NodeWindow = {
  readonly startMs: number
  readonly decided: number
  /** Decided by `on_fail`. */
  readonly failed: number
  readonly times: StepTimes
  /** Reasons of nodes that cannot apply the rollout. */
  readonly errors: readonly string[]
}

/**
 * Times of decisions in a canary step, per bucket of TIME_BOUNDS_MS; the last has no upper bound. Requests of pairs are
 * counted separately: they are never decided from leases, and the keys under the candidate are paired first.
 */
export type StepTimes = Readonly<
  Record<'current' | 'candidate' | 'currentPaired' | 'candidatePaired', readonly number[]>
>

/** Two bounds per doubling, 1 ms to 65 s. */
export const TIME_BOUNDS_MS: readonly number[] = Array.from({ length: 33 }, (_, index) => 2 ** (index / 2))

/** Figures of one process. */
export type NodeFigures = Omit<NodeWindow, 'startMs' | 'errors' | 'times'> & {
  readonly error?: string | undefined
  /** Absent from nodes of earlier versions. */
  readonly times?: StepTimes
  readonly latency?: readonly number[]
}

/** `keyPercent`: share of the pairs that one key counts for, at most. */
export function mergedPairs(startMs: number, figures: readonly PairFigures[], keyPercent: number): PairWindow {
  const sum = (read: (one: PairFigures) => number) => figures.reduce((total, one) => total + read(one), 0)
  const rawPairs = sum(({ pairs }) => pairs)
  const rawNewlyDenied = sum(({ newlyDenied }) => newlyDenied)
  const counts = sumsByKey(figures.flatMap(({ top }) => top))
  const perKey = [...counts.values()].map(([pairs, newlyDenied]) => ({ pairs, newlyDenied }))
  const cap = capOf(
    rawPairs,
    perKey.map(({ pairs }) => pairs),
    keyPercent / 100,
  )
  let [pairs, newlyDenied] = [rawPairs, rawNewlyDenied]
  for (const count of perKey) {
    if (count.pairs <= cap) continue
    pairs -= count.pairs - cap
    newlyDenied -= count.newlyDenied * (1 - cap / count.pairs)
  }
  const weightOf = (hash: number) => Math.min(1, cap / Math.max(1, counts.get(hash)?.[0] ?? 0))
  return {
    startMs,
    checks: sum((one) => one.checks ?? 0),
    pairs,
    newlyDenied: Math.max(0, newlyDenied),
    rawPairs,
    rawNewlyDenied,
    newlyAllowed: sum((one) => one.newlyAllowed),
    bothDenied: sum((one) => one.bothDenied),
    offset: 0,
    sample: sampled(figures, weightOf),
    keys: mergedSketch(figures.map((one) => one.keys)),
  }
}

/** Whether a window belongs to the step; the window in which the step began does. */
export function inStep({ startMs }: PairWindow, stepAtMs: number, windowMs: number): boolean {
  return startMs > stepAtMs - windowMs
}

/** Sums windows into one. The sum has no sample, because offsets are computed per window. */
export function summed(windows: readonly PairWindow[]): PairWindow {
  const sum = (read: (window: PairWindow) => number) => windows.reduce((total, window) => total + read(window), 0)
  return {
    startMs: windows[0]?.startMs ?? 0,
    checks: sum(({ checks }) => checks),
    pairs: sum(({ pairs }) => pairs),
    newlyDenied: sum(({ newlyDenied }) => newlyDenied),
    rawPairs: sum(({ rawPairs }) => rawPairs),
    rawNewlyDenied: sum(({ rawNewlyDenied }) => rawNewlyDenied),
    newlyAllowed: sum(({ newlyAllowed }) => newlyAllowed),
    bothDenied: sum(({ bothDenied }) => bothDenied),
    offset: sum(({ offset }) => offset),
    sample: [],
    keys: mergedSketch(windows.map(({ keys }) => keys)),
  }
}

function sumsByKey(rows: readonly (readonly [hash: number, one: number, other: number])[]) {
  const sums = new Map<number, readonly [number, number]>()
  for (const [hash, one, other] of rows) {
    const [first, second] = sums.get(hash) ?? [0, 0]
    sums.set(hash, [first + one, second + other])
  }
  return sums
}

function sampled(figures: readonly PairFigures[], weightOf: (hash: number) => number): SampledKey[] {
  const sums = new Map<number, SampledKey>()
  for (const [hash, denied, allowed, both] of figures.flatMap(({ sample }) => sample)) {
    const [, a = 0, b = 0, c = 0] = sums.get(hash) ?? []
    sums.set(hash, [hash, a + denied, b + allowed, c + both, weightOf(hash)])
  }
  return bottom([...sums.values()])
}

/**
 * Credit per key hash: how many later newly denied requests its earlier requests still offset. Capped at `CREDITS_MAX`
 * keys; the oldest are dropped.
 */
export type Credits = Map<number, number>

const CREDITS_MAX = 10_000
/** Two buckets above their limits differ by about one request at a time. */
const CREDIT_MAX = 2

/**
 * Subtracts newly denied requests that newly allowed requests of the same key offset, in this window or an earlier one.
 * With `phase`, also forgives each key one newly denied request, once, if the old version refuses requests of that key
 * too: the two buckets need not admit the same request of a flood. Never offsets across keys. Offsets are computed for
 * the sampled keys; the remaining fraction then scales the totals of the window. Windows must be sorted by time.
 * Updates `credits`.
 */
export function offsetDenials(
  windows: readonly PairWindow[],
  phase: boolean,
  credits: Credits = new Map(),
): PairWindow[] {
  return windows.map((window) => {
    const sum = { denied: 0, left: 0, weighted: 0, weightedLeft: 0 }
    for (const key of window.sample) {
      const [, denied, , , weight] = key
      const left = leftOf(key, phase, credits)
      sum.denied += denied
      sum.left += left
      sum.weighted += denied * weight
      sum.weightedLeft += left * weight
    }
    if (sum.denied === 0) return window
    const rawNewlyDenied = Math.round((window.rawNewlyDenied * sum.left) / sum.denied)
    return {
      ...window,
      newlyDenied: (window.newlyDenied * sum.weightedLeft) / sum.weighted,
      rawNewlyDenied,
      offset: window.rawNewlyDenied - rawNewlyDenied,
    }
  })
}

/** Newly denied requests of a key that nothing offsets. */
function leftOf([hash, denied, allowed, both]: SampledKey, phase: boolean, credits: Credits): number {
  const isLimited = allowed + both > 0
  const credit = credits.get(hash) ?? (phase && isLimited ? 1 : 0)
  const excess = denied - allowed - credit
  if (isLimited || credits.has(hash)) keepCredit(credits, hash, Math.min(CREDIT_MAX, Math.max(0, -excess)))
  return Math.min(denied, Math.max(0, excess))
}

function keepCredit(credits: Credits, hash: number, credit: number): void {
  credits.set(hash, credit)
  if (credits.size <= CREDITS_MAX) return
  const [oldest] = credits.keys()
  if (oldest !== undefined) credits.delete(oldest)
}

const ROUNDS_MAX = 100

/**
 * Pairs that one key counts for, at most. With n(k) pairs of key k: c = share × Σ min(n(k), c), so that no key has more
 * than its share of the capped sum. With fewer than 1 / share keys there is no such c: then c = share × Σ n(k).
 */
function capOf(total: number, perKey: readonly number[], share: number): number {
  const sum = (cap: number) => perKey.reduce((left, pairs) => left - Math.max(0, pairs - cap), total)
  let cap = share * total
  for (let round = 0; round < ROUNDS_MAX; round += 1) {
    const next = share * sum(cap)
    if (cap - next < 0.01) break
    cap = next
  }
  return cap >= 1 ? cap : Math.max(1, share * total)
}

export function mergedNodes(startMs: number, figures: readonly NodeFigures[]): NodeWindow {
  const sum = (read: (one: NodeFigures) => number) => figures.reduce((total, one) => total + read(one), 0)
  const times = (name: keyof StepTimes) =>
    Array.from({ length: TIME_BOUNDS_MS.length + 1 }, (_, index) => sum((one) => one.times?.[name][index] ?? 0))
  return {
    startMs,
    decided: sum(({ decided }) => decided),
    failed: sum(({ failed }) => failed),
    times: {
      current: times('current'),
      candidate: times('candidate'),
      currentPaired: times('currentPaired'),
      candidatePaired: times('candidatePaired'),
    },
    errors: [...new Set(figures.flatMap(({ error }) => error ?? []))],
  }
}

/** 99th percentile: between the bounds of its bucket, the upper one Infinity in the last. */
export function p99Ms(times: readonly number[]): {
  readonly count: number
  readonly min: number
  readonly max: number
} {
  const count = times.reduce((sum, one) => sum + one, 0)
  let seen = 0
  const index = times.findIndex((one) => {
    seen += one
    return count > 0 && seen >= count * 0.99
  })
  const min = TIME_BOUNDS_MS[index - 1] ?? 0
  return { count, min, max: TIME_BOUNDS_MS[index] ?? (count > 0 ? Number.POSITIVE_INFINITY : 0) }
}
