// Groups messages of one partition into blocks of one table and one day, in the order of their offsets. ClickHouse
// stores such a block completely or not at all.

import { type Block, blocksOf } from '../clickhouse/blocks.ts'
import type { Batch } from '../event.ts'
import { copyFields } from './message-reader.ts'
import type { Message, MessageKind } from './messages.ts'

export type TopicPartition = { readonly topic: string; readonly partition: number }

export type ReadMessage = { readonly message: Message; readonly offset: number }

/** Messages of one kind and one day. */
export type MessageGroup = { readonly kind: MessageKind; readonly messages: readonly ReadMessage[] }

const SECONDS_PER_DAY = 86_400
const FIELD_OF_KIND = {
  event: 'events',
  counts: 'counts',
  limits: 'limits',
  clients: 'clients',
  latency: 'latency',
} as const satisfies Record<MessageKind, keyof Batch>
const EMPTY: Batch = { events: [], counts: [], limits: [], clients: [], latency: [] }

/** Value of the column `producer` for rows from Kafka: offsets are unique with it. */
export function producerOf({ topic, partition }: TopicPartition): string {
  return `kafka:${topic}/${partition}`
}

export function grouped(messages: readonly ReadMessage[]): MessageGroup[] {
  const groups = new Map<string, { kind: MessageKind; messages: ReadMessage[] }>()
  for (const read of messages) {
    const { kind } = read.message
    const key = `${kind} ${Math.floor(secondOf(read.message) / SECONDS_PER_DAY)}`
    const group = groups.get(key)
    if (group === undefined) groups.set(key, { kind, messages: [read] })
    else group.messages.push(read)
  }
  return [...groups.values()]
}

/** The block of a group, named by the offset of its first row. `messages` is not empty. */
export function blockOf(source: TopicPartition, { kind, messages }: MessageGroup): Block {
  const rows = messages.map(({ message, offset }) => {
    const row: Record<string, unknown> = { kafka_partition: source.partition, kafka_offset: offset }
    copyFields(message, row)
    if (message.kind !== 'clients') return row
    const { client_kind, ...client } = row
    return { ...client, kind: client_kind }
  })
  const seq = messages[0]?.offset ?? 0
  // The reader has checked the types of all fields.
  const batch = { ...EMPTY, [FIELD_OF_KIND[kind]]: rows } as unknown as Batch
  const [block] = blocksOf({ producer: producerOf(source), seq }, batch)
  if (block === undefined) throw new Error('a group has at least one message')
  return block
}

function secondOf(message: Message): number {
  return message.kind === 'event' ? Math.floor(message.timestamp / 1000) : message.time
}
