// Ids of gives that have happened, each kept until its give would be refused anyway. Bounded: when all are still
// needed, a further give is an error, because forgetting one would let it happen twice.

import { LimiterError } from '../errors.ts'
import type { Given } from './store.ts'

export class OnceMarks {
  readonly #untilUs = new Map<string, number>()
  readonly #max: number
  /** When the first of those that are kept can go. */
  #earliestUs = Number.POSITIVE_INFINITY

  constructor(max: number) {
    this.#max = max
  }

  /** Marks the id, unless it is marked already or `untilUs` is over. */
  mark(id: string, untilUs: number, nowUs: number): Given {
    if (nowUs > untilUs) return 'expired'
    if ((this.#untilUs.get(id) ?? -1) >= nowUs) return 'repeated'
    if (this.#untilUs.size >= this.#max) this.#makeRoom(nowUs)
    this.#untilUs.set(id, untilUs)
    this.#earliestUs = Math.min(this.#earliestUs, untilUs)
    return 'given'
  }

  #makeRoom(nowUs: number): void {
    if (this.#earliestUs < nowUs) {
      this.#earliestUs = Number.POSITIVE_INFINITY
      for (const [id, untilUs] of this.#untilUs) {
        if (untilUs < nowUs) this.#untilUs.delete(id)
        else this.#earliestUs = Math.min(this.#earliestUs, untilUs)
      }
    }
    if (this.#untilUs.size < this.#max) return
    throw new LimiterError('STORE_CROWDED', `${this.#max} refunds are remembered already: try again later`)
  }
}
