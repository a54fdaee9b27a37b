// Records what was admitted and when, and checks every interval against the limit: it replays the admissions through
// the pure algorithms, each unit at its admission time.

import type { Limit } from 'sluice'
import { PACKED, type PackedLimit } from '../../src/algorithms/registry.ts'

export type Admission = { readonly atUs: number; units: number }

export class Oracle {
  /** Admissions by bucket. */
  readonly #admitted = new Map<string, { readonly limit: Limit; readonly admissions: Admission[] }>()

  admit(limit: Limit, owner: string, units: number, atUs: number): Admission {
    const id = `${limit.id} ${owner}`
    const bucket = this.#admitted.get(id) ?? { limit, admissions: [] }
    this.#admitted.set(id, bucket)
    const admission = { atUs, units }
    bucket.admissions.push(admission)
    return admission
  }

  /** Units in use at `atUs` if each had been booked when it was admitted. */
  usedAt(limit: Limit, owner: string, atUs: number): number {
    const admissions = this.#admitted.get(`${limit.id} ${owner}`)?.admissions.filter(({ units }) => units > 0) ?? []
    if (limit.algorithm === 'sliding_window_log') {
      const within = admissions.filter((one) => one.atUs > atUs - limit.windowUs)
      return within.reduce((sum, { units }) => sum + units, 0)
    }
    const algorithm = PACKED[(limit as PackedLimit).algorithm]
    const state = algorithm.fresh()
    for (const one of admissions.toSorted((a, b) => a.atUs - b.atUs)) {
      algorithm.advance(limit, state, one.atUs)
      algorithm.charge(limit, state, one.atUs, one.units)
    }
    algorithm.advance(limit, state, atUs)
    return algorithm.used(limit, state, atUs)
  }

  /** Peak of the units in use, as a share of `limit`. */
  worst(limit: Limit, owner: string): number {
    return peakOf(limit, sorted(this.#admitted.get(`${limit.id} ${owner}`)?.admissions ?? [], 0)).used / limit.capacity
  }

  /**
   * One line per bucket that exceeded its limit. `limits`: largest limit that was active, by id. `since`: time from
   * which the bound is exact, by id, if not from the start.
   */
  violations(limits: ReadonlyMap<string, Limit>, since: ReadonlyMap<string, number> = new Map()): string[] {
    return [...this.#admitted].flatMap(([id, { limit, admissions }]) => {
      const widest = limits.get(limit.id) ?? limit
      const sinceUs = since.get(limit.id) ?? 0
      const { used, atUs } = peakOf(widest, sorted(admissions, sinceUs))
      return used <= widest.capacity ? [] : [`${id} (${widest.algorithm}): ${used} of ${widest.capacity} at ${atUs}`]
    })
  }
}

function sorted(admissions: readonly Admission[], sinceUs: number): Admission[] {
  const counted = admissions.filter(({ units, atUs }) => units > 0 && atUs >= sinceUs)
  return counted.toSorted((a, b) => a.atUs - b.atUs)
}

/** Peak of the units in use, and its time. */
function peakOf(limit: Limit, admissions: readonly Admission[]): { used: number; atUs: number } {
  const usedAfter = limit.algorithm === 'sliding_window_log' ? logOf(limit) : packed(limit)
  const peak = { used: 0, atUs: 0 }
  for (const admission of admissions) {
    const used = usedAfter(admission)
    if (used > peak.used) Object.assign(peak, { used, atUs: admission.atUs })
  }
  return peak
}

function packed(limit: Limit): (admission: Admission) => number {
  const algorithm = PACKED[(limit as PackedLimit).algorithm]
  const state = algorithm.fresh()
  return ({ atUs, units }) => {
    algorithm.advance(limit, state, atUs)
    algorithm.charge(limit, state, atUs, units)
    return algorithm.used(limit, state, atUs)
  }
}

function logOf({ windowUs }: Limit): (admission: Admission) => number {
  const within: Admission[] = []
  let first = 0
  let sum = 0
  return (admission) => {
    within.push(admission)
    sum += admission.units
    for (; (within[first] as Admission).atUs <= admission.atUs - windowUs; first += 1) {
      sum -= (within[first] as Admission).units // never past the end: the last admission is within the window
    }
    return sum
  }
}
