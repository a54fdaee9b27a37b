// Pipeline of a process: recorder → batches once a second → one runner per sink. For every sink and at any moment,
// decided = sampled out + stored + dropped + pending.

import type { Decision, Subject } from 'sluice'
import type { KeyHash } from '../log.ts'
import { clearBatch, hashedBatch } from './batches.ts'
import { EventRecorder, type RecorderDeps } from './recorder.ts'
import type { Sink } from './sink.ts'
import { SinkRunner, type SinkTotals } from './sink-runner.ts'

const FLUSH_MS = 1000
const CLOSE_MS = 5000

export type KeyMode = 'clear' | 'hmac'
export type SinkWithKeys = { readonly sink: Sink; readonly keys: KeyMode }

export type PipelineTotals = {
  readonly decided: number
  readonly sampledOut: number
  /** `pending` includes decisions that no batch contains yet. */
  readonly sinks: readonly SinkTotals[]
}

export type EventTotals = { totals(): PipelineTotals }

export class EventPipeline implements EventTotals {
  readonly #recorder: EventRecorder
  readonly #runners: readonly { readonly runner: SinkRunner; readonly keys: KeyMode }[]
  readonly #hash: KeyHash
  #timer: NodeJS.Timeout | undefined

  constructor(deps: RecorderDeps, sinks: readonly SinkWithKeys[]) {
    this.#recorder = new EventRecorder(deps)
    this.#hash = deps.keyHash
    this.#runners = sinks.map(({ sink, keys }) => ({ keys, runner: new SinkRunner(sink, deps.log, deps.nowMs) }))
    this.#flushLater()
  }

  /** The hot path: never blocks or fails. `decided`: the limiter's own decision, if `decision` is a revision. */
  record(subject: Subject, decision: Decision, decided: Decision, us: number): void {
    this.#recorder.record(subject, decision, decided, us)
  }

  totals(): PipelineTotals {
    const { decided, sampledOut, failed, pending } = this.#recorder
    const sinks = this.#runners.map(({ runner: { totals } }) => ({
      ...totals,
      dropped: totals.dropped + failed,
      pending: totals.pending + pending,
    }))
    return { decided, sampledOut, sinks }
  }

  #flushLater(): void {
    this.#timer = setTimeout(() => {
      this.flush()
      this.#flushLater()
    }, FLUSH_MS).unref()
  }

  /** Hands everything recorded so far to the sinks. */
  flush(): void {
    const recorded = this.#recorder.take()
    if (recorded.counts.length === 0) return
    const isNeeded = (mode: KeyMode) => this.#runners.some(({ keys }) => keys === mode)
    const batches = {
      clear: isNeeded('clear') ? clearBatch(recorded) : undefined,
      hmac: isNeeded('hmac') ? hashedBatch(recorded, this.#hash) : undefined,
    }
    for (const { runner, keys } of this.#runners) {
      const batch = batches[keys]
      if (batch !== undefined) runner.push(batch)
    }
  }

  /** Why this process is degraded; undefined if all sinks work. */
  degradedReason(): string | undefined {
    const down = this.totals().sinks.filter(({ isUp }) => !isUp)
    return down.length === 0 ? undefined : `events: ${down.map(({ name }) => name).join(', ')} does not store events`
  }

  async close(): Promise<void> {
    clearTimeout(this.#timer)
    this.flush()
    await Promise.all(this.#runners.map(({ runner }) => runner.close(CLOSE_MS)))
  }
}
