// Records every decision. A check only adds it to a ring buffer; decisions are counted, sampled and turned into events
// off the hot path. A full ring is drained at once, so that no decision goes uncounted.

import { type DecidingBucket, type Decision, type Subject, storeTimeOf, systemClock } from 'sluice'
import type { KeyHash, Log } from '../log.ts'
import { clientOf, hashedName, type SamplePosition } from './client-key.ts'
import type { DecisionEvent, Rollups } from './event.ts'
import {
  decisionFields,
  type EventFields,
  type EventOrigin,
  type RecordedReset,
  refundFields,
  resetFields,
  sourceOf,
  textOf,
} from './event-fields.ts'
import { EventIds } from './event-ids.ts'
import { RollupCounter } from './rollup.ts'
import type { KeptAttributes } from './rule-attributes.ts'
import type { SampleRate } from './sample-rate.ts'

/** More decisions than a busy process makes in DRAIN_MS. */
const RING_SIZE = 8192
const DRAIN_MS = 20
/** Decisions per turn of the event loop: about 0.5 ms. */
const SLICE = 256

export type RecorderDeps = {
  /** Milliseconds since the epoch. */
  readonly nowMs: () => number
  /** Monotonic microseconds, for estimates of store time. Default: the system clock. */
  readonly steadyUs?: (() => number) | undefined
  /** Store time of the newest reply; undefined or 0 if unknown. */
  readonly lastStoreUs?: (() => number | undefined) | undefined
  readonly attributesOf?: KeptAttributes | undefined
  readonly endpointOf: (decision: Decision) => string
  readonly sampleRate: SampleRate
  readonly position: SamplePosition
  /** Hashes API keys, which are credentials. */
  readonly keyHash: KeyHash
  readonly log: Log
  readonly node: string
  readonly region: string | undefined
}

/** An event with keys in plain text, and the bucket that a hashed bucket key needs. */
export type RecordedEvent = { readonly event: DecisionEvent; readonly bucket: DecidingBucket | undefined }

export type Recorded = Rollups & { readonly recorded: readonly RecordedEvent[] }

type PendingRecord =
  | {
      kind: 'check'
      subject: Subject
      decision: Decision
      decided: Decision
      atMs: number
      us: number
      steadyUs: number
    }
  | { kind: 'refund'; requestId: string; units: number | undefined; position: number; atMs: number; storeUs: number }
  | { kind: 'reset'; reset: RecordedReset; atMs: number; storeUs: number }

/** Records announced at once: an announcement costs about 5 µs. Also the most by which a killed process overcounts. */
const ANNOUNCED_AHEAD = 256

/** Requests without a client are recorded only at sample rate 1. */
const NO_POSITION = 1

export class EventRecorder {
  readonly #deps: RecorderDeps
  readonly #onAnnounce: ((recordedMax: number) => void) | undefined
  readonly #ring: (PendingRecord | undefined)[] = Array.from({ length: RING_SIZE }, () => undefined)
  readonly #ids = new EventIds()
  readonly #rollup = new RollupCounter()
  readonly #steadyUs: () => number
  #next = 0
  #announced = 0
  #drained = 0
  #operations = 0
  #sequence = 0
  /** Store time minus the monotonic time of this process, at the last decision. */
  #storeAheadUs = 0
  #events: RecordedEvent[] = []
  #scheduled = false
  #sampledOut = 0
  #failed = 0
  #anonymousShare = 0

  /**
   * `onAnnounce` is called before more than the last `recordedMax` records exist, and after each drain: whatever it
   * writes down stays an upper bound if the process is killed.
   */
  constructor(deps: RecorderDeps, onAnnounce?: (recordedMax: number) => void) {
    this.#deps = deps
    this.#onAnnounce = onAnnounce
    this.#steadyUs = deps.steadyUs ?? (() => systemClock.nowUs())
  }

  /** `decided`: the limiter's own decision, which has the bucket, if `decision` replaced it. */
  record(subject: Subject, decision: Decision, decided: Decision, us: number): void {
    const [atMs, steadyUs] = [this.#deps.nowMs(), this.#steadyUs()]
    this.#push({ kind: 'check', subject, decision, decided, atMs, us, steadyUs })
  }

  /** Records a refund that the store confirmed. `position`: that of the client; undefined if it has none. */
  recordRefund(requestId: string, units: number | undefined, position: number | undefined): void {
    if ((position ?? NO_POSITION) >= this.#deps.sampleRate.current && this.#deps.sampleRate.current < 1) return
    const times = { atMs: this.#deps.nowMs(), storeUs: this.#storeUs() }
    this.#operations += 1
    this.#push({ kind: 'refund', requestId, units, position: position ?? NO_POSITION, ...times })
  }

  /** Records a reset that the store confirmed. */
  recordReset(reset: RecordedReset): void {
    this.#operations += 1
    this.#push({ kind: 'reset', reset, atMs: this.#deps.nowMs(), storeUs: this.#storeUs() })
  }

  /** Position of the client in the sample; undefined if the request has no client. */
  positionOf(subject: Subject): number | undefined {
    const client = clientOf(subject)
    return client && this.#deps.position.of(client)
  }

  #push(record: PendingRecord): void {
    if (this.#next - this.#drained >= RING_SIZE) this.#drain(RING_SIZE)
    if (this.#next >= this.#announced) this.#announce(ANNOUNCED_AHEAD)
    this.#ring[this.#next % RING_SIZE] = record
    this.#next += 1
    if (this.#scheduled) return
    this.#scheduled = true
    setTimeout(() => this.#drainSlices(), DRAIN_MS).unref()
  }

  /** Announces the exact counts. Call it when a sink has settled events. */
  announce(): void {
    this.#announce(0)
  }

  #announce(ahead: number): void {
    this.#announced = this.#onAnnounce === undefined ? Number.POSITIVE_INFINITY : this.#next + ahead
    this.#onAnnounce?.(this.#announced)
  }

  /** Store time of an operation that was just confirmed: of the newest reply, or estimated from the last decision. */
  #storeUs(): number {
    const known = this.#deps.lastStoreUs?.()
    if (known) return known
    const last = this.#ring[(this.#next - 1) % RING_SIZE]
    if (last?.kind === 'check') this.#followStore(last)
    return Math.round(this.#steadyUs() + this.#storeAheadUs)
  }

  #followStore({ decided, steadyUs }: Extract<PendingRecord, { kind: 'check' }>): void {
    const storeUs = storeTimeOf(decided)
    if (storeUs !== undefined) this.#storeAheadUs = storeUs - steadyUs
  }

  /** Decisions recorded since the start. */
  get decided(): number {
    return this.#next - this.#operations
  }

  /** Refunds and resets recorded since the start. */
  get operations(): number {
    return this.#operations
  }

  /** Decisions that were admitted and not sampled. */
  get sampledOut(): number {
    return this.#sampledOut
  }

  /** Decisions that could not be turned into an event, because of a bug. */
  get failed(): number {
    return this.#failed
  }

  /** Decisions that no batch contains yet and that are not sampled out. */
  get pending(): number {
    return this.#next - this.#drained + this.#events.length
  }

  /** Returns everything since the last call. */
  take(): Recorded {
    this.#drain(RING_SIZE)
    const recorded = this.#events
    this.#events = []
    const { clients, ...rollups } = this.#rollup.take()
    const { keyHash } = this.#deps
    const shown = clients.map((row) =>
      row.kind === 'api_key' ? { ...row, client: hashedName(keyHash, 'api_key', row.client) } : row,
    )
    return { ...rollups, clients: shown, recorded }
  }

  #drainSlices(): void {
    this.#drain(SLICE)
    if (this.#drained < this.#next) setImmediate(() => this.#drainSlices())
    else this.#scheduled = false
  }

  #drain(countMax: number): void {
    const end = Math.min(this.#next, this.#drained + countMax)
    for (; this.#drained < end; this.#drained += 1) {
      const index = this.#drained % RING_SIZE
      const pending = this.#ring[index] as PendingRecord // written before #next passed it
      this.#ring[index] = undefined
      try {
        this.#process(pending)
      } catch (error) {
        this.#failed += 1 // runs in a timer: an exception would end the process
        if (this.#failed === 1) this.#deps.log.event('event_failed', { err: error as Error })
      }
    }
    this.#announce(0)
  }

  #process(record: PendingRecord): void {
    if (record.kind === 'check') this.#processCheck(record)
    else {
      const { keyHash, sampleRate } = this.#deps
      const position = record.kind === 'refund' && record.position < NO_POSITION ? record.position : null
      const origin = { storeUs: record.storeUs, rate: 1, admissionRate: sampleRate.current, position }
      const { fields, bucket } = record.kind === 'refund' ? refundFields(record) : resetFields(record.reset, keyHash)
      this.#add(record.atMs, origin, fields, bucket)
    }
  }

  #processCheck(record: Extract<PendingRecord, { kind: 'check' }>): void {
    const { subject, decision, decided, atMs, us, steadyUs } = record
    const { endpointOf, sampleRate, position, keyHash, attributesOf } = this.#deps
    const endpoint = endpointOf(decided)
    const client = clientOf(subject)
    const source = sourceOf(decision)
    const [plan, tenant] = [textOf(subject.plan), textOf(subject.tenant)]
    this.#rollup.count({ decision, endpoint, plan, tenant, client, source, atMs, decisionUs: us })
    this.#followStore(record)
    const admissionRate = sampleRate.at(atMs)
    const rate = decision.allowed ? admissionRate : 1
    const place = client === undefined ? null : position.of(client)
    const isSampled = rate >= 1 || (place === null ? this.#isNextSampled(rate) : place < rate)
    if (!isSampled) {
      this.#sampledOut += 1
      return
    }
    const storeUs = storeTimeOf(decided) ?? Math.round(steadyUs + this.#storeAheadUs)
    const attributes = attributesOf?.(subject) ?? null
    const { fields, bucket } = decisionFields({ subject, decision, decided, endpoint, source, us, attributes, keyHash })
    this.#add(atMs, { storeUs, rate, admissionRate, position: place }, fields, bucket)
  }

  #add(atMs: number, origin: EventOrigin, fields: EventFields, bucket: DecidingBucket | undefined): void {
    const { node, region } = this.#deps
    this.#sequence += 1
    const event: DecisionEvent = {
      event_id: this.#ids.next(atMs),
      timestamp: Math.floor(atMs),
      store_time_us: origin.storeUs,
      sequence: this.#sequence,
      ...fields,
      region: region ?? null,
      node,
      sample_rate: origin.rate,
      admission_rate: origin.admissionRate,
      sample_position: origin.position,
    }
    this.#events.push({ event, bucket })
  }

  /** Requests without a client are sampled evenly. */
  #isNextSampled(rate: number): boolean {
    this.#anonymousShare += rate
    if (this.#anonymousShare < 1) return false
    this.#anonymousShare -= 1
    return true
  }
}
