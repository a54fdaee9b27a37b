// Space-saving sketch: the most frequent names, with K counters. A new name takes over the counter with the lowest
// count and inherits it, so a count errs high by at most that count, which is at most 1/K of all sightings. Names with
// more sightings than that are never missing.

export type Counter<T> = {
  group: string
  name: string
  item: T
  /** Upper bound of the sightings; after halving it may be too low by 1. */
  count: number
  /** Lower bound: sightings since the name got this counter. */
  countMin: number
}

export class TopSketch<T> {
  readonly #countersMax: number
  readonly #counters: Counter<T>[] = []
  /** By group, then by name: joining the two strings would cost more than the rest. */
  readonly #groups = new Map<string, Map<string, Counter<T>>>()
  /** No count is lower, and counters before the hand are higher. */
  #lowest = 0
  #hand = 0

  constructor(countersMax: number) {
    this.#countersMax = countersMax
  }

  get counters(): readonly Readonly<Counter<T>>[] {
    return this.#counters
  }

  find(group: string, name: string): Readonly<Counter<T>> | undefined {
    return this.#groups.get(group)?.get(name)
  }

  record(group: string, name: string, item: T): void {
    const counter = this.#groups.get(group)?.get(name) ?? this.#counterFor(group, name, item)
    counter.count += 1
    counter.countMin += 1
  }

  /** Rounds down, so that counts of names no longer seen reach 0. */
  halve(): void {
    for (const counter of this.#counters) {
      counter.count = Math.floor(counter.count / 2)
      counter.countMin = Math.floor(counter.countMin / 2)
    }
    this.#lowest = 0
    this.#hand = 0
  }

  #counterFor(group: string, name: string, item: T): Counter<T> {
    const counter = this.#counters.length < this.#countersMax ? this.#newCounter(item) : this.#freedCounter()
    counter.group = group
    counter.name = name
    counter.item = item
    counter.countMin = 0
    const names = this.#groups.get(group)
    if (names === undefined) this.#groups.set(group, new Map([[name, counter]]))
    else names.set(name, counter)
    return counter
  }

  #newCounter(item: T): Counter<T> {
    const counter = { group: '', name: '', item, count: 0, countMin: 0 }
    this.#counters.push(counter)
    return counter
  }

  #freedCounter(): Counter<T> {
    const counter = this.#lowestCounter()
    const names = this.#groups.get(counter.group)
    names?.delete(counter.name)
    if (names?.size === 0) this.#groups.delete(counter.group)
    return counter
  }

  /** Amortised two steps per sighting: a full scan happens only when the lowest count rises. */
  #lowestCounter(): Counter<T> {
    for (;;) {
      for (; this.#hand < this.#counters.length; this.#hand += 1) {
        const counter = this.#counters[this.#hand] as Counter<T> // the hand is in range
        if (counter.count <= this.#lowest) return counter
      }
      this.#lowest = this.#counters.reduce((lowest, { count }) => Math.min(lowest, count), Number.POSITIVE_INFINITY)
      this.#hand = 0
    }
  }
}
