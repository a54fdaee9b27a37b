// Counts of a consumer and their Prometheus metrics.

import { Registry } from 'prom-client'
import { registerCounters, registerGauges } from '../../metrics/registration.ts'
import type { BadMessage } from './message-reader.ts'
import { MESSAGE_KINDS, type MessageKind } from './messages.ts'

/**
 * `repeated`: sent twice by a node. `stored`: read again after a restart. `expired`: deleted by Kafka before it was
 * read.
 */
export type SkipReason = BadMessage | 'repeated' | 'stored' | 'expired'

const SKIP_REASONS: readonly SkipReason[] = ['not_json', 'unknown_kind', 'wrong_type', 'repeated', 'stored', 'expired']

export class ConsumerCounts {
  readonly #rows: Map<MessageKind, number> = new Map(MESSAGE_KINDS.map((kind) => [kind, 0]))
  readonly #skipped: Map<SkipReason, number> = new Map(SKIP_REASONS.map((reason) => [reason, 0]))
  /** Per partition: offset of the next message, and offset after the last message. */
  readonly #positions: Map<number, { next: number; end: number }> = new Map()

  addRows(kind: MessageKind, count: number): void {
    this.#rows.set(kind, (this.#rows.get(kind) ?? 0) + count)
  }

  addSkipped(reason: SkipReason, count: number): void {
    this.#skipped.set(reason, (this.#skipped.get(reason) ?? 0) + count)
  }

  setPosition(partition: number, next: number): void {
    this.#positions.set(partition, { next, end: Math.max(next, this.#positions.get(partition)?.end ?? 0) })
  }

  setEnd(partition: number, end: number): void {
    const position = this.#positions.get(partition)
    if (position !== undefined) position.end = end
  }

  /** Another consumer has the partitions now. */
  forgetPositions(): void {
    this.#positions.clear()
  }

  get rows(): number {
    return [...this.#rows.values()].reduce((sum, count) => sum + count, 0)
  }

  skipped(reason: SkipReason): number {
    return this.#skipped.get(reason) ?? 0
  }

  lags(): [partition: number, lag: number][] {
    return [...this.#positions].map(([partition, { next, end }]) => [partition, Math.max(0, end - next)])
  }

  registry(): Registry {
    const registry = new Registry()
    const source = () => this
    registerGauges<ConsumerCounts>(registry, source, [
      {
        name: 'sluice_events_consumer_lag',
        help: 'Messages of a partition that this consumer has not stored yet.',
        labels: ['partition'],
        aggregator: 'sum',
        read: (counts) => counts.lags().map(([partition, lag]) => [{ partition: String(partition) }, lag]),
      },
    ])
    registerCounters<ConsumerCounts>(registry, source, [
      {
        name: 'sluice_events_consumer_rows_total',
        help: 'Rows that this consumer stored in ClickHouse, by kind.',
        labels: ['kind'],
        read: (counts) => [...counts.#rows].map(([kind, count]) => [{ kind }, count]),
      },
      {
        name: 'sluice_events_consumer_skipped_total',
        help: 'Messages that this consumer did not store, by reason.',
        labels: ['reason'],
        read: (counts) => [...counts.#skipped].map(([reason, count]) => [{ reason }, count]),
      },
    ])
    return registry
  }
}
