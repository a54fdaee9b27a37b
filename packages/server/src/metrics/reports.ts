// Merges the metrics of several workers into those of their node, by the `aggregator` of each definition. Totals
// (counters and histograms) are kept apart from gauges, because they outlive their worker.

import { type Aggregator, AggregatorRegistry, collectDefaultMetrics, type Registry } from 'prom-client'

/** Metrics of one process as JSON text, which the supervisor forwards without parsing. */
export type Report = { readonly totals: string; readonly gauges: string }

export type Metric = Awaited<ReturnType<Registry['getMetricsAsJSON']>>[number]

/** prom-client would omit these from a merge or average them, which hides the slowest worker. */
const PROCESS_AGGREGATORS: Readonly<Record<string, Aggregator>> = {
  process_start_time_seconds: 'min',
  nodejs_eventloop_lag_seconds: 'max',
  nodejs_eventloop_lag_mean_seconds: 'max',
  nodejs_eventloop_lag_stddev_seconds: 'max',
  nodejs_eventloop_lag_p50_seconds: 'max',
  nodejs_eventloop_lag_p90_seconds: 'max',
  nodejs_eventloop_lag_p99_seconds: 'max',
}

/** Gauges with the suffix of a counter; `nodejs_active_handles` and its like report the same. */
const MISNAMED = ['nodejs_active_handles_total', 'nodejs_active_requests_total', 'nodejs_active_resources_total']

/** Registers the `process_…` and `nodejs_…` metrics. */
export function registerProcess(registry: Registry): void {
  collectDefaultMetrics({ register: registry })
  for (const name of MISNAMED) registry.removeSingleMetric(name)
  for (const metric of registry.getMetricsAsArray()) {
    const aggregator = PROCESS_AGGREGATORS[metric.name]
    if (aggregator !== undefined) metric.aggregator = aggregator
  }
}

export async function reportOf(registry: Registry): Promise<Report> {
  const metrics = await registry.getMetricsAsJSON()
  const gauges = metrics.filter((metric) => !isTotal(metric))
  return { totals: JSON.stringify(metrics.filter(isTotal)), gauges: JSON.stringify(gauges) }
}

/** Does not read gauges, because reading the event loop gauges resets them. */
export async function totalsOf(registry: Registry): Promise<string> {
  const totals = registry.getMetricsAsArray().filter(isTotal) as unknown as { get(): Promise<Metric> | Metric }[]
  return JSON.stringify(await Promise.all(totals.map((metric) => metric.get())))
}

/** Reads the metrics of Sluice only, because reading the event loop gauges resets them. */
export async function sluiceMetricsOf(registry: Registry): Promise<Metric[]> {
  const named = registry.getMetricsAsArray().filter(({ name }) => name.startsWith('sluice_'))
  return Promise.all((named as unknown as { get(): Promise<Metric> | Metric }[]).map((metric) => metric.get()))
}

/** Returns the merged metrics in the Prometheus text format. */
export function mergedText(reports: readonly string[]): Promise<string> {
  return merged(reports).metrics()
}

export async function mergedTotals(reports: readonly string[]): Promise<string> {
  return JSON.stringify(await merged(reports).getMetricsAsJSON())
}

/** Replaces the metrics of a report that `newer` has too. */
export function updatedTotals(totals: string, newer: string): string {
  const metrics = new Map([totals, newer].flatMap((part) => JSON.parse(part) as Metric[]).map((one) => [one.name, one]))
  return JSON.stringify([...metrics.values()])
}

function merged(reports: readonly string[]): Registry {
  return AggregatorRegistry.aggregate(reports.map((report) => JSON.parse(report) as object))
}

function isTotal({ type }: Pick<Metric, 'type'>): boolean {
  const name = String(type) // declared as an enum, but a string at run time
  return name === 'counter' || name === 'histogram'
}
