// One scrape of any worker returns the metrics of the whole node.

import { Gauge, Registry } from 'prom-client'
import type { Metrics } from '../metrics/metrics.ts'
import { mergedText, reportOf } from '../metrics/reports.ts'
import { setWorkersUp, WORKER_UP, WORKERS_STALE } from '../metrics/worker-metrics.ts'
import { workerNumber } from '../worker-number.ts'
import { METRICS_TOPIC } from './messages.ts'
import type { NodeWorkers } from './node-workers.ts'

const REPORT_MS = 1000
/** Limits reports to 1 % of a worker's time, however many rules have series of their own. */
const PAUSE_PER_WORK = 100

/**
 * Answers scrapes of the node and sends the totals to the supervisor once a second, so that a killed worker loses only
 * the counts of its last second. Returns a function that sends the last report.
 */
export function reportMetrics(workers: NodeWorkers, metrics: Metrics): () => Promise<void> {
  workers.answer(METRICS_TOPIC, () => metrics.report())
  if (workers.count === 0) return async () => {}
  let timer: NodeJS.Timeout
  const report = async () => {
    const startedMs = performance.now()
    workers.report(await metrics.totals(), metrics.policyReasons())
    timer = setTimeout(report, Math.max(REPORT_MS, PAUSE_PER_WORK * (performance.now() - startedMs))).unref()
  }
  void report()
  return async () => {
    clearTimeout(timer)
    workers.report(await metrics.totals(), metrics.policyReasons())
  }
}

/** The supervisor knows the last totals of workers that do not answer. */
export async function scrapeNode(workers: NodeWorkers, metrics: Metrics): Promise<string> {
  if (workers.count === 0) return metrics.scrape()
  const gathered = await workers.gather<string>(METRICS_TOPIC).catch(() => undefined)
  return gathered === undefined ? ownGauges(workers, metrics) : mergedText(gathered.answers)
}

/**
 * Returns the gauges of one worker, while the supervisor does not answer. Without totals: lower than those of the node,
 * they would look like a restart. Prometheus bridges a gap.
 */
async function ownGauges({ count }: NodeWorkers, metrics: Metrics): Promise<string> {
  const registry = new Registry()
  new Gauge({ ...WORKERS_STALE, registers: [registry] }).set(count - 1)
  setWorkersUp(new Gauge({ ...WORKER_UP, registers: [registry] }), count, (worker) => worker === workerNumber())
  const reports = [await metrics.report(), await reportOf(registry)]
  return mergedText(reports.map(({ gauges }) => gauges))
}
