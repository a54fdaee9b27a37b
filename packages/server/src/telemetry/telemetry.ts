// OpenTelemetry of a node: spans of its requests, and its metrics, sent over OTLP/HTTP. Off without --otlp-endpoint: no
// package is loaded, and requests carry no span. A failing receiver never delays or fails a request.

import { hostname } from 'node:os'
import { wallClock } from 'sluice'
import type { Log } from '../log.ts'
import type { Metrics } from '../metrics/metrics.ts'
import { VERSION } from '../package-facts.ts'
import type { Settings } from '../settings/settings.ts'
import { exportMetrics } from './metrics-exporter.ts'
import { Outage } from './outage.ts'
import { type LoadPackages, loadPackages, type Packages } from './packages.ts'
import { type RequestSpan, ServerSpan } from './request-span.ts'
import { createSample } from './sampling.ts'
import { SpanQueue } from './span-queue.ts'
import { TelemetryMetrics } from './telemetry-metrics.ts'
import { type TraceHeaders, traceParentOf, withTraceParent } from './trace-context.ts'

export type Telemetry = {
  /** Starts the server span of a request, in the trace of a caller that sent one. Undefined if it is not sampled. */
  start(method: string, headers: TraceHeaders): RequestSpan | undefined
  /**
   * Returns the headers of a forwarded request (alternating names and values) with `span` as the parent. Without a
   * span, the caller's trace passes through, and a new one is marked as not sampled: the first service decides for all.
   */
  propagate(headers: string[], sent: TraceHeaders, span: RequestSpan | undefined): string[]
  /** Sends pending spans and a last export of metrics; gives up after `ms`. */
  close(ms?: number): Promise<void>
}

export type TelemetrySettings = Pick<Settings, 'otlpEndpoint' | 'otlpHeaders' | 'otlpMetricsSeconds' | 'traceSample'>

export type TelemetryDeps = {
  readonly metrics: Metrics
  readonly log: Log
  readonly load?: LoadPackages | undefined
  /** Wait for a batch of spans to fill up. */
  readonly batchMs?: number | undefined
}

/** Deadline of one export, its retries included. */
const EXPORT_MS_MAX = 3000
const CLOSE_MS_MAX = 4000
const SCOPE = { name: 'sluice', version: VERSION }

/** Undefined without an endpoint. Throws if the packages are not installed. */
export async function openTelemetry(
  settings: TelemetrySettings,
  { metrics, log, load, batchMs }: TelemetryDeps,
): Promise<Telemetry | undefined> {
  const { otlpEndpoint: endpoint, otlpHeaders: headers = {}, otlpMetricsSeconds, traceSample } = settings
  if (endpoint === undefined) return undefined
  const { api, sdk, exporter: otlp, resources } = await loadPackages(load)
  const { host } = new URL(endpoint)
  const counts = new TelemetryMetrics(metrics.registry)
  const resource = resourceOf(resources)
  const exporter = new otlp.OTLPTraceExporter({
    url: `${endpoint}/v1/traces`,
    headers: { ...headers },
    timeoutMillis: EXPORT_MS_MAX,
  })
  const outage = new Outage(log, 'traces', host)
  const queue = new SpanQueue(sdk, { exporter, outage, metrics: counts, exportMsMax: EXPORT_MS_MAX, batchMs })
  const provider = new sdk.BasicTracerProvider({
    resource,
    sampler: new sdk.AlwaysOnSampler(), // `sample` has decided before
    spanProcessors: [queue],
  })
  const tracer = provider.getTracer(SCOPE.name, SCOPE.version)
  const sample = createSample(traceSample, queue)
  const ids = new sdk.RandomIdGenerator()
  const stopMetrics =
    otlpMetricsSeconds === 0
      ? async () => {}
      : exportMetrics({
          url: `${endpoint}/v1/metrics`,
          headers,
          intervalMs: otlpMetricsSeconds * 1000,
          exportMsMax: EXPORT_MS_MAX,
          resource: { attributes: resource.attributes, scope: SCOPE, startedUs: wallClock.nowUs() },
          values: () => metrics.values(),
          outage: new Outage(log, 'metrics', host),
          metrics: counts,
        })
  return {
    start: (method, sent) => {
      const parent = traceParentOf(sent)
      return sample(parent) ? new ServerSpan(api, tracer, method, parent, sent) : undefined
    },
    propagate: (headers, sent, span) => {
      const continues = traceParentOf(sent) !== undefined
      if (span !== undefined) return withTraceParent(headers, span.asParent, continues)
      if (continues) return headers
      const unsampled = { traceId: ids.generateTraceId(), spanId: ids.generateSpanId(), isSampled: false }
      return withTraceParent(headers, unsampled, false)
    },
    close: (ms = CLOSE_MS_MAX) => within(ms, Promise.allSettled([provider.shutdown(), stopMetrics()])),
  }
}

/** OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES override and extend these. Each worker is an instance. */
function resourceOf({ resourceFromAttributes, detectResources, envDetector }: Packages['resources']) {
  const host = hostname()
  const ours = resourceFromAttributes({
    'service.name': SCOPE.name,
    'service.version': SCOPE.version,
    'service.instance.id': `${host}:${process.pid}`,
    'host.name': host,
  })
  return ours.merge(detectResources({ detectors: [envDetector] }))
}

async function within(ms: number, work: Promise<unknown>): Promise<void> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, ms)
  })
  await Promise.race([work, late])
  clearTimeout(timer)
}
