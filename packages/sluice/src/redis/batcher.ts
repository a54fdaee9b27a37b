// All requests of one event-loop turn travel together. Redis then reads each value once and is asked once per batch;
// a batch is kept short, because Redis serves nobody else while it runs. In a Cluster each slot has a lane of its own:
// what comes while a script of it is out travels with the next one, since of one turn hardly two requests would meet.

import { systemTimers } from '../clock.ts'
import { LimiterError } from '../errors.ts'
import type { BucketName } from '../store/store.ts'
import type { Connection } from './client.ts'
import { isDivided } from './cluster-client.ts'
import {
  APPLY_WHEN_FULL,
  errorWhenFull,
  FULL_MS,
  isOutOfMemory,
  keyNameOf,
  knowsNoFlags,
  makesKey,
  writtenBy,
} from './full-redis.ts'
import type { KeyNames } from './key.ts'
import { type Answer, type Form, formOf, type Request } from './request.ts'
import { APPLY, EXISTS, type Script } from './scripts.generated.ts'
import { BatchEncoder, firstBucket, ReplyDecoder, weightOf } from './wire.ts'

/** Weight of a script call: about half a millisecond of Redis, and small enough that both sides always have work. */
const BATCH_WEIGHT_MAX = 100

/** A slot that is being moved has keys on both sides: a script that needs both is run later. */
const TRY_AGAIN_MS = 10
const TRIES_MAX = 16
/** And requests of several owners go apart meanwhile, until this long after it was last seen. */
const MOVING_MS = 10_000
/** No lane waits longer for its script: others may be on their way to another primary by now. */
const OUT_MS = 5

/** Requests that may wait for Redis at once, on one connection: beyond it they fail at once instead of piling up. */
const WAITING_MAX = 100_000

export type BatchObserver = {
  /** After each batch that was answered. */
  readonly onBatch?: ((requests: number, seconds: number) => void) | undefined
  /** After each batch that was not, and each value that could not be read. */
  readonly onError?: ((error: LimiterError) => void) | undefined
}

type Lane = {
  jobs: Job[]
  /** Whether it is among those to be sent next. */
  queued: boolean
  /** When its last script was sent; undefined when that has been answered, or need not be. */
  outMs: number | undefined
  /** Until when its slot is taken to be on the move. */
  movingMs: number
  /** Until when its server is taken to be out of memory. */
  fullUntilMs: number
}

type Job = { request: Request; form: Form; resolve(answer: Answer): void; reject(error: LimiterError): void }

/** The requests are at fault, not Redis: see `#encoded`. */
class EncodingError extends LimiterError {}

export class Batcher {
  requests = 0
  batches = 0
  errors = 0
  dropped = 0
  readonly #connection: Connection
  readonly #names: KeyNames
  readonly #observer: BatchObserver
  readonly #nowArgument: () => string
  /** By slot; the only one, where there are no slots. */
  readonly #lanes = new Map<number | undefined, Lane>()
  #queue: Lane[] = []
  #waiting = 0

  constructor(connection: Connection, names: KeyNames, observer: BatchObserver, nowArgument: () => string) {
    this.#connection = connection
    this.#names = names
    this.#observer = observer
    this.#nowArgument = nowArgument
  }

  run(request: Request): Promise<Answer> {
    if (this.#waiting >= WAITING_MAX) {
      this.dropped += 1
      throw new LimiterError('STORE_UNAVAILABLE', `more than ${WAITING_MAX} requests wait for Redis`)
    }
    this.#waiting += 1
    const lane = this.#laneOf(request)
    return new Promise((resolve, reject) => {
      lane.jobs.push({ request, form: formOf(request), resolve, reject })
      if (lane.outMs === undefined || performance.now() - lane.outMs > OUT_MS) this.#enqueue(lane)
    })
  }

  async close(): Promise<void> {
    await this.#connection.close()
  }

  #laneOf(request: Request): Lane {
    const slot = this.#names.groups?.slotOf(firstBucket(request))
    const known = this.#lanes.get(slot)
    if (known !== undefined) return known
    const lane = { jobs: [], queued: false, outMs: undefined, movingMs: 0, fullUntilMs: 0 }
    this.#lanes.set(slot, lane)
    return lane
  }

  #enqueue(lane: Lane): void {
    if (lane.queued) return
    lane.queued = true
    if (this.#queue.push(lane) === 1) systemTimers.soon(() => this.#flush())
  }

  #flush(): void {
    const lanes = this.#queue
    this.#queue = []
    for (const lane of lanes) {
      const { jobs } = lane
      lane.jobs = []
      lane.queued = false
      if (this.#names.groups === undefined) this.#sendAll(lane, jobs)
      else void this.#sendInTurn(lane, jobs)
    }
  }

  async #sendInTurn(lane: Lane, jobs: readonly Job[]): Promise<void> {
    const outMs = performance.now()
    lane.outMs = outMs
    await Promise.all(outMs < lane.movingMs ? this.#sendApart(lane, jobs) : this.#sendAll(lane, jobs))
    if (lane.outMs !== outMs) return // it took too long, and others went after it
    lane.outMs = undefined
    if (lane.jobs.length > 0) this.#enqueue(lane)
  }

  #sendApart(lane: Lane, jobs: readonly Job[]): Promise<void>[] {
    return jobs.map((job) => this.#send(lane, [job]))
  }

  #sendAll(lane: Lane, jobs: readonly Job[]): Promise<void>[] {
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
    try {
      await (isFull ? this.#applyWhenFull(jobs) : this.#apply(APPLY, jobs))
    } catch (cause) {
      if (!isFull && isOutOfMemory(cause)) {
        // Nothing was run.
        lane.fullUntilMs = performance.now() + FULL_MS
        this.#waiting += jobs.length
        return this.#send(lane, jobs)
      }
      this.#sendFailed(lane, jobs, cause)
    } finally {
      this.#waiting -= jobs.length
    }
  }

  /** Runs a script on the requests, and delivers the answers. */
  async #apply(script: Script, jobs: readonly Job[]): Promise<void> {
    const startedMs = performance.now()
    const batch = this.#encoded(jobs)
    const call = () => this.#call(script, batch.keys, [batch.json(), this.#nowArgument()])
    const reply = new ReplyDecoder(await (jobs.length === 1 ? untilWhole(call) : call()))
    this.batches += 1
    this.requests += jobs.length
    for (const job of jobs) this.#deliver(job, reply)
    this.#observer.onBatch?.(jobs.length, (performance.now() - startedMs) / 1000)
  }

  #sendFailed(lane: Lane, jobs: readonly Job[], cause: unknown): void {
    const divided = isDivided(cause)
    if ((divided || cause instanceof EncodingError) && jobs.length > 1) {
      // They only met by chance: each needs fewer keys than all of them, and one that is malformed fails alone.
      if (divided) lane.movingMs = performance.now() + MOVING_MS
      this.#waiting += jobs.length // each of them is counted anew
      this.#sendApart(lane, jobs)
      return
    }
    const error = unavailable(cause)
    this.#failed(error)
    for (const { reject } of jobs) reject(error)
  }

  /** Requests whose buckets all exist are decided as usual, and the others are answered without Redis. */
  async #applyWhenFull(jobs: readonly Job[]): Promise<void> {
    const isAbsent = await this.#absentOf(jobs)
    const [possible, impossible] = [[] as Job[], [] as Job[]]
    for (const job of jobs) {
      const cannot = makesKey(job.request) || writtenBy(job.request).some(isAbsent)
      ;(cannot ? impossible : possible).push(job)
    }
    try {
      if (possible.length > 0) await this.#apply(APPLY_WHEN_FULL, possible)
    } catch (cause) {
      if (!knowsNoFlags(cause)) throw cause
      const [peeks, others] = [possible.filter(isPeek), possible.filter((job) => !isPeek(job))]
      this.#answerFull(others, () => true)
      if (peeks.length > 0) await this.#apply(APPLY, peeks)
    }
    this.#answerFull(impossible, isAbsent)
  }

  async #absentOf(jobs: readonly Job[]): Promise<(bucket: BucketName) => boolean> {
    const keys = [
      ...new Set(jobs.flatMap(({ request }) => writtenBy(request)).map((one) => keyNameOf(this.#names, one))),
    ]
    if (keys.length === 0) return () => false
    const found = (await this.#call(EXISTS, keys, [])) as readonly unknown[]
    const absent = new Set(keys.filter((_, index) => Number(found[index]) === 0))
    return (bucket) => absent.has(keyNameOf(this.#names, bucket))
  }

  #answerFull(jobs: readonly Job[], isAbsent: (bucket: BucketName) => boolean): void {
    for (const { request, reject } of jobs) {
      const error = errorWhenFull(request, isAbsent)
      this.#failed(error)
      reject(error)
    }
  }

  /** Nothing of the batch was sent when this throws. */
  #encoded(jobs: readonly Job[]): BatchEncoder {
    const batch = new BatchEncoder(this.#names)
    try {
      for (const { request, form } of jobs) batch.add(request, form)
    } catch (cause) {
      throw new EncodingError('OPTION_INVALID', `a request cannot be encoded: ${String(cause)}`, { cause })
    }
    return batch
  }

  /** NOSCRIPT means that nothing was run, so it is the one failure after which the call is made again. */
  async #call({ sha1, text }: Script, keys: readonly string[], args: readonly string[]): Promise<unknown> {
    const [firstKey = ''] = keys
    const rest = [String(keys.length), ...keys, ...args]
    await this.#connection.attempted
    try {
      return await this.#connection.send('EVALSHA', [sha1, ...rest], firstKey)
    } catch (error) {
      if (!(error instanceof Error && error.message.startsWith('NOSCRIPT'))) throw error
      return this.#connection.send('EVAL', [text, ...rest], firstKey)
    }
  }

  #deliver({ request, form, resolve, reject }: Job, reply: ReplyDecoder): void {
    const answer = reply.next(request, form, () => this.#keysOf(request))
    if (answer instanceof LimiterError) {
      this.#failed(answer)
      reject(answer)
    } else resolve(answer)
  }

  #failed(error: LimiterError): void {
    this.errors += 1
    this.#observer.onError?.(error)
  }

  #keysOf(request: Request): string {
    const single = new BatchEncoder(this.#names)
    single.add(request)
    return single.keys.join(' or ')
  }
}

function isPeek({ request }: Job): boolean {
  return request.verb === 'peek'
}

async function untilWhole<T>(call: () => Promise<T>): Promise<T> {
  for (let tries = 1; tries < TRIES_MAX; tries += 1) {
    try {
      return await call()
    } catch (error) {
      if (!isDivided(error)) throw error
      await new Promise((resolve) => setTimeout(resolve, TRY_AGAIN_MS))
    }
  }
  return call()
}

function unavailable(cause: unknown): LimiterError {
  if (cause instanceof LimiterError) return cause
  return new LimiterError('STORE_UNAVAILABLE', reasonOf(cause), { cause })
}

function reasonOf(cause: unknown): string {
  if (!(cause instanceof Error)) return String(cause)
  // ioredis names the option that keeps it from sending again, which is not what went wrong.
  const isBroken = cause.name === 'MaxRetriesPerRequestError'
  return isBroken ? 'the connection to Redis was closed while an answer was awaited' : cause.message
}
