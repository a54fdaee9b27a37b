// Bounds frames that carry no work. Every PING, SETTINGS, PRIORITY, RST_STREAM, WINDOW_UPDATE, empty or tiny DATA and
// unknown frame costs a point; every message in or out earns points, and so does time. Clients answer DATA with
// WINDOW_UPDATE and PING, so one such frame per KiB sent is free. Normal clients never exhaust the budget; a flood
// of control frames does within milliseconds.

import { CODE, ConnectionError } from './frames.ts'

const POINTS_MAX = 10_000
const POINTS_PER_MS = 1
const POINTS_PER_MESSAGE = 4
const FREE_FRAME_BYTES = 1024

export class FloodBudget {
  #points = POINTS_MAX
  #refilledMs = performance.now()
  /** DATA bytes sent that have already been exchanged for free frames. */
  #freeUntilBytes = 0

  /** Charges a control frame, given the DATA bytes sent so far. */
  spendFrame(sentBytes: number): void {
    const unused = sentBytes - this.#freeUntilBytes
    if (unused < FREE_FRAME_BYTES) this.spend(1)
    else this.#freeUntilBytes += FREE_FRAME_BYTES
  }

  earn(): void {
    if (this.#points < POINTS_MAX) this.#points += POINTS_PER_MESSAGE
  }

  spend(points: number): void {
    this.#points -= points
    if (this.#points < 0) this.#refill()
  }

  #refill(): void {
    const nowMs = performance.now()
    this.#points = Math.min(POINTS_MAX, this.#points + (nowMs - this.#refilledMs) * POINTS_PER_MS)
    this.#refilledMs = nowMs
    if (this.#points < 0) throw new ConnectionError(CODE.calm, 'too many frames without work')
  }
}
