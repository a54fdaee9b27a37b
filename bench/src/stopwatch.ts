// Time that passed, less the time in which this thread was ready to run while others had the processor: what is left is
// ours, waiting for garbage collection included, and a busy machine weighs less. Elsewhere than on Linux: all of it.

import { openSync, readSync } from 'node:fs'

export class Stopwatch {
  /** Since the last start: all that passed, and what of it was ours. */
  wallMs = 0
  ownMs = 0
  readonly #file = openSchedule()
  readonly #bytes: Buffer = Buffer.alloc(128)
  #startedMs = 0
  #waitedMs = 0

  start(): void {
    this.#waitedMs = this.#waited()
    this.#startedMs = performance.now()
  }

  stop(): void {
    this.wallMs = performance.now() - this.#startedMs
    this.ownMs = this.wallMs - (this.#waited() - this.#waitedMs)
  }

  /** The file holds "<ns on the processor> <ns ready but waiting> <turns>". */
  #waited(): number {
    if (this.#file === undefined) return 0
    const length = readSync(this.#file, this.#bytes, 0, this.#bytes.length, 0)
    return Number(this.#bytes.toString('latin1', 0, length).split(' ')[1]) / 1e6
  }
}

function openSchedule(): number | undefined {
  try {
    return openSync('/proc/thread-self/schedstat', 'r')
  } catch {
    return undefined
  }
}
