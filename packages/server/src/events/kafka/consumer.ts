// Reads the topic of a Kafka sink and stores its rows in ClickHouse exactly once. The position comes from ClickHouse;
// offsets are also committed to Kafka, for its tools. Several consumers may share a group: Kafka spreads the
// partitions, and clickhouse-writer.ts rules out double rows while they move.

import type { Admin, Consumer, EachBatchPayload, Kafka } from 'kafkajs'
import { reasonOf } from '../../problems/reason.ts'
import { type KafkaAddress, kafkaName } from '../../settings/kafka-address.ts'
import type { Checkpoint, ClickHouseWriter } from './clickhouse-writer.ts'
import type { ConsumerCounts } from './consumer-counts.ts'
import { openKafka, topicExists, withAdmin } from './kafka-client.ts'
import { PartitionFeed, type Retry } from './partition-feed.ts'

export type ConsumerOptions = {
  readonly address: KafkaAddress
  /** Consumers of a group share the partitions. */
  readonly group: string
  /** Stop at the end of the topic. */
  readonly once: boolean
}

export type ConsumerDeps = {
  readonly writer: ClickHouseWriter
  readonly counts: ConsumerCounts
  /** Reports progress and failures, one line each. */
  readonly tell: (line: string) => void
}

const SESSION_TIMEOUT_MS = 10_000
const HEARTBEAT_MS = 2000
/** A poll waits for this many bytes or this long: few large inserts instead of many small ones. */
const POLL_BYTES_MIN = 512 * 1024
const POLL_BYTES_MAX = 4 * 1024 * 1024
const POLL_WAIT_MS = 500
const PARTITIONS_AT_ONCE = 3
const RETRY_MS_MIN = 250
const RETRY_MS_MAX = 10_000
const ENDS_EVERY_MS = 2000
const ENDS_EVERY_ONCE_MS = 200
const PROGRESS_EVERY_MS = 10_000
/** Number of seeks to one offset before a gap is accepted. */
const SEEKS_MAX = 3

type Partition = { readonly feed: PartitionFeed; seeks: number }
type Range = { readonly low: number; readonly end: number }
type Ends = readonly (readonly [partition: number, range: Range])[]

/** Resolves when `stop` is aborted or, with `once`, at the end of the topic. Rejects if Kafka ends the consumer. */
export async function consume(options: ConsumerOptions, deps: ConsumerDeps, stop: AbortSignal): Promise<void> {
  const kafka = await openKafka(options.address)
  await withAdmin(kafka, async (admin) => {
    const { address } = options
    if (!(await topicExists(admin, address)))
      throw new Error(`${kafkaName(address)}: the topic does not exist: start a node with this sink, or create it`)
    await new EventsConsumer(options, deps, kafka, admin).run(stop)
  })
}

class EventsConsumer {
  readonly #options: ConsumerOptions
  readonly #deps: ConsumerDeps
  readonly #consumer: Consumer
  readonly #admin: Admin
  /** Aborted when the consumer ends, for whatever reason. */
  readonly #end = new AbortController()
  /** Rejects with an error that a retry cannot fix. */
  readonly #failure: Promise<never>
  #fail: (error: Error) => void = () => {}
  /** Partitions of this consumer since it last joined the group. */
  #partitions: Map<number, Promise<Partition>> = new Map()
  #hasToldBadMessage = false

  constructor(options: ConsumerOptions, deps: ConsumerDeps, kafka: Kafka, admin: Admin) {
    this.#options = options
    this.#deps = deps
    this.#admin = admin
    this.#failure = new Promise((_, reject) => {
      this.#fail = reject
    })
    this.#failure.catch(() => {}) // may reject before anything awaits it
    this.#consumer = kafka.consumer({
      groupId: options.group,
      sessionTimeout: SESSION_TIMEOUT_MS,
      heartbeatInterval: HEARTBEAT_MS,
      minBytes: options.once ? 1 : POLL_BYTES_MIN,
      maxBytesPerPartition: POLL_BYTES_MAX,
      maxWaitTimeInMs: POLL_WAIT_MS,
      allowAutoTopicCreation: false,
      retry: { initialRetryTime: RETRY_MS_MIN, maxRetryTime: RETRY_MS_MAX, retries: 5 },
    })
  }

  async run(stop: AbortSignal): Promise<void> {
    const { writer } = this.#deps
    const { topic } = this.#options.address
    const end = () => this.#end.abort()
    stop.addEventListener('abort', end)
    if (stop.aborted) end()
    try {
      await this.#retry(() => writer.open())
      await this.#consumer.connect()
      await this.#consumer.subscribe({ topics: [topic], fromBeginning: true })
      this.#consumer.on('consumer.crash', ({ payload }) => this.#crashed(payload))
      this.#consumer.on('consumer.group_join', ({ payload }) => this.#joined(payload.memberAssignment[topic] ?? []))
      await this.#consumer.run({
        eachBatchAutoResolve: false,
        partitionsConsumedConcurrently: PARTITIONS_AT_ONCE,
        eachBatch: (payload) => this.#storeBatch(payload),
      })
      await Promise.race([this.#failure, this.#watch()])
    } catch (error) {
      if (!stop.aborted) throw error
    } finally {
      end()
      stop.removeEventListener('abort', end)
      await this.#consumer.disconnect().catch(() => {}) // waits for inserts under way
    }
  }

  /** kafkajs restarts by itself after errors that can pass. */
  #crashed({ error, restart }: { readonly error: Error; readonly restart: boolean }): void {
    if (!restart) this.#fail(error)
    else this.#deps.tell(`kafka failed: ${reasonOf(error)}; joining the group again`)
  }

  /** Reads positions from ClickHouse, not from Kafka. */
  #joined(partitions: readonly number[]): void {
    this.#deps.tell(`joined group ${this.#options.group}: partitions ${partitions.join(', ') || 'none'}`)
    this.#deps.counts.forgetPositions()
    this.#partitions = new Map()
    for (const partition of partitions) this.#partition(partition).catch(() => {}) // #load has reported it
  }

  #partition(partition: number): Promise<Partition> {
    const known = this.#partitions.get(partition)
    if (known !== undefined) return known
    const loading = this.#load(partition)
    loading.catch((error: Error) => this.#fail(error)) // temporary errors were retried before
    this.#partitions.set(partition, loading)
    return loading
  }

  async #load(partition: number): Promise<Partition> {
    const { writer, counts, tell } = this.#deps
    const { topic } = this.#options.address
    const source = { topic, partition }
    const checkpoint = (await this.#retry(() => writer.checkpoint(source))) ?? { next: 0, producers: [] }
    const onBadMessage = (detail: string, offset: number) => {
      if (this.#hasToldBadMessage) return
      this.#hasToldBadMessage = true
      tell(`bad message skipped: partition ${partition}, offset ${offset}: ${detail}; later ones are only counted`)
    }
    const next = await this.#firstOffset(partition, checkpoint)
    const feed = new PartitionFeed(
      { source, writer, counts, retry: this.#retry, onBadMessage },
      { ...checkpoint, next },
    )
    counts.setPosition(partition, next)
    this.#consumer.seek({ topic, partition, offset: String(next) })
    return { feed, seeks: 1 }
  }

  /** The position, or the oldest message if Kafka has deleted those at the position. */
  async #firstOffset(partition: number, { next }: Checkpoint): Promise<number> {
    const { counts, tell } = this.#deps
    const { low, end } = await this.#retry(() => this.#range(partition))
    if (next > end) {
      const fix = 'it was deleted and created again; use another topic name'
      throw new Error(`partition ${partition} ends at ${end}, but ClickHouse has rows up to ${next}: ${fix}`)
    }
    counts.setEnd(partition, end)
    if (low <= next) return next
    counts.addSkipped('expired', low - next)
    if (next > 0) tell(`partition ${partition}: kafka deleted ${low - next} messages before they were read`)
    return low
  }

  async #range(partition: number): Promise<Range> {
    const offsets = await this.#admin.fetchTopicOffsets(this.#options.address.topic)
    const found = offsets.find((each) => each.partition === partition)
    return { low: Number(found?.low ?? 0), end: Number(found?.high ?? 0) }
  }

  async #storeBatch({ batch, heartbeat, resolveOffset, isStale, isRunning }: EachBatchPayload): Promise<void> {
    const { topic, partition, messages } = batch
    const state = await this.#partition(partition)
    const first = messages[0]
    if (first === undefined || !isRunning() || isStale()) return
    if (Number(first.offset) > state.feed.next && state.seeks < SEEKS_MAX) {
      state.seeks += 1
      this.#consumer.seek({ topic, partition, offset: String(state.feed.next) })
      return
    }
    state.seeks = 0
    try {
      await this.#whileBeating(heartbeat, () => state.feed.store(messages))
    } catch (error) {
      this.#partitions.delete(partition) // reload the position
      if (this.#end.signal.aborted) return
      throw error
    }
    resolveOffset(batch.lastOffset())
    this.#deps.counts.setPosition(partition, state.feed.next)
    this.#deps.counts.setEnd(partition, Math.max(state.feed.next, Number(batch.highWatermark)))
    await heartbeat()
  }

  /** Stays in the group during a long insert. A heartbeat that fails is repeated after the work, which reports it. */
  async #whileBeating(heartbeat: () => Promise<void>, work: () => Promise<void>): Promise<void> {
    const done = new AbortController()
    const beat = async () => {
      while (!done.signal.aborted) {
        await pause(HEARTBEAT_MS, done.signal)
        if (!done.signal.aborted) await heartbeat().catch(() => {})
      }
    }
    const beating = beat()
    try {
      await work()
    } finally {
      done.abort()
      await beating
    }
  }

  /** Updates the lag, prints progress, and resolves when the consumer has to end. */
  async #watch(): Promise<void> {
    const { once } = this.#options
    const ends = once ? await this.#retry(() => this.#ends()) : undefined
    let quietMs = 0
    while (!this.#end.signal.aborted) {
      const waitMs = once ? ENDS_EVERY_ONCE_MS : ENDS_EVERY_MS
      await pause(waitMs, this.#end.signal)
      if (ends !== undefined && (await this.#hasReached(ends))) return
      const now = await this.#ends().catch((): Ends => []) // kafka is down: keep the last ones
      for (const [partition, { end }] of now) this.#deps.counts.setEnd(partition, end)
      quietMs += waitMs
      if (quietMs >= PROGRESS_EVERY_MS) {
        quietMs = 0
        this.#tellProgress()
      }
    }
  }

  async #ends(): Promise<Ends> {
    const offsets = await this.#admin.fetchTopicOffsets(this.#options.address.topic)
    return offsets.map(({ partition, low, high }) => [partition, { low: Number(low), end: Number(high) }])
  }

  /** Whether all partitions are stored, by this consumer or by another one of the group. */
  async #hasReached(ends: Ends): Promise<boolean> {
    const { topic } = this.#options.address
    for (const [partition, { low, end }] of ends) {
      if (low === end) continue
      const stored = await this.#retry(() => this.#deps.writer.checkpoint({ topic, partition }))
      if ((stored?.next ?? 0) < end) return false
    }
    return true
  }

  #tellProgress(): void {
    const { counts, tell } = this.#deps
    const lag = counts.lags().reduce((sum, [, each]) => sum + each, 0)
    tell(`${counts.rows} rows stored, lag ${lag}`)
  }

  /** Waits longer after each failure. Reports the first one, and the end of the failures. */
  readonly #retry: Retry = async (step) => {
    const { signal } = this.#end
    for (let tries = 1; ; tries += 1) {
      signal.throwIfAborted()
      try {
        const result = await step(tries)
        if (tries > 1) this.#deps.tell('continuing')
        return result
      } catch (error) {
        if (signal.aborted) throw error
        if (tries === 1) this.#deps.tell(`${reasonOf(error)}; trying again`)
        await pause(Math.min(RETRY_MS_MAX, RETRY_MS_MIN * 2 ** (tries - 1)), signal)
      }
    }
  }
}

/** Resolves after a time, or when the signal is aborted. */
function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer)
      signal.removeEventListener('abort', end)
      resolve()
    }
    const timer = setTimeout(end, ms)
    if (signal.aborted) end()
    else signal.addEventListener('abort', end)
  })
}
