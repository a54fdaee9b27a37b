// Node share of a limit, for rules counted per process (`consistency: local`): limit / nodes.

import { compileLimit, type Limit } from './limit.ts'

export class NodeShares {
  readonly #nodes: number
  readonly #shares = new WeakMap<Limit, Limit>()

  /** `nodes`: number of nodes that share the limits. */
  constructor(nodes: number) {
    this.#nodes = nodes
  }

  of(limit: Limit): Limit {
    const known = this.#shares.get(limit)
    if (known !== undefined) return known
    const share = nodeShare(limit, this.#nodes)
    this.#shares.set(limit, share)
    return share
  }
}

/** At least 1 unit, or a small limit would refuse every request. */
function nodeShare(limit: Limit, nodes: number): Limit {
  if (limit.units === 0) return limit
  const { algorithm, windowUs, fact } = limit
  const units = Math.max(1, Math.floor(limit.units / nodes))
  const burst = Math.max(1, Math.floor(limit.capacity / nodes))
  const numbers = { id: `${limit.id}@local`, fact, algorithm, units, windowUs, burst }
  try {
    return compileLimit(numbers)
  } catch {
    return compileLimit({ ...numbers, algorithm: 'fixed_window' }) // a bucket could not count this share exactly
  }
}
