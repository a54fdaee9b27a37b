// Counts distinct keys over all nodes: a KMV sketch (the k smallest hash values). Exact below k keys, else an estimate
// with a standard error of about 1 / √k. Sketches of nodes and windows merge without counting a key twice, if all use
// the same hash.

/** Number of hash values kept. */
export const SKETCH_SIZE = 64
/** Hash values are whole numbers below this: exact in JSON and in a double. */
export const HASH_RANGE: number = 2 ** 48

/** Sorted, without duplicates, at most SKETCH_SIZE values. */
export type Sketch = readonly number[]

export const EMPTY_SKETCH: Sketch = []

export class SketchBuilder {
  #values: number[] = []
  readonly #seen = new Set<number>()

  add(hash: number): void {
    if (this.#seen.has(hash)) return
    const full = this.#values.length >= SKETCH_SIZE
    const largest = this.#values.at(-1) ?? 0
    if (full && hash >= largest) return
    if (full) {
      this.#values.pop()
      this.#seen.delete(largest)
    }
    this.#seen.add(hash)
    const at = this.#values.findIndex((value) => value > hash)
    this.#values.splice(at < 0 ? this.#values.length : at, 0, hash)
  }

  get sketch(): Sketch {
    return this.#values
  }
}

export function mergedSketch(sketches: readonly Sketch[]): Sketch {
  const builder = new SketchBuilder()
  for (const sketch of sketches) for (const hash of sketch) builder.add(hash)
  return builder.sketch
}

export function distinctKeys(sketch: Sketch): number {
  if (sketch.length < SKETCH_SIZE) return sketch.length
  return Math.round((SKETCH_SIZE - 1) / ((sketch.at(-1) ?? HASH_RANGE) / HASH_RANGE))
}
