// Figures of the time range as charts need them: rates per step, without gaps. The last five minutes come from the live
// stream, longer ranges from the stored totals.

import type { Shade } from '../../components/chart.tsx'
import type { LiveFigures } from '../../fleet.ts'

export const SOURCES = ['store', 'lease', 'local', 'policy'] as const
export type SourceName = (typeof SOURCES)[number]

export type Figures = {
  readonly stepSeconds: number
  /** Start of each step, in milliseconds. */
  readonly times: readonly number[]
  /** Decisions per second. */
  readonly allowed: readonly number[]
  readonly refused: readonly number[]
  readonly sources: Readonly<Record<SourceName, readonly number[]>>
  readonly p50: readonly (number | null)[]
  readonly p99: readonly (number | null)[]
}

export function liveFigures(figures: LiveFigures): Figures {
  const { step_seconds: step, from, allowed, refused, sources, p50_us: p50, p99_us: p99 } = figures
  const startMs = Date.parse(from)
  const rates = (counts: readonly number[]) => counts.map((count) => count / step)
  return {
    stepSeconds: step,
    times: allowed.map((_, index) => startMs + index * step * 1000),
    allowed: rates(allowed),
    refused: rates(refused),
    sources: bySource((name) => rates(sources[name])),
    p50,
    p99,
  }
}

type Point = { readonly at: string; readonly allowed: number; readonly refused: number }
export type Timeline = {
  readonly from: string
  readonly to: string
  readonly step_seconds: number
  readonly series: readonly { readonly name: string; readonly points: readonly Point[] }[]
}
export type LatencyTimeline = {
  readonly points: readonly { readonly at: string; readonly p50_us: number; readonly p99_us: number }[]
}

/** Totals of a minute are stored this long after it: until then, its rates would be too low. */
const STORED_LATE_MS = 10_000

/** `timeline`: by source. Steps that are not over, or not stored completely yet, are left out. */
export function storedFigures(timeline: Timeline, latency: LatencyTimeline | undefined): Figures {
  const stepMs = timeline.step_seconds * 1000
  const first = Math.floor(Date.parse(timeline.from) / stepMs) + 1
  const end = Math.floor((Date.parse(timeline.to) - STORED_LATE_MS) / stepMs)
  const times = Array.from({ length: Math.max(0, end - first) }, (_, index) => (first + index) * stepMs)
  const rates = (names: readonly string[], count: (point: Point) => number) => {
    const sums = new Map<number, number>()
    for (const { points } of timeline.series.filter(({ name }) => names.length === 0 || names.includes(name))) {
      for (const point of points) sums.set(Date.parse(point.at), (sums.get(Date.parse(point.at)) ?? 0) + count(point))
    }
    return times.map((time) => (sums.get(time) ?? 0) / timeline.step_seconds)
  }
  const all = ({ allowed, refused }: Point) => allowed + refused
  const percentiles = new Map(latency?.points.map((point) => [Date.parse(point.at), point]))
  return {
    stepSeconds: timeline.step_seconds,
    times,
    allowed: rates([], ({ allowed }) => allowed),
    refused: rates([], ({ refused }) => refused),
    sources: bySource((name) => rates(name === 'policy' ? ['policy_open', 'policy_closed'] : [name], all)),
    p50: times.map((time) => percentiles.get(time)?.p50_us ?? null),
    p99: times.map((time) => percentiles.get(time)?.p99_us ?? null),
  }
}

function bySource(values: (name: SourceName) => readonly number[]): Figures['sources'] {
  return { store: values('store'), lease: values('lease'), local: values('local'), policy: values('policy') }
}

/** Periods in which the store did not answer, and on_fail decided. */
export function degradedShades({ times, stepSeconds, sources }: Figures): Shade[] {
  const shades: { fromMs: number; toMs: number; label: string }[] = []
  for (const [index, fromMs] of times.entries()) {
    if ((sources.policy[index] ?? 0) === 0) continue
    const toMs = fromMs + stepSeconds * 1000
    const last = shades.at(-1)
    if (last?.toMs === fromMs) last.toMs = toMs
    else shades.push({ fromMs, toMs, label: 'on_fail decided' })
  }
  return shades
}

/** Adds the minutes that are not stored yet, from the live figures. */
export function withNewest(stored: Figures, live: Figures | undefined): Figures {
  const { stepSeconds, times } = stored
  const lastMs = times.at(-1)
  if (live === undefined || lastMs === undefined || stepSeconds > LIVE_STEP_SECONDS_MAX) return stored
  const stepMs = stepSeconds * 1000
  const starts = new Set(live.times.map((ms) => ms - (ms % stepMs)).filter((ms) => ms > lastMs))
  return [...starts].reduce((figures, start) => {
    const indexes = live.times.flatMap((ms, index) => (ms - (ms % stepMs) === start ? [index] : []))
    const mean = (rates: readonly number[]) => indexes.reduce((sum, at) => sum + (rates[at] ?? 0), 0) / indexes.length
    const among = (values: readonly (number | null)[]) => indexes.map((at) => values[at] ?? null)
    return {
      stepSeconds,
      times: [...figures.times, start],
      allowed: [...figures.allowed, mean(live.allowed)],
      refused: [...figures.refused, mean(live.refused)],
      sources: bySource((name) => [...figures.sources[name], mean(live.sources[name])]),
      p50: [...figures.p50, medianOf(among(live.p50))],
      p99: [...figures.p99, worstOf(among(live.p99))],
    }
  }, stored)
}

/** The live figures cover five minutes: longer steps would be filled in part. */
const LIVE_STEP_SECONDS_MAX = 60

function medianOf(values: readonly (number | null)[]): number | null {
  const known = values.filter((value) => value !== null).sort((one, other) => one - other)
  return known[Math.floor(known.length / 2)] ?? null
}

function worstOf(values: readonly (number | null)[]): number | null {
  const known = values.filter((value) => value !== null)
  return known.length === 0 ? null : Math.max(...known)
}

/** Totals of the figures: mean rates, the median of the steps' medians, and the worst step. */
export function totalsOf({ allowed, refused, p50, p99 }: Figures) {
  const mean = (rates: readonly number[]) => rates.reduce((sum, one) => sum + one, 0) / Math.max(1, rates.length)
  const [meanAllowed, meanRefused] = [mean(allowed), mean(refused)]
  const decided = meanAllowed + meanRefused
  return {
    perSecond: decided,
    refusedShare: decided === 0 ? null : meanRefused / decided,
    p50: medianOf(p50),
    worstP99: worstOf(p99),
  }
}
