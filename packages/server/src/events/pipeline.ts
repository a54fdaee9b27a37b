// Pipeline of a process: recorder → batches once a second → one runner per sink. For every sink and at any moment,
// decided + operations = sampled out + stored + dropped + pending. Operations are refunds and resets: events that count
// in no total.

import type { Decision, Subject } from 'sluice'
import type { KeyHash } from '../log.ts'
import { clearBatch, hashedBatch } from './batches.ts'
import type { RecordedReset } from './event-fields.ts'
import { EventRecorder, type RecorderDeps } from './recorder.ts'
import type { Sink } from './sink.ts'
import { SinkRunner, type SinkTotals } from './sink-runner.ts'

const FLUSH_MS = 1000
const CLOSE_MS = 5000

export type KeyMode = 'clear' | 'hmac'
export type SinkWithKeys = { readonly sink: Sink; readonly keys: KeyMode }

export type PipelineTotals = {
  readonly decided: number
  /** Refunds and resets. */
  readonly operations: number
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

  /** Records a refund that the store confirmed. `position`: as returned by `positionOf` at the check. */
  recordRefund(requestId: string, units: number | undefined, position: number | undefined): void {
    this.#recorder.recordRefund(requestId, units, position)
  }

  recordReset(reset: RecordedReset): void {
    this.#recorder.recordReset(reset)
  }

  /** Position of a client in samples: a later refund of its request needs it. Undefined without a client. */
  positionOf(subject: Subject): number | undefined {
    return this.#recorder.positionOf(subject)
  }

  totals(): PipelineTotals {
    const { decided, operations, sampledOut, failed, pending } = this.#recorder
    const sinks = this.#runners.map(({ runner: { totals } }) => ({
      ...totals,
      dropped: totals.dropped + failed,
      pending: totals.pending + pending,
    }))
    return { decided, operations, sampledOut, sinks }
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
    if (recorded.counts.length === 0 && recorded.recorded.length === 0) return
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

  /** Reason that this process is degraded; undefined if all sinks work. */
  degradedReason(): string | undefined {
    const down = this.totals().sinks.filter(({ isUp }) => !isUp)
    if (down.length === 0) return undefined
    return `events: ${down.map(({ name }) => name).join(', ')} ${down.length === 1 ? 'does' : 'do'} not store events`
  }

  async close(): Promise<void> {
    clearTimeout(this.#timer)
    this.flush()
    await Promise.all(this.#runners.map(({ runner }) => runner.close(CLOSE_MS)))
  }
}
