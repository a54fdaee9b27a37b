// Probes a failed store in the background until it replies, one probe at a time. Intervals are jittered, so that the
// nodes of a fleet do not probe a recovering store in step.

import type { Timers } from '../clock.ts'

/** Longest pause between two probes; the shortest is half of it. */
const PAUSE_MS_MAX = 250
/** Timeout of a probe; then another one is sent. */
const PROBE_MS_MAX = 2000

export class Prober {
  readonly #probe: () => Promise<boolean>
  readonly #timers: Timers
  readonly #random: () => number
  #stop: (() => void) | undefined

  /** `probe` resolves to whether the store has recovered; it must not reject. */
  constructor(probe: () => Promise<boolean>, timers: Timers, random: () => number) {
    this.#probe = probe
    this.#timers = timers
    this.#random = random
  }

  /** Probes until the store has recovered, or until `stop`. */
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
    const settle = (hasRecovered: boolean) => {
      if (this.#stop !== giveUp) return // timed out or stopped
      this.stop()
      // No pause after a slow probe: a store that was frozen replies to it late, and to the next one immediately.
      if (!hasRecovered) this.#after(Math.max(0, this.#pauseMs() - (this.#timers.nowMs() - startedMs)))
    }
    this.#stop = giveUp
    void this.#probe().then(settle)
  }

  #pauseMs(): number {
    return PAUSE_MS_MAX * (0.5 + this.#random() / 2)
  }
}
