// Prometheus metrics of the telemetry itself, registered only while it is on.

import type { Registry } from 'prom-client'
import { type CounterDefinition, registerCounters } from '../metrics/registration.ts'

export class TelemetryMetrics {
  readonly spans = { exported: 0, failed: 0, dropped: 0 }
  readonly metricExports = { exported: 0, failed: 0 }

  constructor(registry: Registry) {
    registerCounters(registry, () => this, COUNTERS)
  }
}

const COUNTERS: readonly CounterDefinition<TelemetryMetrics>[] = [
  {
    name: 'sluice_otlp_spans_total',
    help: 'Spans exported over OTLP, lost in failed exports, and dropped because the queue was full.',
    labels: ['result'],
    read: ({ spans }) => byResult(spans),
  },
  {
    name: 'sluice_otlp_metric_exports_total',
    help: 'Exports of metrics over OTLP.',
    labels: ['result'],
    read: ({ metricExports }) => byResult(metricExports),
  },
]

function byResult(counts: Readonly<Record<string, number>>): (readonly [{ result: string }, number])[] {
  return Object.entries(counts).map(([result, count]) => [{ result }, count] as const)
}
