// A node with all four sinks at once, on real servers: hostile values reach each sink unchanged, and hashed keys appear
// nowhere in plain text.

import { readdirSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import type { ClickHouseProcess, KafkaProcess } from 'sluice/testing'
import { describe, expect, test, vi } from 'vitest'
import { openDatabase } from '../src/db/open-database.ts'
import { SECOND_TABLES, TABLES } from '../src/events/clickhouse/schema.ts'
import type { DecisionEvent } from '../src/events/event.ts'
import { openKafka } from '../src/events/kafka/kafka-client.ts'
import { parseKafkaAddress } from '../src/settings/kafka-address.ts'
import type { Settings } from '../src/settings/settings.ts'
import { emptyDataDir, temporaryFolder } from './databases.ts'
import { HOSTILE } from './random-batches.ts'
import { ADMIN_TOKEN, CHECK, type Client, RULE_SET, serveSettings } from './service.ts'

const PATIENTLY = { timeout: 30_000, interval: 100 }
const SINK_NAMES = ['embedded', 'clickhouse', 'kafka', 'jsonl']
/** Syntax of a sample of Prometheus, with quotes, backslashes and line breaks escaped in label values. */
const SAMPLE = /^[a-z_]\w*(\{[a-z_]\w*="([^"\\\n]|\\[\\"n])*"(,[a-z_]\w*="([^"\\\n]|\\[\\"n])*")*\})? [-+\dINa.ef]+$/i

/** A suite that shares the servers of the tests of Kafka: a broker takes ten seconds to start. */
export function describeAllSinks(servers: () => { kafka: KafkaProcess; clickhouse: ClickHouseProcess }): void {
  describe('all sinks at once', () => suite(servers))
}

function suite(servers: () => { kafka: KafkaProcess; clickhouse: ClickHouseProcess }): void {
  type Started = { readonly node: Client; readonly dataDir: string; readonly jsonl: string; close(): Promise<void> }

  /** `name` is that of the topic and of the database in ClickHouse. */
  async function start(name: string, keys: 'clear' | 'hmac', rules: readonly object[]): Promise<Started> {
    const [dataDir, jsonl] = [await emptyDataDir(), join(temporaryFolder(), 'decisions.jsonl')]
    const settings: Partial<Settings> = {
      ...{ dataDir, eventsSample: 1, logLevel: 'debug' },
      eventsKeys: { embedded: keys, clickhouse: keys, kafka: keys, jsonl: keys },
      eventsSinks: [
        { kind: 'clickhouse', target: `${servers().clickhouse.url}/${name}` },
        { kind: 'kafka', target: `${servers().kafka.host}/${name}` },
        { kind: 'jsonl', target: jsonl },
      ],
    }
    const node = await serveSettings(settings)
    const headers = { 'content-type': 'application/json', authorization: `Bearer ${ADMIN_TOKEN}` }
    const body = JSON.stringify({ rules })
    expect(await node.send(RULE_SET, { method: 'PUT', headers, body })).toMatchObject({ status: 200 })
    return { node, dataDir, jsonl, close: node.close }
  }

  async function allStored(node: Client, events: number): Promise<string> {
    let text = ''
    await vi.waitFor(async () => {
      text = String((await node.get('/metrics')).body.text)
      for (const sink of SINK_NAMES) expect(text).toContain(`sluice_events_stored_total{sink="${sink}"} ${events}\n`)
    }, PATIENTLY)
    return text
  }

  /** Sends a request with this text in each field that takes any text; returns how many were decided. */
  async function checkHostile(node: Client, text: string): Promise<number> {
    const valid = { client_id: 'ann', endpoint: '/login', method: 'POST' }
    let decided = 0
    for (const field of ['client_id', 'api_key', 'tenant', 'plan', 'method', 'endpoint', 'ip_address']) {
      const value = field === 'endpoint' ? `/login/${text}` : text
      const { status, body } = await node.post(CHECK, { ...valid, [field]: value })
      expect([200, 400], JSON.stringify(body)).toContain(status)
      if (status === 200) decided += 1
    }
    return decided
  }

  test('store hostile values unchanged, and metrics and log stay well-formed', async () => {
    const rules = [{ rule_id: 'login', endpoint_pattern: '/login/**', scope: 'per_user', limit: 3, window: '1d' }]
    const { node, dataDir, jsonl, close } = await start('hostile', 'clear', rules)
    let decided = 0
    for (const text of HOSTILE) decided += await checkHostile(node, text)
    expect(decided).toBeGreaterThan(HOSTILE.length * 3)
    const metrics = (await allStored(node, decided)).split('\n').filter((line) => line !== '' && !line.startsWith('#'))
    expect(metrics.filter((line) => !SAMPLE.test(line))).toEqual([])
    expect(node.logged.every(({ service }) => service === 'sluice')).toBe(true) // each line was parsed as JSON
    await close()
    const expected = textsOf(await embeddedEvents(dataDir))
    expect(expected).toHaveLength(decided)
    expect(expected.some((texts) => texts.includes(HOSTILE[0] as string))).toBe(true)
    expect(textsOf(await clickhouseEvents('hostile'))).toEqual(expected)
    expect(textsOf(await kafkaEvents('hostile', decided))).toEqual(expected)
    const documents = readFileSync(jsonl, 'utf8')
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line))
    expect(documents.map(({ event }) => event.id).sort()).toEqual(expected.map(([id]) => id))
  })

  test('with hashed keys hold no user, key, address, tenant or path, in any file or log line', async () => {
    const rules = [{ rule_id: 'paths', endpoint_pattern: '/paths/:id', scope: 'per_user', limit: 1, window: '1d' }]
    const { node, dataDir, jsonl, close } = await start('hashed', 'hmac', rules)
    const secrets = {
      ...{ client_id: 'secret-user', api_key: 'secret-key', tenant: 'secret-tenant' },
      ...{ ip_address: '198.51.100.77', endpoint: '/paths/secret-path' },
    }
    for (const fields of [secrets, { ...secrets, client_id: undefined }, secrets, { ...secrets, api_key: undefined }]) {
      expect(await node.post(CHECK, { ...fields, plan: 'visible-plan' })).toMatchObject({ status: 200 })
    }
    const metrics = await allStored(node, 4)
    expect(JSON.stringify(node.logged) + metrics).not.toMatch(/secret-|198\.51/)
    await close()
    const rows = [...TABLES, ...SECOND_TABLES.map((table) => `${table}_minute`)]
    const dump = await Promise.all(
      rows.map((table) => servers().clickhouse.query(`SELECT * FROM hashed.${table} FORMAT TSV`)),
    )
    expect(dump.join()).toContain('visible-plan')
    expect(dump.join()).not.toMatch(/secret-|198\.51/)
    for (const folder of [dataDir, servers().clickhouse.folder, servers().kafka.folder, join(jsonl, '..')]) {
      const files = filesIn(folder).map((path) => readFileSync(path, 'latin1'))
      expect(
        files.some((bytes) => bytes.includes('visible-plan')),
        `the search works in ${folder}`,
      ).toBe(true)
      for (const text of [...Object.values(secrets).map((value) => value.replace('/paths/', '')), 'secret-']) {
        expect(
          files.some((bytes) => bytes.includes(text)),
          `${text} in ${folder}`,
        ).toBe(false)
      }
    }
  })

  async function embeddedEvents(dataDir: string): Promise<DecisionEvent[]> {
    const database = await openDatabase({ database: undefined, dataDir })
    try {
      return await database.query<DecisionEvent>('SELECT * FROM events', [])
    } finally {
      await database.close()
    }
  }

  async function clickhouseEvents(database: string): Promise<DecisionEvent[]> {
    const lines = await servers().clickhouse.query(`SELECT * FROM ${database}.sluice_events FORMAT JSONEachRow`)
    return lines.split('\n').map((line) => JSON.parse(line) as DecisionEvent)
  }

  async function kafkaEvents(topic: string, events: number): Promise<DecisionEvent[]> {
    const opened = await openKafka(parseKafkaAddress(`${servers().kafka.host}/${topic}`))
    const consumer = opened.consumer({ groupId: topic })
    const found: DecisionEvent[] = []
    await consumer.connect()
    await consumer.subscribe({ topic, fromBeginning: true })
    await consumer.run({
      eachMessage: async ({ message }) => {
        const row = JSON.parse(String(message.value)) as DecisionEvent & { kind: string }
        if (row.kind === 'event') found.push(row)
      },
    })
    await vi.waitFor(() => expect(found.length).toBeGreaterThanOrEqual(events), PATIENTLY)
    await consumer.disconnect()
    return found
  }
}

/** The id and all texts of each event that a request can choose, sorted by id. */
function textsOf(events: readonly DecisionEvent[]): (string | null)[][] {
  return events
    .map(({ event_id, client_id, api_key, ip, tenant, plan, method, endpoint, bucket_key }) => {
      return [event_id, client_id, api_key, ip, tenant, plan, method, endpoint, bucket_key]
    })
    .sort(([a], [b]) => String(a).localeCompare(String(b)))
}

function filesIn(folder: string): string[] {
  return readdirSync(folder).flatMap((name) => {
    const path = join(folder, name)
    return statSync(path).isDirectory() ? filesIn(path) : [path]
  })
}
