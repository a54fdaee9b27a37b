// Pipeline of a process: recorder → batches once a second → one runner per sink. For every sink and at any moment,
// decided + operations = sampled out + stored + dropped + pending. Operations are refunds and resets: events that count
// in no total. A worker keeps these counts in a file as well, from which its supervisor counts what dies with it.

import { type Decision, inSlices, type Sliced, type Subject } from 'sluice'
import type { KeyHash, Log } from '../log.ts'
import { clearBatch, hashedBatch } from './batches.ts'
import type { Batch } from './event.ts'
import type { RecordedReset } from './event-fields.ts'
import { EventRecorder, type Recorded, type RecorderDeps } from './recorder.ts'
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

/** Keeps counts where they outlive the process. */
export type CountsFile = { write(counts: PipelineTotals): void }

export type EventTotals = { totals(): PipelineTotals }

export class EventPipeline implements EventTotals {
  readonly #recorder: EventRecorder
  readonly #runners: readonly { readonly runner: SinkRunner; readonly keys: KeyMode }[]
  readonly #hash: KeyHash
  readonly #log: Log
  /** Undefined without --workers, and after a failed write. */
  #countsFile: CountsFile | undefined
  /** Hashes the keys of the last batch and hands it to the sinks. */
  #hashing: Sliced<void> | undefined
  /** Events of that batch. */
  #unhashed = 0
  #timer: NodeJS.Timeout | undefined

  constructor(deps: RecorderDeps, sinks: readonly SinkWithKeys[], countsFile?: CountsFile) {
    const recorder = new EventRecorder(deps, countsFile && ((recordedMax) => this.#writeCounts(recordedMax)))
    this.#recorder = recorder
    this.#hash = deps.keyHash
    this.#log = deps.log
    this.#countsFile = countsFile
    const runnerOf = (sink: Sink) => new SinkRunner(sink, deps.log, deps.nowMs, () => recorder.announce())
    this.#runners = sinks.map(({ sink, keys }) => ({ keys, runner: runnerOf(sink) }))
    this.#flushLater()
  }

  /** The hot path: never blocks or fails. `decided`: the limiter's own decision, if `decision` replaced it. */
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
    const sinks = this.#runners.map(({ runner: { totals }, keys }) => ({
      ...totals,
      dropped: totals.dropped + failed,
      pending: totals.pending + pending + (keys === 'hmac' ? this.#unhashed : 0),
    }))
    return { decided, operations, sampledOut, sinks }
  }

  /** A failed write must not fail the check that caused it. */
  #writeCounts(recordedMax: number): void {
    const totals = this.totals()
    try {
      this.#countsFile?.write({ ...totals, decided: recordedMax - totals.operations })
    } catch (error) {
      this.#countsFile = undefined
      this.#log.event('event_counts_failed', { reason: (error as Error).message })
    }
  }

  #flushLater(): void {
    this.#timer = setTimeout(() => {
      this.flush()
      this.#flushLater()
    }, FLUSH_MS).unref()
  }

  /** Hands everything recorded so far to the sinks; to those with hashed keys some turns of the event loop later. */
  flush(): void {
    this.#finishHashing() // the node is too busy for slices: bounds the memory
    const recorded = this.#recorder.take()
    if (recorded.counts.length === 0 && recorded.recorded.length === 0) return
    this.#push('clear', () => clearBatch(recorded))
    this.#recorder.announce() // a full queue drops events on arrival
    if (!this.#runners.some(({ keys }) => keys === 'hmac')) return
    this.#unhashed = recorded.recorded.length
    this.#hashing = this.#hashAndPush(recorded)
    void inSlices(this.#hashing)
  }

  *#hashAndPush(recorded: Recorded): Sliced<void> {
    const batch = yield* hashedBatch(recorded, this.#hash)
    this.#unhashed = 0 // in the same turn as the runners count the events
    this.#push('hmac', () => batch)
    this.#recorder.announce()
  }

  /** Does nothing if hashing has ended. */
  #finishHashing(): void {
    while (this.#hashing?.next().done === false);
    this.#hashing = undefined
  }

  #push(mode: KeyMode, batch: () => Batch): void {
    const runners = this.#runners.filter(({ keys }) => keys === mode)
    if (runners.length === 0) return
    const made = batch()
    for (const { runner } of runners) runner.push(made)
  }

  /** Reason that this process is degraded; undefined if all sinks work. */
  degradedReason(): string | undefined {
    const down = this.totals().sinks.filter(({ isUp }) => !isUp)
    if (down.length === 0) return undefined
    return `events: ${down.map(({ name }) => name).join(', ')} ${down.length === 1 ? 'does' : 'do'} not store events`
  }

  async close(ms: number = CLOSE_MS): Promise<void> {
    clearTimeout(this.#timer)
    this.flush()
    this.#finishHashing()
    await Promise.all(this.#runners.map(({ runner }) => runner.close(ms)))
    this.#recorder.announce()
  }
}
