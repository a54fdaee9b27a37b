// What really was admitted, and when: every interval between two admissions is held against the limit, by the pure
// algorithms, which see each unit at the moment at which its request was let pass.

import type { Limit } from 'sluice'
import { PACKED, type PackedLimit } from '../../src/algorithms/registry.ts'

export type Admission = { readonly atUs: number; units: number }

export class Oracle {
  /** By bucket. */
  readonly #admitted = new Map<string, { readonly limit: Limit; readonly admissions: Admission[] }>()

  admit(limit: Limit, owner: string, units: number, atUs: number): Admission {
    const id = `${limit.id} ${owner}`
    const bucket = this.#admitted.get(id) ?? { limit, admissions: [] }
    this.#admitted.set(id, bucket)
    const admission = { atUs, units }
    bucket.admissions.push(admission)
    return admission
  }

  /** Units in use at `atUs` if the store had seen each at the moment at which it was admitted. */
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

  /**
   * One line per bucket that saw too much. `limits`: the widest that was in force for each id; `since`: from when on
   * it is exact, if not always.
   */
  violations(limits: ReadonlyMap<string, Limit>, since: ReadonlyMap<string, number> = new Map()): string[] {
    return [...this.#admitted].flatMap(([id, { limit, admissions }]) => {
      const widest = limits.get(limit.id) ?? limit
      const sinceUs = since.get(limit.id) ?? 0
      const counted = admissions.filter(({ units, atUs }) => units > 0 && atUs >= sinceUs)
      const sorted = counted.toSorted((a, b) => a.atUs - b.atUs)
      const excess =
        widest.algorithm === 'sliding_window_log' ? logExcess(widest, sorted) : packedExcess(widest, sorted)
      return excess === undefined ? [] : [`${id} (${widest.algorithm}): ${excess}`]
    })
  }
}

function packedExcess(limit: Limit, admissions: readonly Admission[]): string | undefined {
  const algorithm = PACKED[(limit as PackedLimit).algorithm]
  const state = algorithm.fresh()
  for (const { atUs, units } of admissions) {
    algorithm.advance(limit, state, atUs)
    algorithm.charge(limit, state, atUs, units)
    const used = algorithm.used(limit, state, atUs)
    if (used > limit.capacity) return `${used} of ${limit.capacity} in use at ${atUs}`
  }
  return undefined
}

function logExcess(limit: Limit, admissions: readonly Admission[]): string | undefined {
  let first = 0
  let sum = 0
  for (const { atUs, units } of admissions) {
    sum += units
    while ((admissions[first] as Admission).atUs <= atUs - limit.windowUs) {
      sum -= (admissions[first] as Admission).units
      first += 1
    }
    if (sum > limit.capacity) return `${sum} of ${limit.capacity} within a window at ${atUs}`
  }
  return undefined
}
