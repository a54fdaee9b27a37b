// Deletes rows that are older than their retention: soon after the start, so that a shorter retention takes effect, and
// from time to time. Nodes that share a database may all do it: they delete in small batches and skip each other's.

import type { Clock } from 'sluice'
import type { Log } from '../log.ts'

const FIRST_MS = 1000
const EVERY_MS_MIN = 60_000
const EVERY_MS_MAX = 3_600_000
/** A row stays at most a tenth longer than its retention. */
const RUNS_PER_RETENTION = 10

export type RetentionParts = {
  /** For the log: `violations`. */
  readonly what: string
  /** 0: nothing is kept. */
  readonly keepMs: number
  /** Deletes one batch of rows before this time; returns how many. */
  readonly deleteBatch: (before: Date) => Promise<number>
  /** Runs once a run has deleted rows. */
  readonly reclaim?: (() => Promise<void>) | undefined
  readonly clock: Clock
  readonly log: Log
}

export class Retention {
  readonly #parts: RetentionParts
  #timer: NodeJS.Timeout | undefined
  #running: Promise<void> | undefined
  #closed = false

  constructor(parts: RetentionParts) {
    this.#parts = parts
    this.#runIn(FIRST_MS)
  }

  /** Rows before this time count as deleted, also while they are still there. */
  get oldest(): Date {
    const { clock, keepMs } = this.#parts
    return new Date(Math.max(0, clock.nowUs() / 1000 - keepMs))
  }

  /** Ends after the batch under way. */
  async close(): Promise<void> {
    this.#closed = true
    clearTimeout(this.#timer)
    await this.#running
  }

  #runIn(ms: number): void {
    this.#timer = setTimeout(() => {
      this.#running = this.#run()
    }, ms).unref()
  }

  async #run(): Promise<void> {
    const { what, keepMs, log } = this.#parts
    try {
      await this.#deleteOld()
    } catch (error) {
      if (!this.#closed) log.warn({ reason: String(error) }, `${what} past their retention could not be deleted`)
    }
    const everyMs = Math.min(EVERY_MS_MAX, Math.max(EVERY_MS_MIN, keepMs / RUNS_PER_RETENTION))
    if (!this.#closed) this.#runIn(everyMs)
  }

  async #deleteOld(): Promise<void> {
    const { what, deleteBatch, reclaim, log } = this.#parts
    const before = this.oldest
    let deleted = 0
    for (let batch = 1; batch > 0 && !this.#closed; deleted += batch) batch = await deleteBatch(before)
    if (deleted === 0 || this.#closed) return
    await reclaim?.()
    log.info({ deleted, before: before.toISOString() }, `deleted ${what} past their retention`)
  }
}
