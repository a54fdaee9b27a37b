// Kafka sink → Kafka → consumer → ClickHouse, on real servers. All Kafka tests are in this file: a broker takes
// seconds to start.

import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import type { Admin } from 'kafkajs'
import { wallClock } from 'sluice'
import {
  type ClickHouseProcess,
  clickHouseMissing,
  type KafkaProcess,
  kafkaMissing,
  startClickHouse,
  startKafka,
} from 'sluice/testing'
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from 'vitest'
import { ClickHouseClient } from '../src/events/clickhouse/client.ts'
import { eventColumns, readEvent, type StoredEvent } from '../src/events/clickhouse/event-row.ts'
import { ClickHouseSchema } from '../src/events/clickhouse/schema.ts'
import type { Batch, DecisionEvent } from '../src/events/event.ts'
import { grouped, type ReadMessage } from '../src/events/kafka/blocks.ts'
import { ClickHouseWriter } from '../src/events/kafka/clickhouse-writer.ts'
import { consume } from '../src/events/kafka/consumer.ts'
import { ConsumerCounts } from '../src/events/kafka/consumer-counts.ts'
import { connectProducer, openKafka, withAdmin } from '../src/events/kafka/kafka-client.ts'
import { KafkaSink } from '../src/events/kafka/kafka-sink.ts'
import type { Message } from '../src/events/kafka/messages.ts'
import { readClickHouseUrl } from '../src/settings/clickhouse-url.ts'
import { parseKafkaAddress } from '../src/settings/kafka-address.ts'
import { describeAllSinks } from './all-sinks.ts'
import { randomBatches } from './random-batches.ts'

const MAIN = fileURLToPath(new URL('../bin/sluice.js', import.meta.url))
const NOW_MS = Date.UTC(2026, 9, 5, 1, 0, 30) // rows of two days
const POLL = { timeout: 120_000, interval: 20 }
const SHORT = { connectMs: 1000, requestMs: 1000, retries: 1 }

const missing = kafkaMissing() ?? clickHouseMissing()
if (missing !== undefined) process.stderr.write(`sluice: tests of Kafka are skipped: ${missing}\n`)

describe.skipIf(missing !== undefined)('Kafka', () => {
  let kafka: KafkaProcess
  let clickhouse: ClickHouseProcess
  let topics = 0

  beforeAll(async () => {
    clickhouse = await startClickHouse()
    kafka = await startKafka()
  })
  afterAll(() => Promise.all([kafka?.stop(), clickhouse?.stop()]))
  describeAllSinks(() => ({ kafka, clickhouse }))

  /** A new topic and a new database. */
  function place() {
    topics += 1
    const [address, url] = [`${kafka.host}/decisions-${topics}`, `${clickhouse.url}/test_${topics}`]
    const clickHouseUrl = readClickHouseUrl(url)
    if (clickHouseUrl === undefined) throw new Error('the URL of the server is invalid')
    const client = new ClickHouseClient(clickHouseUrl)
    onTestFinished(() => client.close())
    const writer = new ClickHouseWriter(client, new ClickHouseSchema(client))
    return { address, url, client, writer, kafkaAddress: parseKafkaAddress(address) }
  }
  type Place = ReturnType<typeof place>

  function sinkOf({ kafkaAddress }: Place, timeouts = SHORT): KafkaSink {
    const sink = new KafkaSink(kafkaAddress, (address) => connectProducer(address, timeouts))
    onTestFinished(() => sink.close())
    return sink
  }

  /** As the pipeline does: one batch after the other, each until it is stored. Returns the number of failures. */
  async function send(sink: KafkaSink, batches: readonly Batch[], afterFailure = () => {}, firstSeq = 1) {
    let failures = 0
    for (const [index, batch] of batches.entries()) {
      for (let tries = 1; ; tries += 1) {
        const isStored = await sink.write({ producer: 'node-1', seq: firstSeq + index }, batch, tries > 1).then(
          () => true,
          () => false,
        )
        if (isStored) break
        failures += 1
        afterFailure()
      }
    }
    return failures
  }

  async function consumeOnce({ kafkaAddress: address, writer }: Place): Promise<ConsumerCounts> {
    const counts = new ConsumerCounts()
    const lines: string[] = []
    await consume(
      { address, group: 'test', once: true },
      { writer, counts, tell: (line) => lines.push(line) },
      new AbortController().signal,
    )
    return counts
  }

  function number(place: Place, sql: string): Promise<number> {
    const named = sql.replaceAll('$db', place.client.database)
    return clickhouse.query(named).then(Number)
  }

  /** Everything that was sent is stored once, as rows and as sums per minute. */
  async function expectStored(place: Place, batches: readonly Batch[]): Promise<void> {
    const sum = (values: readonly number[]) => values.reduce((a, b) => a + b, 0)
    const events = batches.flatMap((batch) => batch.events)
    expect(await number(place, 'SELECT count() FROM $db.sluice_events')).toBe(events.length)
    expect(await number(place, 'SELECT uniqExact(event_id) FROM $db.sluice_events')).toBe(events.length)
    const tables = {
      counts: ['count', batches.flatMap(({ counts }) => counts.map(({ count }) => count))],
      limits: ['allowed + refused + near_limit', batches.flatMap(({ limits }) => limits.map(total))],
      clients: ['allowed + refused + near_limit', batches.flatMap(({ clients }) => clients.map(total))],
      latency: ['count', batches.flatMap(({ latency }) => latency.map(({ count }) => count))],
    } as const
    for (const [name, [value, values]] of Object.entries(tables)) {
      expect(await number(place, `SELECT count() FROM $db.sluice_${name}`), name).toBe(values.length)
      expect(await number(place, `SELECT sum(${value}) FROM $db.sluice_${name}`), name).toBe(sum(values))
      expect(await number(place, `SELECT sum(${value}) FROM $db.sluice_${name}_minute`), name).toBe(sum(values))
    }
  }

  test('every row arrives once, with its values, and events of one client in order', async () => {
    const here = place()
    const batches = randomBatches(1, NOW_MS, 8, 200)
    await send(sinkOf(here), batches)
    const counts = await consumeOnce(here)
    await expectStored(here, batches)
    expect(counts.lags().map(([, lag]) => lag)).toEqual([0, 0, 0])

    const sent = batches.flatMap(({ events }) => events)
    const stored = await here.client.query<StoredEvent>(
      `SELECT ${eventColumns()}, kafka_partition FROM ${here.client.database}.sluice_events
         ORDER BY kafka_partition, kafka_offset`,
    )
    const byId = (a: DecisionEvent, b: DecisionEvent) => (a.event_id < b.event_id ? -1 : 1)
    expect(stored.map(readEvent).sort(byId)).toEqual([...sent].sort(byId))
    const clientOf = ({ client_id, api_key, ip }: DecisionEvent) => client_id ?? api_key ?? ip
    const ofClient = (events: readonly DecisionEvent[], client: string | null) =>
      events.filter((event) => clientOf(event) === client).map(({ event_id }) => event_id)
    for (const client of new Set(sent.map(clientOf))) {
      expect(ofClient(stored.map(readEvent), client)).toEqual(ofClient(sent, client))
    }
    expect(new Set(stored.map(({ kafka_partition }) => kafka_partition)).size).toBeGreaterThan(1)
  })

  test('messages that were sent twice are stored once', async () => {
    const here = place()
    const batches = randomBatches(2, NOW_MS, 4)
    await send(sinkOf(here), batches.slice(0, 3))
    await consumeOnce(here)
    await send(sinkOf(here), batches) // a sink that lost all acknowledgements
    const counts = await consumeOnce(here)
    await expectStored(here, batches)
    const repeated = batches.slice(0, 3).flatMap((batch) => Object.values(batch).flat()).length
    expect(counts.skipped('repeated')).toBe(repeated)
  })

  test('a broker that is frozen or killed loses and repeats nothing', async () => {
    const here = place()
    const batches = randomBatches(3, NOW_MS, 60)
    const sink = sinkOf(here)
    await send(sink, batches.slice(0, 1))
    const frozen = send(sink, batches.slice(1, 20), () => kafka.thaw(), 2)
    kafka.freeze()
    expect(await frozen).toBeGreaterThan(0)
    const killed = send(sink, batches.slice(20), () => {}, 21)
    await kafka.kill()
    await kafka.restart()
    await killed
    await consumeOnce(here)
    await expectStored(here, batches)
  })

  test('a consumer that is killed three times stores every row once', async () => {
    const here = place()
    const batches = randomBatches(4, NOW_MS, 40, 500)
    const rows = batches.flatMap(({ events }) => events).length
    await send(sinkOf(here), batches)
    for (const share of [0.1, 0.4, 0.7]) {
      // Another group does not wait for the dead consumer, which may still have an insert under way.
      const consumer = startConsumer(here, '--group', `group-${share}`)
      await vi.waitFor(async () => {
        const stored = await number(here, 'SELECT count() FROM $db.sluice_events').catch(() => 0)
        expect(stored).toBeGreaterThan(rows * share)
      }, POLL)
      await ended(consumer.child, 'SIGKILL')
    }
    const last = startConsumer(here, '--once')
    expect(await once(last.child, 'close')).toEqual([0, null])
    await expectStored(here, batches)
  })

  test('a consumer drops days past their retention, and continues at its position', async () => {
    const here = place()
    const [old, recent] = [randomBatches(5, NOW_MS, 2), randomBatches(6, Math.floor(wallClock.nowUs() / 1000), 2)]
    await send(sinkOf(here), [...old, ...recent])
    await consumeOnce(here)
    await expectStored(here, [...old, ...recent])
    const consumer = startConsumer(here, '--once', '--events-retention', '7d')
    expect(await once(consumer.child, 'close')).toEqual([0, null])
    expect(consumer.output()).toContain('rows past their retention deleted {"table":"sluice_events"')
    await expectStored(here, recent)
  })

  test('an insert that arrives late or twice stores nothing again', async () => {
    const here = place()
    await here.writer.open()
    const other = new ClickHouseWriter(here.client, new ClickHouseSchema(here.client))
    await other.open()
    const source = { topic: 'late', partition: 0 }
    const messages = randomBatches(5, NOW_MS, 1, 300)[0]?.counts ?? []
    const [group] = grouped(
      messages.map((row, offset): ReadMessage => {
        const time = NOW_MS / 1000 - 30 + (offset % 20)
        return { message: { ...row, time, kind: 'counts', producer: 'p', seq: offset } as Message, offset }
      }),
    )
    if (group === undefined) throw new Error('no rows')
    // Both believe that they own the partition. The lock refuses some, and the condition makes the others harmless.
    const attempts = Array.from({ length: 12 }, (_, index) => (index % 2 === 0 ? here.writer : other))
    const results = await Promise.allSettled(attempts.map((writer) => writer.store(source, group, undefined)))
    expect(results.some(({ status }) => status === 'fulfilled')).toBe(true)
    expect(await here.writer.store(source, group, 0)).toBe(0)
    expect(await number(here, 'SELECT count() FROM $db.sluice_counts')).toBe(group.messages.length)
    const sum = group.messages.reduce((total, { message }) => total + (message as { count: number }).count, 0)
    expect(await number(here, 'SELECT sum(count) FROM $db.sluice_counts_minute')).toBe(sum)
    // A crash of ClickHouse between rows and sums is repaired.
    await number(here, 'TRUNCATE TABLE $db.sluice_counts_minute')
    await here.writer.store(source, group, 0)
    await here.writer.store(source, group, 0)
    expect(await number(here, 'SELECT sum(count) FROM $db.sluice_counts_minute')).toBe(sum)
  })

  test('consumers of a group share the partitions, also when one leaves', async () => {
    const here = place()
    const batches = randomBatches(6, NOW_MS, 30, 300)
    const sink = sinkOf(here)
    await send(sink, batches.slice(0, 10))
    const first = startConsumer(here)
    const second = startConsumer(here, '--metrics-port', '0')
    await vi.waitFor(() => {
      for (const { output } of [first, second]) expect(output()).toMatch(/partitions \d(, \d)?\n/)
    }, POLL)
    await send(sink, batches.slice(10, 20), () => {}, 11)
    expect(await ended(first.child, 'SIGTERM')).toBe(0)
    await send(sink, batches.slice(20), () => {}, 21)
    const port = /metrics on port (\d+)/.exec(second.output())?.[1]
    const metrics = async () => (await fetch(`http://127.0.0.1:${port}/metrics`)).text()
    const rows = batches.flatMap(({ events }) => events).length
    await vi.waitFor(async () => {
      expect(await number(here, 'SELECT count() FROM $db.sluice_events')).toBe(rows)
      for (const partition of [0, 1, 2]) {
        expect(await metrics()).toContain(`sluice_events_consumer_lag{partition="${partition}"} 0`)
      }
    }, POLL)
    expect(await metrics()).toMatch(/sluice_events_consumer_rows_total{kind="event"} [1-9]/)
    expect(await ended(second.child, 'SIGTERM')).toBe(0)
    const counts = await consumeOnce(here)
    const all = batches.flatMap((batch) => Object.values(batch).flat())
    expect(counts.rows).toBeLessThan(all.length)
    await expectStored(here, batches)
  })

  test('bad messages are skipped and counted, and do not block', async () => {
    const here = place()
    const [batch] = randomBatches(7, NOW_MS, 1)
    if (batch === undefined) throw new Error('no batch')
    const sink = sinkOf(here)
    await send(sink, [batch])
    const valid = { kind: 'latency', producer: 'x', seq: 1, time: 1, le_us: 5, count: 1 }
    const bad: [reason: 'not_json' | 'unknown_kind' | 'wrong_type', value: string | null][] = [
      ['not_json', null],
      ['not_json', '{"kind":"event"'],
      ['not_json', '[]'],
      ['not_json', '\u0000'],
      ['unknown_kind', '{}'],
      ['unknown_kind', JSON.stringify({ ...valid, kind: '__proto__' })],
      ['wrong_type', JSON.stringify({ ...valid, producer: '' })],
      ['wrong_type', JSON.stringify({ ...valid, seq: -1 })],
      ['wrong_type', JSON.stringify({ ...valid, time: 2 ** 40 })],
      ['wrong_type', JSON.stringify({ ...valid, count: 1.5 })],
      ['wrong_type', JSON.stringify({ ...valid, count: '1); DROP TABLE x' })],
      ['wrong_type', JSON.stringify({ ...valid, le_us: 1e300 })],
      ['wrong_type', JSON.stringify({ ...batch.events[0], kind: 'event', producer: 'x', seq: 2, ip: 7 })],
    ]
    const producer = (await openKafka(here.kafkaAddress)).producer()
    await producer.connect()
    await producer.send({ topic: here.kafkaAddress.topic, messages: bad.map(([, value]) => ({ key: 'k', value })) })
    await producer.disconnect()
    await send(sink, [batch], () => {}, 2)
    const counts = await consumeOnce(here)
    for (const reason of ['not_json', 'unknown_kind', 'wrong_type'] as const) {
      expect(counts.skipped(reason), reason).toBe(bad.filter(([expected]) => expected === reason).length)
    }
    expect(counts.rows).toBe(2 * Object.values(batch).flat().length)
  })

  test('a broker with TLS and passwords; missing permissions and wrong passwords are explained', async () => {
    const here = place()
    const options = `?tls=true&ca=${kafka.caFile}`
    const secure = (password: string) =>
      parseKafkaAddress(`sluice:${password}@${kafka.secureHost}/${here.kafkaAddress.topic}${options}`)
    await expect(connectProducer(secure('secret-word'), SHORT)).rejects.toThrow(/authentication failed/i)
    await expect(connectProducer(secure('secret-word'), SHORT)).rejects.not.toThrow(/secret-word/)
    await expect(connectProducer(secure(kafka.password), SHORT)).rejects.toThrow(
      /the user may not use the topic \(TOPIC_AUTHORIZATION_FAILED\): grant it Describe, and Write/,
    )
    await withAdmin(await openKafka(here.kafkaAddress), (admin) => grantAll(admin, here.kafkaAddress.topic))
    const batches = randomBatches(8, NOW_MS, 2)
    await send(sinkOf({ ...here, kafkaAddress: secure(kafka.password) }), batches)
    await consumeOnce(here)
    await expectStored(here, batches)
  })

  test('rows that are too large for the topic are skipped and counted; all others arrive', async () => {
    const here = place()
    const { topic } = here.kafkaAddress
    const configEntries = [{ name: 'max.message.bytes', value: '20000' }]
    await withAdmin(await openKafka(here.kafkaAddress), (admin) =>
      admin.createTopics({ topics: [{ topic, numPartitions: 3, configEntries }], waitForLeaders: true }),
    )
    const [batch] = randomBatches(10, NOW_MS, 1, 100)
    if (batch === undefined) throw new Error('no batch')
    const large = batch.events.map((event, index) => ({ ...event, node: index % 9 === 8 ? 'x'.repeat(30_000) : 'a' }))
    const kept = large.filter(({ node }) => node === 'a')
    const skipped = await sinkOf(here).write({ producer: 'node-1', seq: 1 }, { ...batch, events: large }, false)
    expect(skipped).toBe(large.length - kept.length)
    await consumeOnce(here)
    await expectStored(here, [{ ...batch, events: kept }])
  })

  test('a missing topic and a topic that was created again are errors', async () => {
    const here = place()
    await expect(consumeOnce(here)).rejects.toThrow(/the topic does not exist/)
    const batches = randomBatches(9, NOW_MS, 2)
    await send(sinkOf(here), batches)
    await consumeOnce(here)
    const { topic } = here.kafkaAddress
    await withAdmin(await openKafka(here.kafkaAddress), async (admin) => {
      await admin.deleteTopics({ topics: [topic] })
      await vi.waitFor(() => admin.createTopics({ topics: [{ topic, numPartitions: 3 }], waitForLeaders: true }), POLL)
    })
    // Brokers learn of the new topic one after the other.
    await vi.waitFor(() => expect(consumeOnce(here)).rejects.toThrow(/deleted and created again/), POLL)
  })

  /** The command in its own process. */
  /** Rows of the tests are older than the default retention. */
  function startConsumer({ address, url }: Place, ...more: readonly string[]) {
    const places = ['--from', `kafka=${address}`, '--to', `clickhouse=${url}`]
    const args = ['events', 'consume', ...places, '--events-retention', '3650d', ...more]
    const child = spawn(process.execPath, [MAIN, ...args], { stdio: ['ignore', 'ignore', 'pipe'] })
    let text = ''
    child.stderr.on('data', (chunk) => {
      text += chunk
    })
    onTestFinished(() => void child.kill('SIGKILL'))
    return { child, output: () => text }
  }
})

async function ended(child: ChildProcess, signal: NodeJS.Signals): Promise<number | null> {
  const exit = once(child, 'exit') as Promise<[number | null]>
  child.kill(signal)
  return (await exit)[0]
}

async function grantAll(admin: Admin, topic: string): Promise<void> {
  const { AclOperationTypes, AclPermissionTypes, AclResourceTypes, ResourcePatternTypes } = await import('kafkajs')
  const user = { principal: 'User:sluice', host: '*', permissionType: AclPermissionTypes.ALLOW }
  const acl = { ...user, operation: AclOperationTypes.ALL, resourcePatternType: ResourcePatternTypes.LITERAL }
  await admin.createAcls({ acl: [{ ...acl, resourceType: AclResourceTypes.TOPIC, resourceName: topic }] })
}

function total({ allowed, refused, near_limit }: { allowed: number; refused: number; near_limit: number }): number {
  return allowed + refused + near_limit
}
