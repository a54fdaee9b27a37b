// Moves the messages of one partition to ClickHouse, from its checkpoint on. A feed that has failed is discarded: the
// next one starts from the stored checkpoint, reads the same messages, and stores what is missing.

import type { ReadMessage, TopicPartition } from './blocks.ts'
import { grouped } from './blocks.ts'
import type { Checkpoint, ClickHouseWriter } from './clickhouse-writer.ts'
import type { ConsumerCounts } from './consumer-counts.ts'
import { Deduplicator } from './deduplicator.ts'
import { readMessage } from './message-reader.ts'

export type RawMessage = { readonly offset: string; readonly value: Uint8Array | null }

/** Repeats a step until it succeeds; rejects when the consumer stops. `tries` counts from 1. */
export type Retry = <T>(step: (tries: number) => Promise<T>) => Promise<T>

export type FeedDeps = {
  readonly source: TopicPartition
  readonly writer: Pick<ClickHouseWriter, 'store' | 'save'>
  readonly counts: ConsumerCounts
  readonly retry: Retry
  readonly onBadMessage: (detail: string, offset: number) => void
}

/**
 * Upper bound on the messages of one poll. A crash can leave stored rows without a checkpoint, so this many messages
 * after a start are compared with ClickHouse.
 */
const VERIFIED_MESSAGES = 100_000

export class PartitionFeed {
  readonly #deps: FeedDeps
  readonly #deduplicator: Deduplicator
  readonly #start: number
  #next: number

  constructor(deps: FeedDeps, checkpoint: Checkpoint) {
    this.#deps = deps
    this.#deduplicator = new Deduplicator(checkpoint.producers)
    this.#start = checkpoint.next
    this.#next = checkpoint.next
  }

  /** Offset of the next message. */
  get next(): number {
    return this.#next
  }

  /** Stores all rows, then the checkpoint. */
  async store(messages: readonly RawMessage[]): Promise<void> {
    const { source, writer, counts, retry } = this.#deps
    const last = messages.at(-1)
    if (last === undefined || Number(last.offset) < this.#next) return
    const since = this.#next < this.#start + VERIFIED_MESSAGES ? this.#start : undefined
    for (const group of grouped(this.#read(messages))) {
      const rows = await retry((tries) => writer.store(source, group, tries > 1 ? this.#start : since))
      counts.addRows(group.kind, rows)
      counts.addSkipped('stored', group.messages.length - rows)
    }
    const next = Number(last.offset) + 1
    await retry(() => writer.save(source, { next, producers: this.#deduplicator.states() }))
    this.#next = next
  }

  #read(messages: readonly RawMessage[]): ReadMessage[] {
    const { counts, onBadMessage } = this.#deps
    const rows: ReadMessage[] = []
    for (const { offset: text, value } of messages) {
      const offset = Number(text)
      if (offset < this.#next) continue
      const result = readMessage(value)
      if ('bad' in result) {
        counts.addSkipped(result.bad, 1)
        onBadMessage(result.detail, offset)
        continue
      }
      const { producer, seq } = result.message
      if (this.#deduplicator.accept(producer, seq, offset)) rows.push({ message: result.message, offset })
      else counts.addSkipped('repeated', 1)
    }
    return rows
  }
}
