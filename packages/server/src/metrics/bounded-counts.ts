// Counts by label value. The first values have a series each, so that a scrape stays small; further ones share `other`.
// Values that rules no longer use make room.

export const OTHER = 'other'

export class BoundedCounts {
  readonly #max: number
  readonly #counts = new Map<string, number>()

  constructor(max: number) {
    this.#max = max
  }

  add(value: string): void {
    const count = this.#counts.get(value)
    if (count !== undefined) this.#counts.set(value, count + 1)
    else if (this.#counts.size < this.#max || value === OTHER) this.#counts.set(value, 1)
    else this.add(OTHER)
  }

  /** Forgets other values, once they take up half of the room: a value that comes back begins at 0. */
  keep(isUsed: (value: string) => boolean): void {
    if (this.#counts.size <= this.#max / 2) return
    for (const value of this.#counts.keys()) if (value !== OTHER && !isUsed(value)) this.#counts.delete(value)
  }

  entries(): readonly (readonly [value: string, count: number])[] {
    return [...this.#counts]
  }
}
