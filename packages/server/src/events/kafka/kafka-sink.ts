// Sends batches to a Kafka topic. Messages carry (producer, seq): after a send with an unknown outcome the same
// messages are sent again with the same numbers, and `sluice events consume` drops the repeats. So that repeats are
// the only fault, a failed producer is never used again: kafkajs reuses the sequence numbers of a failed send, and the
// broker would then discard another batch as its duplicate.

import { inSlices } from 'sluice'
import type { KafkaAddress } from '../../settings/kafka-address.ts'
import type { Batch } from '../event.ts'
import type { BatchId, Sink } from '../sink.ts'
import { connectProducer, type KafkaMessage, type KafkaProducer, kafkaErrorType } from './kafka-client.ts'
import { messagesOf } from './messages.ts'

/** Bytes per send. Brokers accept 1 MiB per partition and send by default. */
const SEND_BYTES_MAX = 768 * 1024
const CLOSE_TIMEOUT_MS = 3000
/** Bytes of a message in a record batch beside key and value, at most. */
const MESSAGE_OVERHEAD_BYTES = 64

type Connect = (address: KafkaAddress) => Promise<KafkaProducer>

/** Batch that is being written. `sent` messages are acknowledged. */
type Pending = {
  readonly id: BatchId
  messages: readonly KafkaMessage[]
  readonly events: number
  sent: number
  tooLarge: number
  /** Lowered while a send is too large for the broker. */
  sendBytesMax: number
}

export class KafkaSink implements Sink {
  readonly name = 'kafka'
  readonly #address: KafkaAddress
  readonly #connect: Connect
  #producer: KafkaProducer | undefined
  #pending: Pending | undefined
  #nextSeq = 1
  #sendBytesMax = SEND_BYTES_MAX
  #isClosed = false

  constructor(address: KafkaAddress, connect: Connect = connectProducer) {
    this.#address = address
    this.#connect = connect
  }

  /** A retry continues after the last acknowledged send. Resolves with the number of events that Kafka cannot store. */
  async write(id: BatchId, batch: Batch, _isRetry: boolean): Promise<number> {
    const pending = await this.#pendingOf(id, batch)
    while (pending.sent < pending.messages.length) await this.#sendNext(pending)
    pending.messages = [] // free the memory
    return pending.tooLarge
  }

  async close(): Promise<void> {
    this.#isClosed = true
    await this.#dropProducer()
  }

  /** An abandoned batch keeps its numbers: the next one starts after them. */
  async #pendingOf(id: BatchId, batch: Batch): Promise<Pending> {
    const last = this.#pending
    if (last !== undefined && last.id.producer === id.producer && last.id.seq === id.seq) return last
    if (last !== undefined && last.id.producer !== id.producer) this.#nextSeq = 1
    const messages = await inSlices(messagesOf(batch, id.producer, this.#nextSeq))
    this.#nextSeq += messages.length
    const sendBytesMax = this.#sendBytesMax
    this.#pending = { id, messages, events: batch.events.length, sent: 0, tooLarge: 0, sendBytesMax }
    return this.#pending
  }

  async #sendNext(pending: Pending): Promise<void> {
    if (this.#isClosed) throw new Error('the kafka sink is closed')
    const { messages, sent } = pending
    const end = sendEnd(messages, sent, pending.sendBytesMax)
    try {
      this.#producer ??= await this.#connect(this.#address)
      await this.#producer.sendBatch(messages.slice(sent, end))
    } catch (error) {
      void this.#dropProducer()
      if (kafkaErrorType(error) !== 'MESSAGE_TOO_LARGE') throw error
      shrink(pending, end - sent)
      return
    }
    pending.sent = end
    this.#sendBytesMax = Math.min(this.#sendBytesMax, pending.sendBytesMax) // later batches start with a size that fits
  }

  async #dropProducer(): Promise<void> {
    const producer = this.#producer
    this.#producer = undefined
    if (producer === undefined) return
    await withTimeout(producer.close(), CLOSE_TIMEOUT_MS).catch(() => {}) // an unreachable broker
  }
}

/** Sends less at a time; skips a message that is too large by itself. */
function shrink(pending: Pending, count: number): void {
  if (count > 1) {
    pending.sendBytesMax /= 2
    return
  }
  if (pending.sent < pending.events) pending.tooLarge += 1
  pending.sent += 1
}

/** Index after the last message of a send that starts at `start`: at least one message. */
function sendEnd(messages: readonly KafkaMessage[], start: number, bytesMax: number): number {
  let bytes = 0
  for (let index = start; index < messages.length; index++) {
    const { key, value } = messages[index] as KafkaMessage // within the list
    bytes += Buffer.byteLength(key) + Buffer.byteLength(value) + MESSAGE_OVERHEAD_BYTES
    if (bytes > bytesMax && index > start) return index
  }
  return messages.length
}

function withTimeout(work: Promise<void>, timeoutMs: number): Promise<void> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, timeoutMs)
    timer.unref()
    work.then(resolve, reject).finally(() => clearTimeout(timer))
  })
}
