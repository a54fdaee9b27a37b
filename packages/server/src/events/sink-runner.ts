// Feeds one sink: queues batches, writes one at a time, retries with back-off, and counts. Memory is bounded: beyond
// the cap, events are dropped and counted, and rollups are merged per minute, so that totals survive long outages.

import { randomInt, randomUUID } from 'node:crypto'
import type { Log } from '../log.ts'
import type { Batch, CountRow, DecisionEvent, Rollups } from './event.ts'
import { mergedRollups } from './merged-rollups.ts'
import { type BatchId, BatchRejected, type Sink } from './sink.ts'

/** About 1 kB each. */
const PENDING_MAX = 50_000
/** Rollup rows of at most this many batches wait unmerged. */
const UNMERGED_MAX = 10
const WRITE_MAX = 10_000
/** A write without an answer for this long counts as failing. */
const STUCK_MS = 30_000
/** The queue of a busy node lasts for 5 s: a longer wait would lose events after the sink is back. */
const RETRY_MS = { first: 250, max: 3000 } as const

export type SinkTotals = {
  readonly name: string
  readonly stored: number
  readonly dropped: number
  readonly pending: number
  /** Decisions whose rollup rows were stored. */
  readonly counted: number
  /** Decisions whose rollup rows were dropped: totals lack them. */
  readonly uncounted: number
  /** Age of the oldest batch that is not stored. */
  readonly lagSeconds: number
  readonly isUp: boolean
}

/** Events that are not stored, and decisions that totals lack. */
type Lost = { readonly events: number; readonly decisions: number }

type Write = { readonly id: BatchId; readonly batch: Batch; readonly sinceMs: number }

export class SinkRunner {
  readonly #sink: Sink
  readonly #log: Log
  readonly #nowMs: () => number
  readonly #onSettled: () => void
  readonly #producer = randomUUID()
  #events: DecisionEvent[] = []
  #rollups: Rollups[] = []
  /** Arrival time of the oldest waiting batch. */
  #sinceMs = 0
  #inFlight: Write | undefined
  #running: Promise<void> | undefined
  #seq = 0
  #stored = 0
  #dropped = 0
  #counted = 0
  #uncounted = 0
  #isUp = true
  /** Set when closing begins; failures are then not retried for long. */
  #closing = false
  #closed = false
  #wake: () => void = () => {}

  /** `onSettled`: called in the same turn as the events of a write were counted. */
  constructor(sink: Sink, log: Log, nowMs: () => number, onSettled: () => void) {
    this.#sink = sink
    this.#log = log
    this.#nowMs = nowMs
    this.#onSettled = onSettled
  }

  get totals(): SinkTotals {
    const waiting = this.#inFlight?.sinceMs ?? (this.#hasWaiting() ? this.#sinceMs : undefined)
    return {
      name: this.#sink.name,
      stored: this.#stored,
      dropped: this.#dropped,
      pending: this.#events.length + (this.#inFlight?.batch.events.length ?? 0),
      counted: this.#counted,
      uncounted: this.#uncounted,
      lagSeconds: waiting === undefined ? 0 : Math.max(0, this.#nowMs() - waiting) / 1000,
      isUp: this.#isUp,
    }
  }

  push(batch: Batch): void {
    if (!this.#hasWaiting()) this.#sinceMs = this.#nowMs()
    const events = highestRanked(batch.events, this.#sink.eventsMax?.perBatch ?? Number.POSITIVE_INFINITY)
    const wanted = events.length + this.#events.length + (this.#inFlight?.batch.events.length ?? 0)
    if (wanted > PENDING_MAX) this.#evict(Math.min(wanted - PENDING_MAX, refusalsOf(events)))
    const room = PENDING_MAX - this.#events.length - (this.#inFlight?.batch.events.length ?? 0)
    const kept = highestRanked(events, Math.max(0, room))
    this.#drop(batch.events.length - kept.length)
    for (const event of kept) this.#events.push(event)
    const { counts, limits, clients, latency } = batch
    if (counts.length > 0) this.#rollups.push({ counts, limits, clients, latency })
    if (this.#rollups.length > UNMERGED_MAX) this.#merge()
    if (this.#hasWaiting()) this.#running ??= this.#run()
  }

  /** Writes what is pending, for at most `ms`; drops the rest. */
  async close(ms: number): Promise<void> {
    this.#closing = true
    this.#wake()
    let timer: NodeJS.Timeout | undefined
    const late = new Promise<void>((resolve) => {
      timer = setTimeout(resolve, ms)
    })
    await Promise.race([this.#running, late])
    clearTimeout(timer)
    const { batch } = this.#inFlight ?? { batch: { counts: [], events: [] } }
    const events = this.#events.length + batch.events.length
    const counts = [batch, ...this.#rollups].flatMap((rows) => rows.counts)
    this.#closed = true
    this.#events = []
    this.#rollups = []
    this.#giveUp({ events, decisions: decisionsOf(counts) })
    await this.#sink.close()
  }

  /** Drops up to this many waiting admissions, oldest first, to make room for refusals. */
  #evict(events: number): void {
    const waiting = this.#events.length
    let left = events
    if (left > 0) {
      this.#events = this.#events.filter(({ allowed }) => {
        if (!allowed || left === 0) return true
        left -= 1
        return false
      })
    }
    this.#drop(waiting - this.#events.length)
  }

  #hasWaiting(): boolean {
    return this.#events.length > 0 || this.#rollups.length > 0
  }

  #drop(events: number): void {
    if (events > 0 && this.#dropped === 0) this.#log.event('events_dropped', { sink: this.#sink.name })
    this.#dropped += events
  }

  #merge(): void {
    const { rollups, uncounted } = mergedRollups(this.#rollups)
    this.#rollups = [rollups]
    this.#uncounted += uncounted
  }

  async #run(): Promise<void> {
    while (this.#hasWaiting()) {
      const write = this.#nextWrite()
      this.#inFlight = write
      await this.#writeUntilDone(write)
      if (this.#closed) return
    }
    this.#running = undefined
  }

  #nextWrite(): Write {
    if (this.#rollups.length > 1) this.#merge()
    const [rollups = { counts: [], limits: [], clients: [], latency: [] }] = this.#rollups
    this.#rollups = []
    const events = this.#events.splice(0, this.#sink.eventsMax?.perWrite ?? WRITE_MAX)
    this.#seq += 1
    const sinceMs = this.#sinceMs
    this.#sinceMs = this.#events[0]?.timestamp ?? this.#nowMs()
    return { id: { producer: this.#producer, seq: this.#seq }, batch: { ...rollups, events }, sinceMs }
  }

  async #writeUntilDone({ id, batch }: Write): Promise<void> {
    const { length } = batch.events
    let waitMs: number = RETRY_MS.first
    for (let attempt = 0; ; attempt += 1) {
      const stuck = setTimeout(() => this.#stuck(), STUCK_MS).unref()
      try {
        const rejected = await this.#sink.write(id, batch, attempt > 0)
        if (this.#closed) return // counted as dropped
        this.#inFlight = undefined // in the same turn as it is counted
        this.#stored += length - rejected
        this.#counted += decisionsOf(batch.counts)
        this.#drop(rejected)
        this.#up()
        return
      } catch (error) {
        if (this.#closed) return
        if (error instanceof BatchRejected) return this.#rejected(batch, error)
        this.#down(error)
        if (this.#closing && attempt > 0) {
          return this.#giveUp({ events: length, decisions: decisionsOf(batch.counts) })
        }
      } finally {
        clearTimeout(stuck)
        this.#onSettled()
      }
      await this.#pause(randomInt(waitMs / 2, waitMs))
      waitMs = Math.min(RETRY_MS.max, waitMs * 2)
    }
  }

  /** Drops what could not be stored before the process ends. */
  #giveUp(lost: Lost): void {
    const isLoss = lost.events > 0 || lost.decisions > 0
    if (isLoss) this.#log.event('events_dropped_at_close', { sink: this.#sink.name, ...lost })
    this.#countLost(lost)
  }

  #rejected(batch: Batch, error: unknown): void {
    this.#log.event('events_batch_rejected', {
      sink: this.#sink.name,
      events: batch.events.length,
      reason: reasonOf(error),
    })
    this.#countLost({ events: batch.events.length, decisions: decisionsOf(batch.counts) })
  }

  #countLost({ events, decisions }: Lost): void {
    this.#inFlight = undefined
    this.#dropped += events
    this.#uncounted += decisions
  }

  #up(): void {
    if (!this.#isUp) this.#log.event('events_sink_up', { sink: this.#sink.name })
    this.#isUp = true
  }

  #down(error: unknown): void {
    if (this.#isUp) this.#log.event('events_sink_down', { sink: this.#sink.name, reason: reasonOf(error) })
    this.#isUp = false
  }

  #stuck(): void {
    if (!this.#closed) this.#down(new Error(`no answer within ${STUCK_MS / 1000} s`))
  }

  #pause(ms: number): Promise<void> {
    if (this.#closing) return Promise.resolve()
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, ms).unref()
      this.#wake = () => {
        clearTimeout(timer)
        resolve()
      }
    })
  }
}

function decisionsOf(counts: readonly CountRow[]): number {
  return counts.reduce((sum, { count }) => sum + count, 0)
}

function refusalsOf(events: readonly DecisionEvent[]): number {
  return events.reduce((sum, { allowed }) => (allowed ? sum : sum + 1), 0)
}

/** At most this many events: refusals are worth more than admissions, newer ones more than older ones. */
function highestRanked(events: readonly DecisionEvent[], max: number): readonly DecisionEvent[] {
  if (events.length <= max) return events
  const refused = events.filter(({ allowed }) => !allowed)
  const admitted = events.filter(({ allowed }) => allowed)
  const admittedMax = Math.max(0, max - refused.length)
  return [...refused.slice(Math.max(0, refused.length - max)), ...admitted.slice(admitted.length - admittedMax)]
}

function reasonOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}
