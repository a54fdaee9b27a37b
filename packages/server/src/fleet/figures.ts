// Figures of the last minutes in steps of seconds: decisions, refusals, where decisions were made, latency. Steps of
// different processes with the same start are added up. Bounded: a ring keeps a fixed number of steps.

import type { Source } from 'sluice'

/** Counts of decisions, cumulative or of one step. */
export type Counts = {
  readonly allowed: number
  readonly refused: number
  readonly sources: Readonly<Record<Source, number>>
  /** Decisions per bucket of the histogram of durations. */
  readonly latency: readonly number[]
}

/** `at`: start of the step, in seconds since the epoch. Steps without decisions are absent. */
export type Step = Counts & { readonly at: number }

/** Steps of one length, oldest first. */
export type Figures = { readonly stepSeconds: number; readonly steps: readonly Step[] }

/** Length and number of the steps that are shown: one minute in seconds, five minutes in steps of 5 s. */
export type Resolution = { readonly stepSeconds: number; readonly shown: number }

export const MINUTE: Resolution = { stepSeconds: 1, shown: 60 }
export const RESOLUTIONS: readonly Resolution[] = [MINUTE, { stepSeconds: 5, shown: 60 }]

/** Every process reports this often. */
export const REPORT_MS = 2000
/** Reports are not read more often than this, however many clients ask. */
export const READ_MS = 1000
/** A second is complete when the reports of all processes with it have been read; one second for their way. */
const DELAY_MS = REPORT_MS + READ_MS + 1000
/** Time for which a process keeps steps beyond those shown: they are shown late, from reports that are older. */
const MARGIN_SECONDS = 10

/** Starts of the first step that is shown and of the first one that is not complete, in seconds since the epoch. */
export function shownPeriod({ stepSeconds, shown }: Resolution, nowMs: number): { from: number; to: number } {
  const to = Math.floor((nowMs - DELAY_MS) / 1000 / stepSeconds) * stepSeconds
  return { from: to - shown * stepSeconds, to }
}

const SOURCES: readonly Source[] = ['store', 'lease', 'local', 'policy']

export class FigureRings {
  readonly #rings = RESOLUTIONS.map((resolution) => new FigureRing(resolution))

  /** Adds decisions of the second that starts at `at`. */
  add(counts: Counts, at: number): void {
    for (const ring of this.#rings) ring.add(counts, at)
  }

  figures(): readonly Figures[] {
    return this.#rings.map((ring) => ring.figures())
  }
}

class FigureRing {
  readonly #stepSeconds: number
  readonly #kept: number
  #steps: Step[] = []

  constructor({ stepSeconds, shown }: Resolution) {
    this.#stepSeconds = stepSeconds
    this.#kept = shown + Math.ceil(MARGIN_SECONDS / stepSeconds)
  }

  add(counts: Counts, second: number): void {
    const at = second - (second % this.#stepSeconds)
    const oldest = at - this.#stepSeconds * this.#kept
    this.#steps = mergeSteps([this.#steps, [{ at, ...counts }]]).filter((step) => step.at > oldest)
  }

  figures(): Figures {
    return {
      stepSeconds: this.#stepSeconds,
      steps: this.#steps.filter(({ allowed, refused }) => allowed + refused > 0),
    }
  }
}

/** Adds up steps with the same start, oldest first. */
export function mergeSteps(lists: readonly (readonly Step[])[]): Step[] {
  const merged = new Map<number, Step>()
  for (const step of lists.flat()) {
    const other = merged.get(step.at)
    merged.set(step.at, other === undefined ? step : { at: step.at, ...plus(other, step) })
  }
  return [...merged.values()].sort((one, other) => one.at - other.at)
}

export function plus(one: Counts, other: Counts): Counts {
  return combined(one, other, (a, b) => a + b)
}

/** Increase of cumulative counts. */
export function minus(now: Counts, before: Counts): Counts {
  return combined(now, before, (a, b) => a - b)
}

function combined(one: Counts, other: Counts, combine: (a: number, b: number) => number): Counts {
  const sources = SOURCES.map((name) => [name, combine(one.sources[name], other.sources[name])])
  return {
    allowed: combine(one.allowed, other.allowed),
    refused: combine(one.refused, other.refused),
    sources: Object.fromEntries(sources) as Counts['sources'],
    latency: one.latency.map((count, index) => combine(count, other.latency[index] ?? 0)),
  }
}
