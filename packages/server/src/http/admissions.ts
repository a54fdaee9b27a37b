// Remembers admitted requests that their clients can name, so that they can be refunded: the newest so many, and no
// more. Errs towards forgetting: a request that is no longer known keeps what it consumed.

import type { Decision } from 'sluice'

/** About a kilobyte each. */
const ADMISSIONS_MAX = 100_000

type Admission = { readonly decision: Decision; refunded: boolean }

export class Admissions {
  /** In the order in which they were admitted. */
  readonly #byId = new Map<string, Admission>()
  readonly #max: number
  readonly #onDrop: () => void

  constructor(onDrop: () => void, max: number = ADMISSIONS_MAX) {
    this.#onDrop = onDrop
    this.#max = max
  }

  /** A request id that is used again names the newest request from then on. */
  remember(decision: Decision): void {
    const { requestId } = decision
    this.#byId.delete(requestId)
    this.#byId.set(requestId, { decision, refunded: false })
    if (this.#byId.size <= this.#max) return
    const [oldest] = this.#byId.keys()
    if (oldest !== undefined) this.#byId.delete(oldest)
    this.#onDrop()
  }

  find(requestId: string): Admission | undefined {
    return this.#byId.get(requestId)
  }
}
