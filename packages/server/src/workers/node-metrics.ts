// One scrape of any worker returns the metrics of the whole node.

import type { Metrics } from '../metrics/metrics.ts'
import { mergedText } from '../metrics/reports.ts'
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
  if (!workers.several) return async () => {}
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

export async function scrapeNode(workers: NodeWorkers, metrics: Metrics): Promise<string> {
  if (!workers.several) return metrics.scrape()
  const { answers } = await workers.gather<string>(METRICS_TOPIC)
  return mergedText(answers)
}
