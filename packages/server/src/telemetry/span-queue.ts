// Bounded queue of ended spans in front of the exporter. While it is full, spans are dropped and counted.

import type { BufferConfig, ReadableSpan, SpanExporter, SpanProcessor } from '@opentelemetry/sdk-trace-node'
import type { Outage } from './outage.ts'
import type { Packages } from './packages.ts'
import type { TelemetryMetrics } from './telemetry-metrics.ts'

/** About 2 MB. */
const QUEUED_MAX = 2048
const BATCH_MAX = 512
/** Wait for a batch to fill up. */
const BATCH_MS = 5000
const LATE_MS = 500

export type SpanQueueDeps = {
  readonly exporter: SpanExporter
  readonly outage: Outage
  readonly metrics: TelemetryMetrics
  readonly exportMsMax: number
  /** Default: `BATCH_MS`. */
  readonly batchMs?: number | undefined
}

export class SpanQueue implements SpanProcessor {
  readonly #deps: SpanQueueDeps
  readonly #batches: SpanProcessor
  /** Spans queued or being exported. */
  #pending = 0

  constructor(sdk: Packages['sdk'], deps: SpanQueueDeps) {
    const { exportMsMax, batchMs = BATCH_MS } = deps
    this.#deps = deps
    const limits: BufferConfig = {
      maxQueueSize: QUEUED_MAX,
      maxExportBatchSize: BATCH_MAX,
      scheduledDelayMillis: batchMs,
      exportTimeoutMillis: exportMsMax + LATE_MS, // the exporter gives up first, and says why
    }
    this.#batches = new sdk.BatchSpanProcessor(this.#watched(deps.exporter), limits)
  }

  get isFull(): boolean {
    return this.#pending >= QUEUED_MAX
  }

  onStart(): void {}

  onEnd(span: ReadableSpan): void {
    if (this.isFull) {
      this.drop()
    } else {
      this.#pending += 1
      this.#batches.onEnd(span)
    }
  }

  /** Counts a span that is lost because the queue is full. */
  drop(): void {
    this.#deps.metrics.spans.dropped += 1
  }

  forceFlush(): Promise<void> {
    return this.#batches.forceFlush()
  }

  shutdown(): Promise<void> {
    return this.#batches.shutdown()
  }

  /** Counts results and logs outages. */
  #watched(exporter: SpanExporter): SpanExporter {
    const { outage, metrics } = this.#deps
    return {
      export: (spans, done) =>
        exporter.export(spans, (result) => {
          this.#pending -= spans.length
          metrics.spans[result.code === SUCCESS ? 'exported' : 'failed'] += spans.length
          if (result.code === SUCCESS) outage.succeeded()
          else outage.failed(result.error)
          done(result)
        }),
      shutdown: () => exporter.shutdown(),
    }
  }
}

/** `ExportResultCode.SUCCESS` of @opentelemetry/core, which is not a direct dependency. */
const SUCCESS = 0
