// Metrics of a node, kept by its supervisor: the last report of each worker, and the totals of workers that exited. A
// counter never decreases when a worker is replaced; a stuck worker counts with its last report.

import { Counter, Gauge, Registry } from 'prom-client'
import { mergedTotals, type Report, registerProcess, reportOf } from '../metrics/reports.ts'
import { WORKERS_REPLACED, WORKERS_STALE } from '../metrics/worker-metrics.ts'

export class WorkerReports {
  readonly #reports = new Map<number, Partial<Report>>()
  /** Metrics of the supervisor, which is a process of the node too. */
  readonly #own: Registry = new Registry()
  readonly #replaced: Counter
  readonly #stale: Gauge
  #ended = '[]'
  #retiring: Promise<void> = Promise.resolve()

  constructor() {
    registerProcess(this.#own)
    this.#replaced = new Counter({ ...WORKERS_REPLACED, registers: [this.#own] })
    this.#stale = new Gauge({ ...WORKERS_STALE, registers: [this.#own] })
  }

  note(worker: number, report: Partial<Report>): void {
    this.#reports.set(worker, { ...this.#reports.get(worker), ...report })
  }

  replaced(): void {
    this.#replaced.inc()
  }

  /** Keeps the totals of an exited worker. Call it when no message of that worker can arrive any more. */
  retire(worker: number): Promise<void> {
    this.#retiring = this.#retiring.then(async () => {
      const { totals } = this.#reports.get(worker) ?? {}
      if (totals !== undefined) this.#ended = await mergedTotals([this.#ended, totals])
      this.#reports.delete(worker)
    })
    return this.#retiring
  }

  /** Reports to merge: totals of all workers ever started, gauges of living ones. */
  async all(living: ReadonlySet<number>, stale: number): Promise<string[]> {
    this.#stale.set(stale)
    const own = await reportOf(this.#own)
    await this.#retiring
    const reports = [...this.#reports]
    const totals = reports.map(([, report]) => report.totals)
    const gauges = reports.filter(([worker]) => living.has(worker)).map(([, report]) => report.gauges)
    // Workers first: metric definitions come from the first report.
    const parts = [...gauges, ...totals, this.#ended, own.gauges, own.totals]
    return parts.filter((part) => part !== undefined)
  }
}
