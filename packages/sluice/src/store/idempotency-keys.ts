// Idempotency keys of gives, each kept until its TTL is over. Capped: at the cap a further give is an error, because
// forgetting a key would let its give succeed twice.

import { LimiterError } from '../errors.ts'
import type { GiveResult } from './store.ts'

export class IdempotencyKeys {
  readonly #untilUs = new Map<string, number>()
  readonly #max: number
  /** Earliest expiry among the stored keys. */
  #earliestUs = Number.POSITIVE_INFINITY

  constructor(max: number) {
    this.#max = max
  }

  /** Stores the id, unless it is stored already or `untilUs` has passed. */
  add(id: string, untilUs: number, nowUs: number): GiveResult {
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
    throw new LimiterError('STORE_CROWDED', `${this.#max} idempotency keys are stored in memory already: retry later`)
  }
}
