// Runs a replay in slices, so that its thread stays responsive, with progress and cancellation.

import { systemTimers } from '../clock.ts'
import type { RecordedRequest } from './recorded-request.ts'
import { Replay, type ReplayOptions } from './replay.ts'
import type { ReplayResult } from './result.ts'

/** Requests per slice: about 10 ms. */
const SLICE = 4096

export type RunOptions = ReplayOptions & {
  /** Called between slices with the number of requests so far. */
  readonly onProgress?: ((done: number) => void) | undefined
  /** Rejects with the reason of the signal. */
  readonly signal?: AbortSignal | undefined
}

/** Requests must be in order: see `recordingOf` and `InOrder`. Rejects with RULE_INVALID. */
export async function replay(requests: Iterable<RecordedRequest>, options: RunOptions): Promise<ReplayResult> {
  const { onProgress, signal } = options
  const run = new Replay(options)
  let done = 0
  for (const request of requests) {
    if (done % SLICE === 0) {
      onProgress?.(done)
      if (done > 0) await new Promise<void>((resolve) => systemTimers.soon(resolve))
      signal?.throwIfAborted()
    }
    run.add(request)
    done += 1
  }
  onProgress?.(done)
  return run.result()
}
