// Converts metrics of prom-client to OTLP JSON (opentelemetry.proto.metrics.v1): cumulative sums, gauges and
// histograms, with the names and labels of /metrics.

import type { Metric } from '../metrics/reports.ts'

export type Attributes = Readonly<Record<string, unknown>>

export type MetricsResource = {
  readonly attributes: Attributes
  /** Name and version of the program that counts. */
  readonly scope: { readonly name: string; readonly version: string }
  /** Start time of the counters. */
  readonly startedUs: number
}

type Times = { readonly startTimeUnixNano: string; readonly timeUnixNano: string }
type Sample = {
  readonly labels: Readonly<Record<string, unknown>>
  readonly value: number
  readonly metricName?: string
}

const CUMULATIVE = 2

export function otlpMetrics(metrics: readonly Metric[], resource: MetricsResource, nowUs: number): object {
  const { attributes, scope, startedUs } = resource
  const times = { startTimeUnixNano: nanoseconds(startedUs), timeUnixNano: nanoseconds(nowUs) }
  const converted = metrics.flatMap((metric) => convert(metric, times))
  return {
    resourceMetrics: [
      { resource: { attributes: keyValues(attributes) }, scopeMetrics: [{ scope, metrics: converted }] },
    ],
  }
}

function convert({ name, help: description, type, values }: Metric, times: Times): object[] {
  const samples = (values as readonly Sample[]).filter(({ value }) => Number.isFinite(value)) // JSON has no NaN
  if (samples.length === 0) return []
  const base = { name, description }
  switch (String(type)) {
    case 'counter':
      return [{ ...base, sum: { ...TOTAL, isMonotonic: true, dataPoints: points(samples, times) } }]
    case 'gauge':
      return [{ ...base, gauge: { dataPoints: points(samples, times) } }]
    case 'histogram':
      return [{ ...base, histogram: { ...TOTAL, dataPoints: histogramPoints(name, samples, times) } }]
    default:
      return []
  }
}

const TOTAL = { aggregationTemporality: CUMULATIVE }

function points(samples: readonly Sample[], times: Times): object[] {
  return samples.map(({ labels, value }) => ({ attributes: keyValues(labels), ...times, asDouble: value }))
}

/** Groups samples by their labels other than `le`: each group is one histogram. */
function histogramPoints(name: string, samples: readonly Sample[], times: Times): object[] {
  const groups = new Map<string, Sample[]>()
  for (const sample of samples) {
    const { le: _le, ...labels } = sample.labels
    const key = JSON.stringify(Object.entries(labels).sort())
    const group = groups.get(key)
    if (group === undefined) groups.set(key, [sample])
    else group.push(sample)
  }
  return [...groups.values()].map((group) => histogramPoint(name, group, times))
}

/** Prometheus counts values up to a bound, OTLP those between two bounds. */
function histogramPoint(name: string, group: readonly Sample[], times: Times): object {
  const { le: _le, ...labels } = group[0]?.labels ?? {}
  const buckets = group
    .filter(({ metricName }) => metricName === `${name}_bucket`)
    .map(({ labels: { le }, value }) => ({ bound: le === '+Inf' ? Number.POSITIVE_INFINITY : Number(le), value }))
    .sort((a, b) => a.bound - b.bound)
  const valueWith = (suffix: string) => group.find(({ metricName }) => metricName === name + suffix)?.value ?? 0
  return {
    attributes: keyValues(labels),
    ...times,
    count: String(valueWith('_count')),
    sum: valueWith('_sum'),
    explicitBounds: buckets.map(({ bound }) => bound).filter(Number.isFinite),
    bucketCounts: buckets.map(({ value }, index) => String(value - (buckets[index - 1]?.value ?? 0))),
  }
}

function keyValues(attributes: Attributes): object[] {
  return Object.entries(attributes).map(([key, value]) => ({ key, value: { stringValue: String(value) } }))
}

/** As text, because the number exceeds 2^53. */
function nanoseconds(us: number): string {
  return `${Math.floor(us)}000`
}
