// The time that windows of one length go by. Windows begin with the minute, the hour, the day, so they follow the time
// of day when it is set, but only from the end of the window at hand: no window ends early because a clock was set.
// The next one ends with one of the day. It is up to twice as long as usual, or a twentieth shorter at most.

import type { Algorithm, PackedState } from '../algorithms/algorithm.ts'

/** By how much of its length a window may be shortened. Others are lengthened: that errs low. */
const SHORTER_MAX = 0.05

export class WindowTime {
  readonly #windowUs: number
  /** Added to the time of the store until the window at hand ends, and from then on. */
  #shiftUs: number
  #nextShiftUs: number
  /** When the window at hand ends, in window time. */
  #endUs = Number.NEGATIVE_INFINITY

  /** `aheadUs`: how far the time of day is ahead of the store's. */
  constructor(windowUs: number, aheadUs: number) {
    this.#windowUs = windowUs
    this.#shiftUs = aheadUs
    this.#nextShiftUs = aheadUs
  }

  get isShifted(): boolean {
    return this.#shiftUs !== 0 || this.#nextShiftUs !== 0
  }

  /** The time of day was set. False while an earlier change is still to come into force: try again later. */
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

  /** Window time at a time of the store. Stands still at the beginning of a window that is lengthened. */
  at(us: number): number {
    const before = us + this.#shiftUs
    return before < this.#endUs ? before : Math.max(this.#endUs, us + this.#nextShiftUs)
  }

  /** How long it takes until window time has gone on by `us`. */
  until(nowUs: number, us: number): number {
    if (us === 0) return 0
    const windowUs = this.at(nowUs) + us
    const endUs = this.#endUs - this.#shiftUs
    return (windowUs <= this.#endUs ? windowUs - this.#shiftUs : Math.max(endUs, windowUs - this.#nextShiftUs)) - nowUs
  }
}

/** The same algorithm on window time. */
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
