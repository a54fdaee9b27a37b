// Contract of a sink. The pipeline calls `write` with one batch at a time and never with the next one before the last
// one was stored; it retries, bounds the memory, and counts. A sink only has to store a batch exactly once.

import type { Batch } from './event.ts'

/** Identifies a batch across retries. `producer` is unique per process start; `seq` grows by 1 per batch. */
export type BatchId = { readonly producer: string; readonly seq: number }

export interface Sink {
  /** As in --events-sink: `embedded`, `clickhouse`, `kafka`, `jsonl`. Label of metrics. */
  readonly name: string
  /**
   * Default: no rate cap, 10,000 events per write. `perBatch`: the runner drops events of a batch beyond it on arrival,
   * admissions first; there is about one batch per second. Capped on arrival, so that a backlog is stored completely.
   */
  readonly eventsMax?: { readonly perBatch: number; readonly perWrite: number } | undefined
  /**
   * Stores a batch. `isRetry`: an earlier attempt failed, and the sink must find out how much of it was stored.
   * Resolves with the number of events that it rejected, usually 0.
   * Rejects with any error if the batch may not be stored: the pipeline retries with back-off.
   * Rejects with BatchRejected if retrying is pointless: the pipeline drops the batch and counts its events.
   */
  write(id: BatchId, batch: Batch, isRetry: boolean): Promise<number>
  close(): Promise<void>
}

/** The sink understood the batch and will never store it. */
export class BatchRejected extends Error {
  override readonly name = 'BatchRejected'
}
