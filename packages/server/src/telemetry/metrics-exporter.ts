// Sends all metrics of this process to an OTLP receiver at an interval, and once more on close. A lost export loses no
// counts, because the next one has the totals.

import { type Clock, wallClock } from 'sluice'
import type { Metric } from '../metrics/reports.ts'
import { type MetricsResource, otlpMetrics } from './otlp-metrics.ts'
import type { Outage } from './outage.ts'
import type { TelemetryMetrics } from './telemetry-metrics.ts'

export type MetricsExporterDeps = {
  readonly url: string
  readonly headers: Readonly<Record<string, string>>
  readonly intervalMs: number
  readonly exportMsMax: number
  readonly resource: MetricsResource
  readonly values: () => Promise<readonly Metric[]>
  readonly outage: Outage
  readonly metrics: TelemetryMetrics
  readonly clock?: Clock | undefined
}

/** Returns a function that stops the exports after a last one. */
export function exportMetrics(deps: MetricsExporterDeps): () => Promise<void> {
  let timer: NodeJS.Timeout
  let current: Promise<void> = Promise.resolve()
  const schedule = () => {
    timer = setTimeout(() => {
      current = exportOnce(deps)
      void current.then(schedule)
    }, deps.intervalMs).unref()
  }
  schedule()
  return async () => {
    clearTimeout(timer)
    await current
    clearTimeout(timer) // set again after the export
    await exportOnce(deps)
  }
}

/** Never rejects. */
async function exportOnce(deps: MetricsExporterDeps): Promise<void> {
  const { outage, metrics } = deps
  try {
    await send(deps)
    metrics.metricExports.exported += 1
    outage.succeeded()
  } catch (error) {
    metrics.metricExports.failed += 1
    outage.failed(error)
  }
}

async function send({ url, headers, exportMsMax, resource, values, clock = wallClock }: MetricsExporterDeps) {
  const body = JSON.stringify(otlpMetrics(await values(), resource, clock.nowUs()))
  const response = await fetch(url, {
    method: 'POST',
    headers: { 'user-agent': 'sluice', ...headers, 'content-type': 'application/json' },
    body,
    redirect: 'manual',
    signal: AbortSignal.timeout(exportMsMax),
  })
  await response.body?.cancel()
  if (!response.ok) throw new Error(`status ${response.status}`)
}
