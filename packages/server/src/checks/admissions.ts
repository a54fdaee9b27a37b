// Remembers admitted requests that their clients can name, so that they can be refunded: the newest so many, and no
// more. Errs towards forgetting: a request that is no longer known keeps what it consumed.

import type { Decision } from 'sluice'
import { Recent } from './recent.ts'

/** Up to a kilobyte each. */
const ADMISSIONS_MAX = 100_000

type Admission = { readonly decision: Decision; refunded: boolean }

export class Admissions {
  readonly #recent: Recent<Admission>

  constructor(onDrop: () => void, max: number = ADMISSIONS_MAX) {
    this.#recent = new Recent(max, ({ refunded }) => {
      if (!refunded) onDrop()
    })
  }

  remember(decision: Decision): void {
    this.#recent.remember(decision.requestId, { decision, refunded: false })
  }

  find(requestId: string): Admission | undefined {
    return this.#recent.find(requestId)
  }
}
