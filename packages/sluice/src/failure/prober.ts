// Asks a store in the background whether it works again, one probe at a time. Intervals are jittered, so the nodes of a
// fleet do not probe a recovering store in step.

import type { Timers } from '../clock.ts'

/** Longest pause between two probes. The shortest is half of it. */
const PAUSE_MS_MAX = 250
/** A probe that is not answered by then is given up, and another one is sent. */
const PROBE_MS_MAX = 2000

export class Prober {
  readonly #probe: () => Promise<boolean>
  readonly #timers: Timers
  readonly #random: () => number
  #stop: (() => void) | undefined

  /** `probe` resolves to whether the store is well again; it must not reject. */
  constructor(probe: () => Promise<boolean>, timers: Timers, random: () => number) {
    this.#probe = probe
    this.#timers = timers
    this.#random = random
  }

  /** Probes until the store is well, or until `stop`. */
  start(): void {
    if (this.#stop === undefined) this.#after(this.#pauseMs())
  }

  stop(): void {
    this.#stop?.()
    this.#stop = undefined
  }

  #after(ms: number): void {
    this.#stop = this.#timers.after(ms, () => this.#run())
  }

  #run(): void {
    const startedMs = this.#timers.nowMs()
    const giveUp = this.#timers.after(PROBE_MS_MAX, () => settle(false))
    const settle = (isWell: boolean) => {
      if (this.#stop !== giveUp) return // given up, or stopped
      this.stop()
      // A store that was frozen answers the waiting probe late, and the next one at once.
      if (!isWell) this.#after(Math.max(0, this.#pauseMs() - (this.#timers.nowMs() - startedMs)))
    }
    this.#stop = giveUp
    void this.#probe().then(settle)
  }

  #pauseMs(): number {
    return PAUSE_MS_MAX * (0.5 + this.#random() / 2)
  }
}
