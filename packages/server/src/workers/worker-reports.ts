// Metrics of a node, kept by its supervisor: the last report of each worker, and the totals of workers that exited. A
// counter never decreases when a worker is replaced; a stuck worker counts with its last report. Events of an exited
// worker are those of the file of event counts, which is newer than its last report.

import { Counter, Gauge, Registry } from 'prom-client'
import { type EventCounts, eventTotals } from '../metrics/event-metrics.ts'
import { mergedTotals, type Report, registerProcess, reportOf, updatedTotals } from '../metrics/reports.ts'
import { setWorkersUp, WORKER_UP, WORKERS_REPLACED, WORKERS_STALE } from '../metrics/worker-metrics.ts'

export class WorkerReports {
  readonly #reports = new Map<number, Partial<Report>>()
  /** Event counters of exited workers. */
  readonly #events = new Map<number, Promise<string>>()
  /** Metrics of the supervisor, which is a process of the node too. */
  readonly #own: Registry = new Registry()
  readonly #replaced: Counter
  readonly #stale: Gauge
  readonly #up: Gauge<'worker'>
  #ended = '[]'
  #retiring: Promise<void> = Promise.resolve()

  constructor() {
    registerProcess(this.#own)
    this.#replaced = new Counter({ ...WORKERS_REPLACED, registers: [this.#own] })
    this.#stale = new Gauge({ ...WORKERS_STALE, registers: [this.#own] })
    this.#up = new Gauge({ ...WORKER_UP, registers: [this.#own] })
  }

  note(worker: number, report: Partial<Report>): void {
    this.#reports.set(worker, { ...this.#reports.get(worker), ...report })
  }

  ended(worker: number, events: EventCounts): void {
    this.#events.set(worker, eventTotals(events))
  }

  replaced(): void {
    this.#replaced.inc()
  }

  /** Keeps the totals of an exited worker. Call it when no message of that worker can arrive any more. */
  retire(worker: number): Promise<void> {
    this.#retiring = this.#retiring.then(async () => {
      this.#ended = await mergedTotals([this.#ended, await this.#totalsOf(worker)])
      this.#reports.delete(worker)
      this.#events.delete(worker)
    })
    return this.#retiring
  }

  /**
   * Reports to merge: totals of all workers ever started, gauges of living ones. `up`: numbers of the workers that
   * answered, out of `count`; `stale` living ones did not.
   */
  async all(living: ReadonlySet<number>, stale: number, up: ReadonlySet<number>, count: number): Promise<string[]> {
    this.#stale.set(stale)
    setWorkersUp(this.#up, count, (worker) => up.has(worker))
    const own = await reportOf(this.#own)
    await this.#retiring
    const reports = [...this.#reports]
    const totals = await Promise.all(reports.map(([worker]) => this.#totalsOf(worker)))
    const gauges = reports.filter(([worker]) => living.has(worker)).map(([, report]) => report.gauges)
    // Workers first: metric definitions come from the first report.
    const parts = [...gauges, ...totals, this.#ended, own.gauges, own.totals]
    return parts.filter((part) => part !== undefined)
  }

  async #totalsOf(worker: number): Promise<string> {
    const { totals = '[]' } = this.#reports.get(worker) ?? {}
    const events = await this.#events.get(worker)
    return events === undefined ? totals : updatedTotals(totals, events)
  }
}
