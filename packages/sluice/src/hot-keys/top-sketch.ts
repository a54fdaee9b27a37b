// The names seen most often, in the memory of K counters (the space-saving algorithm). A new name takes the counter
// with the lowest count and inherits that count, so a count errs high and by no more than the lowest: at most one K-th
// of all sightings. Whoever has more than that is never missing, however many others come by.

export type Counter<T> = {
  group: string
  name: string
  what: T
  /** No more sightings than this, or one more once counts have been halved. */
  count: number
  /** At least so many: those since it has this counter. */
  sure: number
}

export class TopSketch<T> {
  readonly #countersMax: number
  readonly #counters: Counter<T>[] = []
  /** By group, then by name: joining the two would cost more than all the rest. */
  readonly #groups = new Map<string, Map<string, Counter<T>>>()
  /** No count is below it, and none before the hand is as low. */
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

  see(group: string, name: string, what: T): void {
    const counter = this.#groups.get(group)?.get(name) ?? this.#counterFor(group, name, what)
    counter.count += 1
    counter.sure += 1
  }

  /** Rounds down, so that what is seen no more comes to nothing. */
  halve(): void {
    for (const counter of this.#counters) {
      counter.count = Math.floor(counter.count / 2)
      counter.sure = Math.floor(counter.sure / 2)
    }
    this.#lowest = 0
    this.#hand = 0
  }

  #counterFor(group: string, name: string, what: T): Counter<T> {
    const counter = this.#counters.length < this.#countersMax ? this.#newCounter(what) : this.#freedCounter()
    counter.group = group
    counter.name = name
    counter.what = what
    counter.sure = 0
    const names = this.#groups.get(group)
    if (names === undefined) this.#groups.set(group, new Map([[name, counter]]))
    else names.set(name, counter)
    return counter
  }

  #newCounter(what: T): Counter<T> {
    const counter = { group: '', name: '', what, count: 0, sure: 0 }
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

  /** The lowest count rises once per K sightings at most, and only then are all looked at: two steps per sighting. */
  #lowestCounter(): Counter<T> {
    for (;;) {
      for (; this.#hand < this.#counters.length; this.#hand += 1) {
        const counter = this.#counters[this.#hand] as Counter<T> // the hand is within
        if (counter.count <= this.#lowest) return counter
      }
      this.#lowest = this.#counters.reduce((lowest, { count }) => Math.min(lowest, count), Number.POSITIVE_INFINITY)
      this.#hand = 0
    }
  }
}
