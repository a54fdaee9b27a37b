// One node's part of a limit, for rules that are counted in each process: limit / nodes.

import { compileLimit, type Limit } from './limit.ts'

export class LimitParts {
  readonly #nodes: number
  readonly #parts = new WeakMap<Limit, Limit>()

  /** `nodes` is how many share the limits. */
  constructor(nodes: number) {
    this.#nodes = nodes
  }

  of(limit: Limit): Limit {
    const known = this.#parts.get(limit)
    if (known !== undefined) return known
    const part = partOf(limit, this.#nodes)
    this.#parts.set(limit, part)
    return part
  }
}

/** At least 1, or a small limit would refuse everybody. */
function partOf(limit: Limit, nodes: number): Limit {
  if (limit.units === 0) return limit
  const { algorithm, windowUs, fact } = limit
  const units = Math.max(1, Math.floor(limit.units / nodes))
  const burst = Math.max(1, Math.floor(limit.capacity / nodes))
  const numbers = { id: `${limit.id}@local`, fact, algorithm, units, windowUs, burst }
  try {
    return compileLimit(numbers)
  } catch {
    return compileLimit({ ...numbers, algorithm: 'fixed_window' }) // the part is too odd a number for exact buckets
  }
}
