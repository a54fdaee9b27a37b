// Remembers decisions, so that they can be explained afterwards: the newest refusals, and the newest admissions that
// have an id known to their client or were sampled. Refusals and admissions do not push each other out. Of this
// process: shared-decisions.ts has those that other nodes can find.

import type { Clock, Decision, Subject } from 'sluice'
import { Recent } from './recent.ts'

const KEPT_MAX = 10_000
/** One of so many admissions that nobody has named. */
const SAMPLED = 128
const ENDPOINT_MAX = 256

export type Traced = {
  readonly decision: Decision
  readonly atUs: number
  readonly method: string | undefined
  readonly endpoint: string | undefined
}

export class DecisionTrail {
  readonly #clock: Clock
  readonly #refused: Recent<Traced>
  readonly #admitted: Recent<Traced>
  readonly #share: ((traced: Traced) => void) | undefined
  #untilSample = SAMPLED

  /** `share` receives refusals, and admissions with a client-chosen id. */
  constructor(clock: Clock, share: ((traced: Traced) => void) | undefined, max: number = KEPT_MAX) {
    this.#clock = clock
    this.#share = share
    this.#refused = new Recent(max)
    this.#admitted = new Recent(max)
  }

  refused(decision: Decision, subject: Subject): void {
    const traced = this.#traced(decision, subject)
    this.#refused.remember(decision.requestId, traced)
    this.#share?.(traced)
  }

  admitted(decision: Decision, subject: Subject, named: boolean): void {
    this.#untilSample -= 1
    if (!named && this.#untilSample > 0) return
    if (this.#untilSample <= 0) this.#untilSample = SAMPLED
    const traced = this.#traced(decision, subject)
    this.#admitted.remember(decision.requestId, traced)
    if (named) this.#share?.(traced)
  }

  /** The newest one, where an id was used for several. */
  find(requestId: string): Traced | undefined {
    const [refused, admitted] = [this.#refused.find(requestId), this.#admitted.find(requestId)]
    return (refused?.atUs ?? -1) > (admitted?.atUs ?? -1) ? refused : (admitted ?? refused)
  }

  /** The newest first. */
  newest(count: number): Traced[] {
    const both = [...this.#refused.newest(count), ...this.#admitted.newest(count)]
    return both.sort((one, other) => other.atUs - one.atUs).slice(0, count)
  }

  #traced(decision: Decision, { method, path }: Subject): Traced {
    return { decision, atUs: this.#clock.nowUs(), method, endpoint: path?.slice(0, ENDPOINT_MAX) }
  }
}
