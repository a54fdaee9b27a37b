// Totals of the checks and leases of a node, sampled at an interval, and their increase over the windows of the last
// hour. Bounded: samples older than the longest window are dropped.

import type { CheckTotals, UnitTotals } from '../metrics/service-metrics.ts'

export type Totals = CheckTotals & UnitTotals

/** Totals of one process. `process` differs after a restart. */
export type ProcessTotals = { readonly process: string; readonly totals: Totals }

/** Increase of the totals over a window. `spanMs` is shorter than the window on a node that started within it. */
export type Increase = Totals & { readonly spanMs: number }

type Sample = Totals & { readonly atMs: number }

const NONE: Totals = { decided: 0, refused: 0, byPolicy: 0, slow: 0, unitsCharged: 0, unitsExpired: 0 }
const SAMPLES_MAX = 1000
const PROCESSES_MAX = 1000

/** Adds up the totals of the workers of a node. The sums never fall, even when workers are replaced. */
export class NodeTotals {
  /** Last totals of each process, least recently seen first. */
  readonly #processes = new Map<string, Totals>()
  #sum: Totals | undefined

  /** The first call is the baseline: its sums are 0. */
  add(all: readonly ProcessTotals[]): Totals {
    let sum = this.#sum ?? NONE
    for (const { process, totals } of all) {
      const before = this.#processes.get(process) ?? NONE
      if (this.#sum !== undefined) sum = plus(sum, increaseOf(before, totals))
      this.#processes.delete(process)
      this.#processes.set(process, totals)
    }
    // Keeps a worker that does not answer: otherwise its totals would be counted again when it answers.
    for (const process of this.#processes.keys()) {
      if (this.#processes.size <= PROCESSES_MAX) break
      this.#processes.delete(process)
    }
    this.#sum = sum
    return sum
  }
}

export class CheckSamples {
  readonly #spanMs: number
  /** Oldest first. */
  readonly #samples: Sample[] = []

  /** `spanMs`: the longest window. */
  constructor(spanMs: number) {
    this.#spanMs = spanMs
  }

  add(totals: Totals, atMs: number): void {
    this.#samples.push({ ...totals, atMs })
    // The newest sample that is older than the window is its start.
    while (this.#samples.length > SAMPLES_MAX || (this.#samples[1]?.atMs ?? atMs) <= atMs - this.#spanMs) {
      this.#samples.shift()
    }
  }

  /** Increase from `fromMs` to `toMs`; from the first sample on, if the window begins before it. */
  increase(fromMs: number, toMs: number): Increase {
    const [from, to] = [this.#at(fromMs), this.#at(toMs)]
    if (from === undefined || to === undefined) return { ...NONE, spanMs: 0 }
    return { ...increaseOf(from, to), spanMs: to.atMs - from.atMs }
  }

  /** The last sample at or before this time, else the first one. */
  #at(ms: number): Sample | undefined {
    return this.#samples.findLast(({ atMs }) => atMs <= ms) ?? this.#samples[0]
  }
}

/** Counters start at 0 again after a restart. */
function increaseOf(before: Totals, now: Totals): Totals {
  if (now.decided < before.decided) return now
  return {
    decided: now.decided - before.decided,
    refused: now.refused - before.refused,
    byPolicy: now.byPolicy - before.byPolicy,
    slow: now.slow - before.slow,
    unitsCharged: now.unitsCharged - before.unitsCharged,
    unitsExpired: now.unitsExpired - before.unitsExpired,
  }
}

function plus(one: Totals, other: Totals): Totals {
  return {
    decided: one.decided + other.decided,
    refused: one.refused + other.refused,
    byPolicy: one.byPolicy + other.byPolicy,
    slow: one.slow + other.slow,
    unitsCharged: one.unitsCharged + other.unitsCharged,
    unitsExpired: one.unitsExpired + other.unitsExpired,
  }
}
