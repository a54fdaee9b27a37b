// Finds messages of one partition that were sent twice. Per producer, messages arrive in the order of their `seq`
// (with gaps, because other partitions hold the rest), and a repeated send starts again at a lower one: a number that
// is not above the highest one is a repeat. The state after a message depends on the messages up to it and on nothing
// else, so that a consumer that reads them again comes to the same result.

/** Producer, its highest `seq`, and the offset of its newest message. */
export type ProducerState = readonly [producer: string, seq: number, offset: number]

/** Producers to remember per partition. The one that was silent for the most messages is forgotten first. */
const PRODUCERS_MAX = 1000

export class Repeats {
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
