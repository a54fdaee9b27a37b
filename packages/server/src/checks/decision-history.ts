// Keeps the newest refusals of this process, and the newest admissions that were sampled or whose answer had an id, so
// that they can be explained later. Each kind has its own ring. shared-decisions.ts keeps those that every node finds.

import type { Clock, Decision, Subject } from 'sluice'
import { RecentMap } from './recent-map.ts'

const KEPT_MAX = 10_000
/** Sampling interval for admissions without an id. */
const SAMPLE_INTERVAL = 128
const ENDPOINT_MAX = 256

export type RecordedDecision = {
  readonly decision: Decision
  readonly atUs: number
  readonly method: string | undefined
  readonly endpoint: string | undefined
}

export class DecisionHistory {
  readonly #clock: Clock
  readonly #refused: RecentMap<RecordedDecision>
  readonly #admitted: RecentMap<RecordedDecision>
  readonly #share: ((recorded: RecordedDecision) => void) | undefined
  #untilSample = SAMPLE_INTERVAL

  /** `share` receives refusals, and admissions whose answer had an id. */
  constructor(clock: Clock, share: ((recorded: RecordedDecision) => void) | undefined, max: number = KEPT_MAX) {
    this.#clock = clock
    this.#share = share
    this.#refused = new RecentMap(max)
    this.#admitted = new RecentMap(max)
  }

  refused(decision: Decision, subject: Subject): void {
    const recorded = this.#record(decision, subject)
    this.#refused.remember(decision.requestId, recorded)
    this.#share?.(recorded)
  }

  admitted(decision: Decision, subject: Subject, hasId: boolean): void {
    this.#untilSample -= 1
    if (!hasId && this.#untilSample > 0) return
    if (this.#untilSample <= 0) this.#untilSample = SAMPLE_INTERVAL
    const recorded = this.#record(decision, subject)
    this.#admitted.remember(decision.requestId, recorded)
    if (hasId) this.#share?.(recorded)
  }

  /** Returns the newest decision of an id. */
  find(requestId: string): RecordedDecision | undefined {
    const [refused, admitted] = [this.#refused.find(requestId), this.#admitted.find(requestId)]
    return (refused?.atUs ?? -1) > (admitted?.atUs ?? -1) ? refused : (admitted ?? refused)
  }

  /** Newest first. */
  newest(count: number): RecordedDecision[] {
    const both = [...this.#refused.newest(count), ...this.#admitted.newest(count)]
    return both.sort((one, other) => other.atUs - one.atUs).slice(0, count)
  }

  #record(decision: Decision, { method, path }: Subject): RecordedDecision {
    return { decision, atUs: this.#clock.nowUs(), method, endpoint: path?.slice(0, ENDPOINT_MAX) }
  }
}
