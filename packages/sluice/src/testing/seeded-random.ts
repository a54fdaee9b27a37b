// Reproducible random numbers: the same seed gives the same sequence everywhere.

export type Random = {
  /** From 0 up to, not including, 1. */
  next(): number
  /** A whole number from `min` to `max`, both included. */
  between(min: number, max: number): number
  pick<T>(items: readonly T[]): T
}

/** SplitMix32: small, fast, and good enough for tests. */
export function seededRandom(seed: number): Random {
  let state = seed | 0
  const next = () => {
    state = (state + 0x9e3779b9) | 0
    let mixed = Math.imul(state ^ (state >>> 16), 0x21f0aaad)
    mixed = Math.imul(mixed ^ (mixed >>> 15), 0x735a2d97)
    return ((mixed ^ (mixed >>> 15)) >>> 0) / 2 ** 32
  }
  const between = (min: number, max: number) => min + Math.floor(next() * (max - min + 1))
  return { next, between, pick: (items) => items[between(0, items.length - 1)] as (typeof items)[number] }
}
