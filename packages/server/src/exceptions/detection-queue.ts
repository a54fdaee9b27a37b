// Turns detections into signals: writes them to the database one after the other, off the hot path, and announces each.
// Drops and counts detections while the queue is full or the database is down.

import type { Log } from '../log.ts'
import type { DetectedKind, Detection } from './detectors.ts'
import type { SignalTable } from './signal-table.ts'

/** Actor of detected signals in the audit log. */
export const DETECTOR = 'detector'
const QUEUED_MAX = 100

export type DetectionQueueDeps = {
  readonly signals: Pick<SignalTable, 'send'>
  readonly ttlMs: number
  readonly now: () => Date
  readonly log: Log
  /** Called after a signal was written. */
  readonly announce: (detection: Detection, signalId: string) => void
}

export class DetectionQueue {
  readonly #deps: DetectionQueueDeps
  #waiting: Detection[] = []
  #sending: Promise<void> | undefined
  readonly #detected: Record<DetectedKind, number> = { many_refusals: 0, many_keys: 0 }
  #dropped = 0

  constructor(deps: DetectionQueueDeps) {
    this.#deps = deps
  }

  add(detection: Detection): void {
    this.#detected[detection.kind] += 1
    if (this.#waiting.length >= QUEUED_MAX) {
      this.#dropped += 1
      return
    }
    this.#waiting.push(detection)
    this.#sending ??= this.#sendAll().finally(() => {
      this.#sending = undefined
    })
  }

  get detected(): Readonly<Record<DetectedKind, number>> {
    return this.#detected
  }

  get dropped(): number {
    return this.#dropped
  }

  /** Resolves when the current signal is written; drops the others. */
  async close(): Promise<void> {
    this.#dropped += this.#waiting.length
    this.#waiting = []
    await this.#sending
  }

  async #sendAll(): Promise<void> {
    const { signals, ttlMs, now, log, announce } = this.#deps
    for (let next = this.#waiting.shift(); next !== undefined; next = this.#waiting.shift()) {
      const { key, kind, severity, evidence } = next
      const expiresAt = new Date(now().getTime() + ttlMs)
      try {
        const id = await signals.send({ key, kind, severity, source: DETECTOR, expiresAt, evidence }, DETECTOR)
        announce(next, id)
      } catch (error) {
        this.#dropped += 1
        log.event('signal_dropped', { kind, reason: error instanceof Error ? error.message : String(error) })
      }
    }
  }
}
