// Loads kafkajs, an optional dependency, and connects to Kafka. kafkajs prints nothing: failures reach the caller as
// errors.

import { readFileSync } from 'node:fs'
import type { Admin, Kafka, KafkaConfig, SASLOptions } from 'kafkajs'
import { type KafkaAddress, kafkaName } from '../../settings/kafka-address.ts'

export type KafkaMessage = { readonly key: string; readonly value: string }

/** A connected producer. After a send that failed, close it and connect another one: see KafkaSink. */
export type KafkaProducer = {
  /** Stores all messages, or rejects with an unknown outcome. Call it again only when the last call has settled. */
  sendBatch(messages: readonly KafkaMessage[]): Promise<void>
  close(): Promise<void>
}

export type KafkaTimeouts = { readonly connectMs: number; readonly requestMs: number; readonly retries: number }

const TIMEOUTS: KafkaTimeouts = { connectMs: 5000, requestMs: 10_000, retries: 3 }
const RETRY_MS = { initialRetryTime: 200, maxRetryTime: 2000 }
const CLIENT_ID = 'sluice'
const ALL_REPLICAS = -1
const NEEDS_KAFKAJS = 'Kafka needs the package kafkajs: npm install kafkajs@2.2.4'

/** Connects. Creates the topic unless it exists. */
export async function connectProducer(
  address: KafkaAddress,
  timeouts: KafkaTimeouts = TIMEOUTS,
): Promise<KafkaProducer> {
  const kafka = await openKafka(address, timeouts)
  await withAdmin(kafka, (admin) => ensureTopic(admin, address))
  const producer = kafka.producer({
    idempotent: true,
    maxInFlightRequests: 1, // kafkajs loses messages with more, measured
    allowAutoTopicCreation: false,
  })
  await producer.connect()
  const { topic } = address
  return {
    sendBatch: async (messages) => {
      await producer.send({ topic, acks: ALL_REPLICAS, messages: [...messages] })
    },
    close: () => producer.disconnect(),
  }
}

export async function openKafka(address: KafkaAddress, timeouts: KafkaTimeouts = TIMEOUTS): Promise<Kafka> {
  process.env.KAFKAJS_NO_PARTITIONER_WARNING = '1'
  const kafkajs = await import('kafkajs').catch((error: NodeJS.ErrnoException) => {
    throw error.code === 'ERR_MODULE_NOT_FOUND' ? new Error(NEEDS_KAFKAJS) : error
  })
  const { sasl } = address
  const config: KafkaConfig = {
    clientId: CLIENT_ID,
    brokers: [...address.brokers],
    connectionTimeout: timeouts.connectMs,
    requestTimeout: timeouts.requestMs,
    retry: { ...RETRY_MS, retries: timeouts.retries },
    logCreator: () => () => {},
    ...(address.tls ? { ssl: tlsOptions(address.caFile) } : {}),
    ...(sasl === undefined
      ? {}
      : { sasl: { mechanism: sasl.mechanism, username: sasl.user, password: sasl.password } as SASLOptions }),
  }
  return new kafkajs.Kafka(config)
}

export async function withAdmin<T>(kafka: Kafka, work: (admin: Admin) => Promise<T>): Promise<T> {
  const admin = kafka.admin()
  await admin.connect()
  try {
    return await work(admin)
  } finally {
    await admin.disconnect()
  }
}

/** Error name of the Kafka protocol, such as MESSAGE_TOO_LARGE, of the error or of one of its causes. */
export function kafkaErrorType(error: unknown): string | undefined {
  if (typeof error !== 'object' || error === null) return undefined
  const { type, cause, errors } = error as { type?: unknown; cause?: unknown; errors?: readonly unknown[] }
  if (typeof type === 'string') return type
  return kafkaErrorType(cause) ?? kafkaErrorType(errors?.[0])
}

export async function topicExists(admin: Admin, address: KafkaAddress): Promise<boolean> {
  try {
    await admin.fetchTopicMetadata({ topics: [address.topic] })
    return true
  } catch (error) {
    const type = kafkaErrorType(error)
    if (type === 'UNKNOWN_TOPIC_OR_PARTITION') return false
    if (type !== 'TOPIC_AUTHORIZATION_FAILED') throw error
    const fix = 'grant it Describe, and Write for a sink or Read for a consumer'
    throw new Error(`${kafkaName(address)}: the user may not use the topic (${type}): ${fix}`)
  }
}

async function ensureTopic(admin: Admin, address: KafkaAddress): Promise<void> {
  const { topic, partitions } = address
  if (await topicExists(admin, address)) return
  try {
    await admin.createTopics({ topics: [{ topic, numPartitions: partitions }], waitForLeaders: true })
  } catch (error) {
    const why = kafkaErrorType(error) ?? (error as Error).message
    const fix = `create it with ${partitions} or more partitions`
    throw new Error(`${kafkaName(address)}: the topic does not exist and cannot be created (${why}): ${fix}`)
  }
}

function tlsOptions(caFile: string | undefined): true | { ca: string[] } {
  return caFile === undefined ? true : { ca: [readFileSync(caFile, 'utf8')] }
}
