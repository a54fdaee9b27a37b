// A histogram that costs a few nanoseconds to feed: plain counts in arrays, turned into Prometheus values at scrape.
// (prom-client's own takes a quarter of a microsecond per observation, a sixth of what a whole check costs.)

export type TallyValue = {
  readonly metricName: string
  readonly labels: Readonly<Record<string, string>>
  readonly value: number
}

export class Tally {
  readonly #bounds: readonly number[]
  /** One more than bounds: the last counts what is above all of them. */
  readonly #counts: Float64Array
  #sum = 0

  constructor(bounds: readonly number[]) {
    this.#bounds = bounds
    this.#counts = new Float64Array(bounds.length + 1)
  }

  observe(value: number): void {
    const bounds = this.#bounds
    let index = 0
    while (index < bounds.length && value > (bounds[index] as number)) index += 1
    this.#counts[index] = (this.#counts[index] as number) + 1 // the index is within, as counts has one more than bounds
    this.#sum += value
  }

  /** Cumulative, as Prometheus wants it: each bucket counts what is at most its bound. */
  values(name: string): TallyValue[] {
    let count = 0
    const buckets = [...this.#counts].map((inBucket, index) => {
      count += inBucket
      return { metricName: `${name}_bucket`, labels: { le: String(this.#bounds[index] ?? '+Inf') }, value: count }
    })
    const sum = { metricName: `${name}_sum`, labels: {}, value: this.#sum }
    return [...buckets, sum, { metricName: `${name}_count`, labels: {}, value: count }]
  }
}
