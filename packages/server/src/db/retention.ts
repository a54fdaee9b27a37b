// Deletes rows past their retention: shortly after the start, so that a new setting takes effect, and then
// periodically. Safe on several nodes: each deletes small batches and skips rows that another node has locked.

import type { Clock } from 'sluice'
import type { Log } from '../log.ts'

const FIRST_RUN_MS = 1000
const INTERVAL_MS_MIN = 60_000
const INTERVAL_MS_MAX = 3_600_000
/** Runs per retention period, so that a row outlives it by at most a tenth. */
const RUNS_PER_RETENTION = 10

export type RetentionDeps = {
  /** Name of the table, for the log. */
  readonly table: string
  /** 0 keeps nothing. */
  readonly keepMs: number
  /** Deletes one batch of rows before this time; returns their number. */
  readonly deleteBatch: (before: Date) => Promise<number>
  /** Longest time between two runs. Default: an hour. */
  readonly intervalMsMax?: number | undefined
  /** Called after a run that deleted rows. */
  readonly reclaim?: (() => Promise<void>) | undefined
  readonly clock: Clock
  readonly log: Log
}

export class Retention {
  readonly #deps: RetentionDeps
  #timer: NodeJS.Timeout | undefined
  #running: Promise<void> | undefined
  #closed = false

  constructor(deps: RetentionDeps) {
    this.#deps = deps
    this.#runIn(FIRST_RUN_MS)
  }

  /** Rows before this time count as deleted, even if they still exist. */
  get oldest(): Date {
    const { clock, keepMs } = this.#deps
    return new Date(Math.max(0, clock.nowUs() / 1000 - keepMs))
  }

  /** Resolves after the current batch. */
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
    const { table, keepMs, intervalMsMax = INTERVAL_MS_MAX, log } = this.#deps
    try {
      await this.#deleteOld()
    } catch (error) {
      if (!this.#closed) log.event('retention_failed', { table, reason: String(error) })
    }
    const intervalMs = Math.min(intervalMsMax, Math.max(INTERVAL_MS_MIN, keepMs / RUNS_PER_RETENTION))
    if (!this.#closed) this.#runIn(intervalMs)
  }

  async #deleteOld(): Promise<void> {
    const { table, deleteBatch, reclaim, log } = this.#deps
    const before = this.oldest
    let deleted = 0
    for (let batch = 1; batch > 0 && !this.#closed; deleted += batch) batch = await deleteBatch(before)
    if (deleted === 0 || this.#closed) return
    await reclaim?.()
    log.event('retention_applied', { table, deleted, before: before.toISOString() })
  }
}
