// Reads a whole Kafka topic: the number of events and the sum of the decisions in rollups. A message that was sent
// twice counts once: messages of a producer are numbered.

import { Kafka, logLevel } from 'kafkajs'
import type { Contents } from './event-sinks.ts'

type Message = { readonly kind: string; readonly producer: string; readonly seq: number; readonly count?: number }

/** Kind, producer and number come first in a message. */
const EVENT = /^\{"kind":"event","producer":"([^"]*)","seq":(\d+),/
const HEAD_BYTES = 200

export async function topicContents(broker: string, topic: string): Promise<Contents> {
  process.env.KAFKAJS_NO_PARTITIONER_WARNING = '1'
  const kafka = new Kafka({ brokers: [broker], logLevel: logLevel.NOTHING, retry: { retries: 20 } })
  const admin = kafka.admin()
  await admin.connect()
  const offsets = await admin.fetchTopicOffsets(topic)
  await admin.disconnect()
  let left = offsets.reduce((sum, { low, high }) => sum + Number(high) - Number(low), 0)
  const seen = new Set<string>()
  let [events, decisions] = [0, 0]
  const consumer = kafka.consumer({ groupId: 'soak', maxBytesPerPartition: 4 * 1024 * 1024 })
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  const done = new Promise<void>((resolve, reject) => {
    // A new broker loads its coordinator for a while: kafkajs then restarts the consumer.
    consumer.on('consumer.crash', ({ payload }) => (payload.restart ? undefined : reject(payload.error)))
    const eachBatch = async ({ batch }: { batch: { messages: { value: Buffer | null }[] } }) => {
      for (const { value } of batch.messages) {
        const read = readMessage(value ?? Buffer.alloc(0))
        left -= 1
        const id = `${read.producer} ${read.seq}`
        if (seen.has(id)) continue
        seen.add(id)
        if (read.kind === 'event') events += 1
        if (read.kind === 'counts') decisions += read.count ?? 0
      }
      if (left <= 0) resolve()
    }
    consumer.run({ eachBatch }).catch(reject)
  })
  await done.finally(() => consumer.disconnect()) // its timers would keep the process alive
  return { events, decisions }
}

/** Most messages are events, of which only the head is read. */
function readMessage(value: Buffer): Message {
  const [, producer, seq] = EVENT.exec(value.toString('latin1', 0, HEAD_BYTES)) ?? []
  if (producer !== undefined) return { kind: 'event', producer, seq: Number(seq) }
  return JSON.parse(value.toString()) as Message
}
