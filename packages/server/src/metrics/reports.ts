// Merges the metrics of several workers into those of their node, each as the `aggregator` of its definition says.
// Totals (counters and histograms) are separate from gauges: they outlive the worker that counted them.

import { type Aggregator, AggregatorRegistry, type Registry } from 'prom-client'

/** Metrics of one process as text, so that the supervisor passes them on without parsing them. */
export type Report = { readonly totals: string; readonly gauges: string }

type Metric = Awaited<ReturnType<Registry['getMetricsAsJSON']>>[number]

/** prom-client leaves these out of a merge, or averages them, which hides the worker that lags. */
const OF_PROCESSES: Readonly<Record<string, Aggregator>> = {
  process_start_time_seconds: 'min',
  nodejs_eventloop_lag_seconds: 'max',
  nodejs_eventloop_lag_mean_seconds: 'max',
  nodejs_eventloop_lag_stddev_seconds: 'max',
  nodejs_eventloop_lag_p50_seconds: 'max',
  nodejs_eventloop_lag_p90_seconds: 'max',
  nodejs_eventloop_lag_p99_seconds: 'max',
}

/** Call it after `collectDefaultMetrics`. */
export function aggregateProcessMetrics(registry: Registry): void {
  for (const metric of registry.getMetricsAsArray()) {
    const aggregator = OF_PROCESSES[metric.name]
    if (aggregator !== undefined) metric.aggregator = aggregator
  }
}

export async function reportOf(registry: Registry): Promise<Report> {
  const metrics = await registry.getMetricsAsJSON()
  const gauges = metrics.filter((metric) => !isTotal(metric))
  return { totals: JSON.stringify(metrics.filter(isTotal)), gauges: JSON.stringify(gauges) }
}

/** Leaves gauges alone: reading those of the event loop resets them. */
export async function totalsOf(registry: Registry): Promise<string> {
  const totals = registry.getMetricsAsArray().filter(isTotal) as unknown as { get(): Promise<Metric> | Metric }[]
  return JSON.stringify(await Promise.all(totals.map((metric) => metric.get())))
}

/** The text of a scrape. */
export function mergedText(reports: readonly string[]): Promise<string> {
  return merged(reports).metrics()
}

export async function mergedTotals(reports: readonly string[]): Promise<string> {
  return JSON.stringify(await merged(reports).getMetricsAsJSON())
}

function merged(reports: readonly string[]): Registry {
  return AggregatorRegistry.aggregate(reports.map((report) => JSON.parse(report) as object))
}

function isTotal({ type }: Pick<Metric, 'type'>): boolean {
  const name = String(type) // declared as an enum, and a text in fact
  return name === 'counter' || name === 'histogram'
}
