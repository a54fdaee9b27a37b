// Batches all requests of one event-loop turn into one script call, which reads and writes each value once. A lone
// request does not wait for the end of the turn. Batches are short, because Redis serves no other client while a script
// runs. In a Cluster each slot has a lane: requests that arrive while its script call is in flight go with the next
// one, because few requests of one turn share a slot.

import { systemTimers } from '../clock.ts'
import { LimiterError } from '../errors.ts'
import type { BucketName } from '../store/store.ts'
import type { Connection } from './client.ts'
import { isMigrating } from './cluster-client.ts'
import {
  applyWhenFull,
  bucketsItMayCreate,
  createsRecord,
  errorWhenFull,
  FULL_MS,
  isOutOfMemory,
  keyNameOf,
  rejectsFlags,
} from './full-redis.ts'
import type { KeyNames } from './key.ts'
import { type Form, formOf, type Reply, type Request } from './request.ts'
import { APPLY, EXISTS, type Script } from './scripts.generated.ts'
import { isSingleCall, type ScriptCall, singleCall } from './single.ts'
import { BatchEncoder, firstBucket, ReplyDecoder, weightOf } from './wire.ts'

/** Largest weight of a batch: about 0.5 ms of Redis time, so that Redis and the node work in parallel. */
const BATCH_WEIGHT_MAX = 100

/** Two plain takes cost Redis no more as short calls than as a batch; four cost a quarter more: docs/decisions/0030. */
const SEPARATE_MAX = 2

/** Retries of a script whose keys are split between both sides of a migrating slot. */
const RETRY_MS = 10
const TRIES_MAX = 16
/** Requests are not batched for this long after a migration was last seen. */
const MIGRATING_MS = 10_000
/** A lane sends the next script call after this time, even if the last one is still in flight. */
const IN_FLIGHT_MS_MAX = 5

/** Cap on waiting requests per connection; further ones fail immediately. */
const WAITING_MAX = 100_000

export type BatchObserver = {
  /** Called after each successful batch. */
  readonly onBatch?: ((requests: number, seconds: number, at: ServerName) => void) | undefined
  /** Called for each failed batch and each unreadable value. */
  readonly onError?: ((error: LimiterError, at: ServerName) => void) | undefined
}

/** A Redis server. `store`: its name in the options, or `default`. `server`: address of the primary in a Cluster. */
export type ServerName = { readonly store: string; readonly server: string | undefined }

type Lane = {
  /** Undefined unless Redis is a Cluster. */
  readonly slot: number | undefined
  jobs: Job[]
  /** Whether the lane is in the send queue. */
  queued: boolean
  /** Send time of the script call in flight; undefined if there is none. */
  sentMs: number | undefined
  /** The slot counts as migrating until this time. */
  migratingUntilMs: number
  /** The server counts as out of memory until this time. */
  fullUntilMs: number
}

type Job = { request: Request; form: Form; resolve(reply: Reply): void; reject(error: LimiterError): void }

/** A request is malformed; nothing was sent to Redis. */
class EncodingError extends LimiterError {}

export class Batcher {
  requests = 0
  batches = 0
  errors = 0
  dropped = 0
  /** Store time of the newest reply. */
  lastUs = 0
  readonly #connection: Connection
  readonly #names: KeyNames
  readonly #observer: BatchObserver
  readonly #timeArguments: () => readonly string[]
  readonly #store: string
  /** By slot; one lane unless Redis is a Cluster. */
  readonly #lanes = new Map<number | undefined, Lane>()
  #queue: Lane[] = []
  #waiting = 0
  /** Script calls in flight, and requests that were sent together last. */
  #inFlight = 0
  #lastSize = 0

  /** `store`: name of the store, for the observer. */
  constructor(
    connection: Connection,
    names: KeyNames,
    observer: BatchObserver,
    timeArguments: () => readonly string[],
    store: string,
  ) {
    this.#store = store
    this.#connection = connection
    this.#names = names
    this.#observer = observer
    this.#timeArguments = timeArguments
  }

  run(request: Request): Promise<Reply> {
    if (this.#waiting >= WAITING_MAX) {
      this.dropped += 1
      throw new LimiterError('STORE_UNAVAILABLE', `more than ${WAITING_MAX} requests are waiting for Redis`)
    }
    this.#waiting += 1
    const lane = this.#laneOf(request)
    return new Promise((resolve, reject) => {
      lane.jobs.push({ request, form: formOf(request), resolve, reject })
      if (lane.sentMs === undefined || performance.now() - lane.sentMs > IN_FLIGHT_MS_MAX) this.#enqueue(lane)
    })
  }

  async close(): Promise<void> {
    await this.#connection.close()
  }

  #laneOf(request: Request): Lane {
    const slot = this.#names.groups?.slotOf(firstBucket(request))
    const known = this.#lanes.get(slot)
    if (known !== undefined) return known
    const lane = { slot, jobs: [], queued: false, sentMs: undefined, migratingUntilMs: 0, fullUntilMs: 0 }
    this.#lanes.set(slot, lane)
    return lane
  }

  #enqueue(lane: Lane): void {
    if (lane.queued) return
    lane.queued = true
    if (this.#queue.push(lane) > 1) return
    // Nothing is in flight and the last batch had at most one request: flush in a microtask instead of at the end of
    // the turn.
    if (this.#inFlight === 0 && this.#lastSize <= 1) queueMicrotask(() => this.#flush())
    else systemTimers.soon(() => this.#flush())
  }

  #flush(): void {
    const lanes = this.#queue
    this.#queue = []
    this.#lastSize = lanes.reduce((sum, { jobs }) => sum + jobs.length, 0)
    for (const lane of lanes) {
      const { jobs } = lane
      lane.jobs = []
      lane.queued = false
      if (this.#names.groups === undefined) this.#sendAll(lane, jobs)
      else void this.#sendNext(lane, jobs)
    }
  }

  async #sendNext(lane: Lane, jobs: readonly Job[]): Promise<void> {
    const sentMs = performance.now()
    lane.sentMs = sentMs
    await Promise.all(sentMs < lane.migratingUntilMs ? this.#sendSeparately(lane, jobs) : this.#sendAll(lane, jobs))
    if (lane.sentMs !== sentMs) return // the next script call has been sent since
    lane.sentMs = undefined
    if (lane.jobs.length === 0) return
    markSent(lane.jobs)
    this.#enqueue(lane)
  }

  #sendSeparately(lane: Lane, jobs: readonly Job[]): Promise<void>[] {
    return jobs.map((job) => this.#send(lane, [job]))
  }

  #sendAll(lane: Lane, jobs: readonly Job[]): Promise<void>[] {
    if (jobs.length <= SEPARATE_MAX && jobs.every(isSingle)) return this.#sendSeparately(lane, jobs)
    const sent: Promise<void>[] = []
    let start = 0
    let weight = 0
    jobs.forEach((job, index) => {
      const added = weightOf(job.request)
      if (index > start && weight + added > BATCH_WEIGHT_MAX) {
        sent.push(this.#send(lane, jobs.slice(start, index)))
        start = index
        weight = 0
      }
      weight += added
    })
    sent.push(this.#send(lane, start === 0 ? jobs : jobs.slice(start)))
    return sent
  }

  async #send(lane: Lane, jobs: readonly Job[]): Promise<void> {
    const isFull = performance.now() < lane.fullUntilMs
    this.#inFlight += 1
    try {
      await (isFull ? this.#applyWhenFull(lane, jobs) : this.#apply(APPLY, lane, jobs))
    } catch (cause) {
      if (!isFull && isOutOfMemory(cause)) {
        // The script did not run, so it can be sent again.
        lane.fullUntilMs = performance.now() + FULL_MS
        this.#waiting += jobs.length
        return this.#send(lane, jobs)
      }
      this.#sendFailed(lane, jobs, cause)
    } finally {
      this.#inFlight -= 1
      this.#waiting -= jobs.length
    }
  }

  /** Runs a script on the requests, and delivers the replies. */
  async #apply(script: Script, lane: Lane, jobs: readonly Job[]): Promise<void> {
    const startedMs = performance.now()
    const { keys, args } = this.#encoded(jobs)
    const call = () => this.#call(script, keys, [...args, ...this.#timeArguments()], jobs)
    const reply = new ReplyDecoder(await (jobs.length === 1 ? retryWhileMigrating(call) : call()))
    this.batches += 1
    this.requests += jobs.length
    this.lastUs = Math.max(this.lastUs, reply.nowUs)
    for (const job of jobs) this.#deliver(lane, job, reply)
    this.#observer.onBatch?.(jobs.length, (performance.now() - startedMs) / 1000, this.#serverOf(lane))
  }

  #sendFailed(lane: Lane, jobs: readonly Job[], cause: unknown): void {
    const migrating = isMigrating(cause)
    if ((migrating || cause instanceof EncodingError) && jobs.length > 1) {
      // Sent one by one, each needs fewer keys, and a malformed request fails alone.
      if (migrating) lane.migratingUntilMs = performance.now() + MIGRATING_MS
      this.#waiting += jobs.length // each is counted again by #send
      this.#sendSeparately(lane, jobs)
      return
    }
    const error = unavailable(cause)
    this.#failed(lane, error)
    for (const { reject } of jobs) reject(error)
  }

  /** Runs requests whose buckets all exist, and rejects the others with StoreFullError. */
  async #applyWhenFull(lane: Lane, jobs: readonly Job[]): Promise<void> {
    const isAbsent = await this.#absentOf(jobs)
    const [runnable, rejected] = [[] as Job[], [] as Job[]]
    for (const job of jobs) {
      const isRejected = createsRecord(job.request) || bucketsItMayCreate(job.request).some(isAbsent)
      ;(isRejected ? rejected : runnable).push(job)
    }
    try {
      if (runnable.length > 0) await this.#apply(await applyWhenFull(), lane, runnable)
    } catch (cause) {
      if (!rejectsFlags(cause)) throw cause
      const [peeks, others] = [runnable.filter(isPeek), runnable.filter((job) => !isPeek(job))]
      this.#rejectFull(lane, others, () => true)
      if (peeks.length > 0) await this.#apply(APPLY, lane, peeks)
    }
    this.#rejectFull(lane, rejected, isAbsent)
  }

  async #absentOf(jobs: readonly Job[]): Promise<(bucket: BucketName) => boolean> {
    const keys = [
      ...new Set(jobs.flatMap(({ request }) => bucketsItMayCreate(request)).map((one) => keyNameOf(this.#names, one))),
    ]
    if (keys.length === 0) return () => false
    const found = (await this.#call(EXISTS, keys, [], jobs)) as readonly unknown[]
    const absent = new Set(keys.filter((_, index) => Number(found[index]) === 0))
    return (bucket) => absent.has(keyNameOf(this.#names, bucket))
  }

  #rejectFull(lane: Lane, jobs: readonly Job[], isAbsent: (bucket: BucketName) => boolean): void {
    for (const { request, reject } of jobs) {
      const error = errorWhenFull(request, isAbsent)
      this.#failed(lane, error)
      reject(error)
    }
  }

  /** Keys and arguments of a script call. Throws EncodingError before anything is sent. */
  #encoded(jobs: readonly Job[]): ScriptCall {
    const [first] = jobs
    try {
      if (jobs.length === 1 && first !== undefined && isSingleCall(first.request, first.form)) {
        return singleCall(this.#names, first.form, first.request)
      }
      const batch = new BatchEncoder(this.#names)
      for (const { request, form } of jobs) batch.add(request, form)
      return { keys: batch.keys, args: [batch.json()] }
    } catch (cause) {
      throw new EncodingError('OPTION_INVALID', `a request cannot be encoded: ${String(cause)}`, { cause })
    }
  }

  /** Sends the script text after NOSCRIPT, the only error that proves that the script did not run. */
  async #call(
    { sha1, text }: Script,
    keys: readonly string[],
    args: readonly string[],
    jobs: readonly Job[],
  ): Promise<unknown> {
    const [firstKey = ''] = keys
    const rest = [String(keys.length), ...keys, ...args]
    await this.#connection.attempted
    markSent(jobs)
    try {
      return await this.#connection.send('EVALSHA', [sha1, ...rest], firstKey)
    } catch (error) {
      if (!(error instanceof Error && error.message.startsWith('NOSCRIPT'))) throw error
      markSent(jobs)
      return this.#connection.send('EVAL', [text, ...rest], firstKey)
    }
  }

  #deliver(lane: Lane, { request, form, resolve, reject }: Job, reply: ReplyDecoder): void {
    const answer = reply.next(request, form, () => this.#keysOf(request))
    if (answer instanceof LimiterError) {
      this.#failed(lane, answer)
      reject(answer)
    } else resolve(answer)
  }

  #failed(lane: Lane, error: LimiterError): void {
    this.errors += 1
    this.#observer.onError?.(error, this.#serverOf(lane))
  }

  #serverOf({ slot }: Lane): ServerName {
    const primary = slot === undefined ? '' : this.#connection.primaryOf?.(slot)
    return { store: this.#store, server: primary === '' ? undefined : primary }
  }

  #keysOf(request: Request): string {
    const single = new BatchEncoder(this.#names)
    single.add(request)
    return single.keys.join(' or ')
  }
}

/** From here on, a wait is the store's time again: the deadline of each request starts where it was interrupted. */
function markSent(jobs: readonly Job[]): void {
  for (const { request } of jobs) if (request.verb === 'take') request.onSent?.()
}

function isSingle({ request, form }: Job): boolean {
  return isSingleCall(request, form)
}

function isPeek({ request }: Job): boolean {
  return request.verb === 'peek'
}

async function retryWhileMigrating<T>(call: () => Promise<T>): Promise<T> {
  for (let tries = 1; tries < TRIES_MAX; tries += 1) {
    try {
      return await call()
    } catch (error) {
      if (!isMigrating(error)) throw error
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS))
    }
  }
  return call()
}

export function unavailable(cause: unknown): LimiterError {
  if (cause instanceof LimiterError) return cause
  return new LimiterError('STORE_UNAVAILABLE', reasonOf(cause), { cause })
}

function reasonOf(cause: unknown): string {
  if (!(cause instanceof Error)) return String(cause)
  // The message of ioredis names the option that disables retries, not the cause.
  const isBroken = cause.name === 'MaxRetriesPerRequestError'
  return isBroken ? 'the connection to Redis was closed before the reply arrived' : cause.message
}
