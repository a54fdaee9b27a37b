// Messages of the Kafka topic: one JSON object per row of a batch. `producer` and `seq` number the messages of one
// process without gaps, so that a reader can drop messages that were sent twice.

import type { Sliced } from 'sluice'
import type { Batch, ClientRow, CountRow, DecisionEvent, LatencyRow, LimitRow } from '../event.ts'
import type { KafkaMessage } from './kafka-client.ts'

export type MessageKind = 'event' | 'counts' | 'limits' | 'clients' | 'latency'

export const MESSAGE_KINDS: readonly MessageKind[] = ['event', 'counts', 'limits', 'clients', 'latency']

export type Head = { readonly kind: MessageKind; readonly producer: string; readonly seq: number }

/** The kind of a client is `client_kind` in a message, because `kind` is that of the message. */
export type ClientMessage = Omit<ClientRow, 'kind'> & { readonly client_kind: ClientRow['kind'] }

export type Message =
  | (Head & { readonly kind: 'event' } & DecisionEvent)
  | (Head & { readonly kind: 'counts' } & CountRow)
  | (Head & { readonly kind: 'limits' } & LimitRow)
  | (Head & { readonly kind: 'clients' } & ClientMessage)
  | (Head & { readonly kind: 'latency' } & LatencyRow)

/**
 * Events first, each keyed by its client, so that one client stays in order; rollups are keyed by the producer. Sliced:
 * 10,000 events take longer than a check may wait.
 */
export function* messagesOf(batch: Batch, producer: string, firstSeq: number): Sliced<KafkaMessage[]> {
  const messages: KafkaMessage[] = []
  const add = (key: string, kind: MessageKind, row: object) => {
    const head: Head = { kind, producer, seq: firstSeq + messages.length }
    // Joins two objects as text: copying a row costs more than formatting it. No row is empty.
    messages.push({ key, value: `${JSON.stringify(head).slice(0, -1)},${JSON.stringify(row).slice(1)}` })
  }
  for (const event of batch.events) {
    add(clientKey(event), 'event', event)
    yield
  }
  for (const row of batch.counts) add(producer, 'counts', row)
  for (const row of batch.limits) add(producer, 'limits', row)
  for (const { kind, ...row } of batch.clients) add(producer, 'clients', { ...row, client_kind: kind })
  for (const row of batch.latency) add(producer, 'latency', row)
  return messages
}

function clientKey({ client_id, api_key, ip }: DecisionEvent): string {
  return client_id ?? api_key ?? ip ?? ''
}
