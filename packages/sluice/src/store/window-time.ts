// Window time: the clock of all windows of one length. Windows are aligned to wall-clock time and follow it when it is
// set, from the end of the current window on: no window ends early because a clock was set. The next window is
// realigned; it is up to twice as long as usual, or at most a twentieth shorter.

import type { Algorithm, PackedState } from '../algorithms/algorithm.ts'

/** Share of its length by which a window may be shortened; beyond it, the window is lengthened, which errs low. */
const SHORTER_MAX = 0.05

export class WindowTime {
  readonly #windowUs: number
  /** Offsets to store time: until the current window ends, and after that. */
  #shiftUs: number
  #nextShiftUs: number
  /** End of the current window, in window time. */
  #endUs = Number.NEGATIVE_INFINITY

  /** `aheadUs`: how far wall-clock time is ahead of the store's. */
  constructor(windowUs: number, aheadUs: number) {
    this.#windowUs = windowUs
    this.#shiftUs = aheadUs
    this.#nextShiftUs = aheadUs
  }

  get isShifted(): boolean {
    return this.#shiftUs !== 0 || this.#nextShiftUs !== 0
  }

  /** Follows a change of wall-clock time. Returns false while an earlier change is pending: retry later. */
  follow(aheadUs: number, nowUs: number): boolean {
    if (nowUs + this.#shiftUs >= this.#endUs) {
      if (nowUs + this.#nextShiftUs < this.#endUs) return false
      this.#shiftUs = this.#nextShiftUs
      this.#endUs = (Math.floor((nowUs + this.#shiftUs) / this.#windowUs) + 1) * this.#windowUs
    }
    const difference = (aheadUs - this.#shiftUs) % this.#windowUs
    const forwardUs = difference < 0 ? difference + this.#windowUs : difference
    const shortens = forwardUs <= this.#windowUs * SHORTER_MAX
    this.#nextShiftUs = this.#shiftUs + (shortens ? forwardUs : forwardUs - this.#windowUs)
    return true
  }

  /** Converts store time to window time, which stands still at the start of a lengthened window. */
  at(us: number): number {
    const before = us + this.#shiftUs
    return before < this.#endUs ? before : Math.max(this.#endUs, us + this.#nextShiftUs)
  }

  /** Store time until window time has advanced by `us`. */
  until(nowUs: number, us: number): number {
    if (us === 0) return 0
    const windowUs = this.at(nowUs) + us
    const endUs = this.#endUs - this.#shiftUs
    return (windowUs <= this.#endUs ? windowUs - this.#shiftUs : Math.max(endUs, windowUs - this.#nextShiftUs)) - nowUs
  }
}

/** Runs an algorithm on window time. */
export function onWindowTime(algorithm: Algorithm<PackedState>, time: WindowTime): Algorithm<PackedState> {
  return {
    fresh: () => algorithm.fresh(),
    advance: (limit, state, nowUs) => algorithm.advance(limit, state, time.at(nowUs)),
    used: (limit, state, nowUs) => algorithm.used(limit, state, time.at(nowUs)),
    charge: (limit, state, nowUs, units) => algorithm.charge(limit, state, time.at(nowUs), units),
    refund: (limit, state, nowUs, units, bookedUs) =>
      algorithm.refund(limit, state, time.at(nowUs), units, time.at(bookedUs)),
    waitUs: (limit, state, nowUs, units) => time.until(nowUs, algorithm.waitUs(limit, state, time.at(nowUs), units)),
    resetUs: (limit, state, nowUs) => time.until(nowUs, algorithm.resetUs(limit, state, time.at(nowUs))),
    delayUs: (limit, state) => algorithm.delayUs(limit, state),
  }
}
