// Measures elapsed time minus the time this thread was runnable but waiting for a processor, so that other load on the
// machine has less influence. Includes garbage collection. Outside Linux, measures elapsed time.

import { openSync, readSync } from 'node:fs'

export class Stopwatch {
  /** Elapsed time since the last start, and the part without run-queue waits. */
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

  /** Format: "<ns running> <ns runnable but waiting> <timeslices>". */
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
