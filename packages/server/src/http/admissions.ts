// Remembers admitted requests that their clients can name, so that they can be refunded: the newest so many, and no
// more. Errs towards forgetting: a request that is no longer known keeps what it consumed.

import type { Decision } from 'sluice'

/** Up to a kilobyte each. */
const ADMISSIONS_MAX = 100_000

type Admission = { readonly decision: Decision; refunded: boolean }

export class Admissions {
  readonly #byId = new Map<string, Admission>()
  /**
   * A ring: the newest takes the place of the oldest. (To ask a Map for its oldest key takes 20 µs once many are
   * gone.)
   */
  readonly #inOrder: Admission[] = []
  readonly #max: number
  readonly #onDrop: () => void
  #next = 0

  constructor(onDrop: () => void, max: number = ADMISSIONS_MAX) {
    this.#onDrop = onDrop
    this.#max = max
  }

  /** A request id that is used again names the newest request from then on. */
  remember(decision: Decision): void {
    const admission = { decision, refunded: false }
    const oldest = this.#inOrder[this.#next]
    if (oldest !== undefined) this.#forget(oldest)
    this.#inOrder[this.#next] = admission
    this.#next = (this.#next + 1) % this.#max
    this.#byId.set(decision.requestId, admission)
  }

  find(requestId: string): Admission | undefined {
    return this.#byId.get(requestId)
  }

  #forget(admission: Admission): void {
    const { requestId } = admission.decision
    if (this.#byId.get(requestId) !== admission) return // a newer request has taken over the id
    this.#byId.delete(requestId)
    if (!admission.refunded) this.#onDrop()
  }
}
