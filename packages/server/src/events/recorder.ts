// Records every decision. A check only writes into a preallocated slot of a ring; slots are counted, sampled and turned
// into events off the hot path. A full ring is drained at once, so that no decision goes uncounted.

import { bucketOf, type DecidingBucket, type Decision, type Outcome, type Subject } from 'sluice'
import type { KeyHash, Log } from '../log.ts'
import { bucketKey } from './bucket-key.ts'
import { canonicalIp, clientOf, hashedName, type SamplePosition, storable } from './client-key.ts'
import type { DecisionEvent, EventSource, Rollups } from './event.ts'
import { EventIds } from './event-ids.ts'
import { RollupCounter } from './rollup.ts'
import type { SampleRate } from './sample-rate.ts'

/** More decisions than a busy process makes in DRAIN_MS. */
const SLOTS = 8192
const DRAIN_MS = 20
/** Slots per turn of the event loop: about 0.5 ms. */
const SLICE = 256
const PATH_MAX = 1024
const BUCKET_KEY_MAX = 2048

export type RecorderDeps = {
  /** Milliseconds since the epoch. */
  readonly nowMs: () => number
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

type Slot = { subject: Subject; decision: Decision; decided: Decision; atMs: number; us: number }

export class EventRecorder {
  readonly #deps: RecorderDeps
  readonly #slots: (Slot | undefined)[] = Array.from({ length: SLOTS }, () => undefined)
  readonly #ids = new EventIds()
  readonly #rollup = new RollupCounter()
  #next = 0
  #drained = 0
  #events: RecordedEvent[] = []
  #scheduled = false
  #sampledOut = 0
  #failed = 0
  #anonymousShare = 0

  constructor(deps: RecorderDeps) {
    this.#deps = deps
  }

  /** `decided`: the limiter's own decision, which has the bucket, if `decision` is a revision. */
  record(subject: Subject, decision: Decision, decided: Decision, us: number): void {
    if (this.#next - this.#drained >= SLOTS) this.#drain(SLOTS)
    this.#slots[this.#next % SLOTS] = { subject, decision, decided, atMs: this.#deps.nowMs(), us }
    this.#next += 1
    if (this.#scheduled) return
    this.#scheduled = true
    setTimeout(() => this.#drainSlices(), DRAIN_MS).unref()
  }

  /** Decisions recorded since the start. */
  get decided(): number {
    return this.#next
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
    this.#drain(SLOTS)
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

  #drain(slotsMax: number): void {
    const end = Math.min(this.#next, this.#drained + slotsMax)
    for (; this.#drained < end; this.#drained += 1) {
      const index = this.#drained % SLOTS
      const slot = this.#slots[index] as Slot // written before #next passed it
      this.#slots[index] = undefined
      try {
        this.#process(slot)
      } catch (error) {
        this.#failed += 1 // runs in a timer: an exception would end the process
        if (this.#failed === 1) this.#deps.log.event('event_failed', { err: error as Error })
      }
    }
  }

  #process({ subject, decision, decided, atMs, us }: Slot): void {
    const { endpointOf, sampleRate, position } = this.#deps
    const endpoint = endpointOf(decided)
    const client = clientOf(subject)
    const source = sourceOf(decision)
    const [plan, tenant] = [textOf(subject.plan), textOf(subject.tenant)]
    this.#rollup.count({ decision, endpoint, plan, tenant, client, source, atMs, decisionUs: us })
    const admissionRate = sampleRate.at(atMs)
    const rate = decision.allowed ? admissionRate : 1
    const isSampled = rate >= 1 || (client === undefined ? this.#isNextSampled(rate) : position.of(client) < rate)
    if (!isSampled) {
      this.#sampledOut += 1
      return
    }
    const bucket = bucketOf(decided)
    const event = this.#eventOf(subject, decision, decided, bucket, endpoint, source, atMs, us, rate)
    this.#events.push({ event, bucket })
  }

  /** Requests without a client are sampled evenly. */
  #isNextSampled(rate: number): boolean {
    this.#anonymousShare += rate
    if (this.#anonymousShare < 1) return false
    this.#anonymousShare -= 1
    return true
  }

  #eventOf(
    { user, apiKey, ip, tenant, plan, method, path, cost }: Subject,
    decision: Decision,
    { outcomes }: Decision,
    bucket: DecidingBucket | undefined,
    endpoint: string,
    source: EventSource,
    atMs: number,
    us: number,
    rate: number,
  ): DecisionEvent {
    const { keyHash, node, region } = this.#deps
    const { ruleId, limit, remaining } = decision
    const deciding = outcomes.find((one) => one.ruleId === bucket?.ruleId && one.name === bucket.name)
    const shadow = outcomes.find((one) => one.mode === 'shadow' && !one.allowed)
    return {
      event_id: this.#ids.next(atMs),
      timestamp: Math.floor(atMs),
      request_id: storable(decision.requestId, PATH_MAX),
      client_id: textOf(user) ?? null,
      api_key: apiKey === undefined ? null : hashedName(keyHash, 'api_key', apiKey),
      ip: canonicalIp(ip) ?? null,
      tenant: textOf(tenant) ?? null,
      plan: textOf(plan) ?? null,
      method: textOf(method) ?? null,
      endpoint: path === undefined ? null : storable(path, PATH_MAX),
      endpoint_pattern: endpoint,
      rule_id: ruleId,
      limit_name: bucket?.name ?? null,
      scope: deciding?.scope ?? null,
      mode: ruleId !== null ? 'enforce' : outcomes.length > 0 ? 'shadow' : null,
      shadow_refused_by: shadow?.ruleId ?? null,
      bucket_key: storable(bucketKey(bucket, hasApiKey(bucket, deciding) ? keyHash : undefined), BUCKET_KEY_MAX),
      allowed: decision.allowed,
      current_count: limit === null || remaining === null ? null : Math.max(0, limit - remaining),
      limit_count: limit,
      remaining,
      cost: deciding?.cost ?? cost ?? 1,
      retry_after_ms: decision.retryAfterMs,
      version: decision.version,
      source,
      region: region ?? null,
      node,
      decision_us: Math.round(us),
      sample_rate: rate,
    }
  }
}

/** A rule by several facts has its first one as `fact`, and the others in `detail`. */
function hasApiKey(bucket: DecidingBucket | undefined, deciding: Outcome | undefined): boolean {
  if (bucket === undefined || bucket.detail === '') return bucket?.fact === 'api_key'
  return bucket.fact === 'api_key' || deciding === undefined || deciding.scope.includes('api_key')
}

function textOf(value: string | undefined): string | undefined {
  return value === undefined ? undefined : storable(value)
}

function sourceOf({ source, allowed }: Decision): EventSource {
  if (source !== 'policy') return source
  return allowed ? 'policy_open' : 'policy_closed'
}
