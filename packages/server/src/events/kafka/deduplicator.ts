// Deduplicates the messages of one partition. The `seq` of a producer increases within a partition, with gaps because
// other partitions hold the rest. A retry starts again at a lower `seq`, so a `seq` that is not above the highest one
// seen is a duplicate. Deterministic: reading the same messages again gives the same result.

/** Producer, its highest `seq`, and the offset of its newest message. */
export type ProducerState = readonly [producer: string, seq: number, offset: number]

/** Cap on tracked producers per partition; evicts the least recently seen. */
const PRODUCERS_MAX = 1000

export class Deduplicator {
  /** In the order of their newest messages. */
  readonly #producers: Map<string, { seq: number; offset: number }>

  constructor(states: readonly ProducerState[] = []) {
    const byOffset = [...states].sort((a, b) => a[2] - b[2])
    this.#producers = new Map(byOffset.map(([producer, seq, offset]) => [producer, { seq, offset }]))
  }

  /** Returns true if the message is new. */
  accept(producer: string, seq: number, offset: number): boolean {
    const last = this.#producers.get(producer)
    const isNew = last === undefined || seq > last.seq
    this.#producers.delete(producer)
    this.#producers.set(producer, { seq: isNew ? seq : last.seq, offset })
    if (this.#producers.size > PRODUCERS_MAX) {
      const [oldest] = this.#producers.keys()
      this.#producers.delete(oldest as string) // the map is not empty
    }
    return isNew
  }

  states(): ProducerState[] {
    return [...this.#producers].map(([producer, { seq, offset }]) => [producer, seq, offset])
  }
}
