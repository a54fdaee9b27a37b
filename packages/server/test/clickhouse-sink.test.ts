// The ClickHouse sink stores each row exactly once, whatever fails between it and the server.

import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { type AddressInfo, connect, createServer } from 'node:net'
import { createLimiter, wallClock } from 'sluice'
import type { ClickHouseProcess } from 'sluice/testing'
import {
  CLICKHOUSE_PASSWORD,
  CLICKHOUSE_USER,
  clickHouseMissing,
  fakeClock,
  startClickHouse,
  startFaultProxy,
} from 'sluice/testing'
import { afterAll, beforeAll, describe, expect, it, onTestFinished, vi } from 'vitest'
import { blocksOf } from '../src/events/clickhouse/blocks.ts'
import { ClickHouseAnalytics } from '../src/events/clickhouse/clickhouse-analytics.ts'
import { ClickHouseSink } from '../src/events/clickhouse/clickhouse-sink.ts'
import { type ClickHouse, ClickHouseClient, type InsertSelect } from '../src/events/clickhouse/client.ts'
import { PartitionRetention } from '../src/events/clickhouse/retention.ts'
import { ClickHouseSchema, SECOND_TABLES } from '../src/events/clickhouse/schema.ts'
import type { Batch } from '../src/events/event.ts'
import { BatchRejected, type Sink } from '../src/events/sink.ts'
import { createLog, type Log } from '../src/log.ts'
import { Metrics } from '../src/metrics/metrics.ts'
import { openEvents } from '../src/service/open-events.ts'
import { readClickHouseUrl } from '../src/settings/clickhouse-url.ts'
import { batchOf, eventRow, expectDocumentView } from './event-rows.ts'
import { randomBatches } from './random-batches.ts'

const NOW_MS = Math.floor(wallClock.nowUs() / 1000)
const EMPTY: Batch = { events: [], counts: [], limits: [], clients: [], latency: [] }
const SUMS = {
  sluice_counts: ['count'],
  sluice_limits: ['allowed', 'refused', 'near_limit'],
  sluice_clients: ['allowed', 'refused', 'near_limit'],
  sluice_latency: ['count'],
} as const

describe.skipIf(clickHouseMissing() !== undefined)('the ClickHouse sink', () => {
  let server: ClickHouseProcess
  let databases = 0
  beforeAll(async () => {
    server = await startClickHouse()
  })
  afterAll(() => server?.stop())

  /** A client of an empty database. */
  function emptyDatabase(port = server.port, writeMs = 30_000): ClickHouseClient {
    databases += 1
    return clientOf(`http://127.0.0.1:${port}/d${databases}`, writeMs)
  }

  function sinkOf(client: ClickHouse): { client: ClickHouse; schema: ClickHouseSchema; sink: ClickHouseSink } {
    const schema = new ClickHouseSchema(client)
    return { client, schema, sink: new ClickHouseSink(client, schema) }
  }

  it('answers the query of docs/guides/exceptions.md: addresses with many users', async () => {
    const page = readFileSync(new URL('../../../docs/guides/exceptions.md', import.meta.url), 'utf8')
    const [, sql = ''] = /```sql\n([^`]+)```/.exec(page) ?? []
    const { client, sink } = sinkOf(emptyDatabase())
    const eventsOf = (ip: string, users: number) =>
      Array.from({ length: users }, (_, user) => eventRow({ timestamp: NOW_MS, ip, client_id: `user ${user}` }))
    const many = eventsOf('192.0.2.9', 51)
    await sink.write(
      { producer: 'p', seq: 1 },
      batchOf({ events: [...many, ...many, ...eventsOf('192.0.2.1', 50)] }),
      false,
    )
    const rows = await client.query<{ ip: string; users: number }>(sql.replace('sluice.', `${client.database}.`))
    expect(rows.map(({ ip, users }) => [ip, Number(users)])).toEqual([['192.0.2.9', 51]])
  })

  it('has the events as rate_limit_events of the design document', async () => {
    const { client, sink } = sinkOf(emptyDatabase())
    await expectDocumentView(client, sink)
  })

  it('stores a batch once if the answer to any insert of it is lost', async () => {
    const proxy = await startFaultProxy(server.port)
    onTestFinished(() => proxy.stop())
    const real = emptyDatabase(proxy.port)
    const batches = randomBatches(1, NOW_MS, 12)
    let inserts = 0
    let cutAt = -1
    const cutting = intercept(real, (operation) => {
      if (operation !== 'query' && inserts++ === cutAt) proxy.cutNextReply(0)
    })
    const { sink, schema } = sinkOf(cutting)
    await schema.ready()
    for (const [seq, batch] of batches.entries()) {
      const id = { producer: 'p', seq }
      inserts = 0
      cutAt = seq % blocksOf(id, batch).length // wall-clock time decides how many days, and so inserts, a batch has
      await writeUntilStored(sink, id, batch)
    }
    expect(proxy.cuts).toBe(batches.length)
    await expectStored(real, batches)
  })

  it('adds up rows that were stored without their sums', async () => {
    const { client, sink, schema } = sinkOf(emptyDatabase())
    const batches = randomBatches(2, NOW_MS, 3)
    await schema.ready()
    for (const table of SECOND_TABLES) await client.command(`DROP TABLE ${client.database}.${table}_minute_view`)
    for (const [seq, batch] of batches.entries()) await sink.write({ producer: 'p', seq }, batch, false)
    schema.forget() // creates the views again
    for (const isFirst of [true, false]) {
      for (const [seq, batch] of batches.entries()) await sink.write({ producer: 'p', seq }, batch, true)
      await expectStored(client, batches)
      if (isFirst) for (const table of SECOND_TABLES) await optimize(client, `${table}_minute`)
    }
  })

  it('stores a batch once although ClickHouse is killed during its inserts', async () => {
    const { client, sink } = sinkOf(emptyDatabase())
    const batches = randomBatches(3, NOW_MS, 12)
    for (const [seq, batch] of batches.entries()) {
      const id = { producer: 'p', seq }
      const written = sink.write(id, batch, false).catch(() => undefined)
      if (seq % 3 !== 1) await written
      if (seq % 3 === 0) continue
      await server.kill()
      await written
      await server.restart()
      await writeUntilStored(sink, id, batch, true)
    }
    await expectStored(client, batches)
  })

  it('stores a batch once although a frozen server runs the insert after the client gave up', async () => {
    const { client, sink } = sinkOf(emptyDatabase(server.port, 500))
    const batches = randomBatches(4, NOW_MS, 6)
    onTestFinished(() => server.thaw())
    for (const [seq, batch] of batches.entries()) {
      if (seq === 0) {
        await writeUntilStored(sink, { producer: 'p', seq }, batch) // later writes only insert
        continue
      }
      server.freeze()
      await expect(sink.write({ producer: 'p', seq }, batch, false)).rejects.toThrow('no answer within 500 ms')
      server.thaw()
      await writeUntilStored(sink, { producer: 'p', seq }, batch, true)
    }
    await expectStored(client, batches)
  })

  it('does not store a batch while an earlier insert of it runs', async () => {
    const { client, sink, schema } = sinkOf(emptyDatabase())
    await schema.ready()
    const batch: Batch = { ...EMPTY, latency: [{ time: 1767225600, le_us: 1, count: 1 }] }
    const id = 'sluice-p-7-sluice_latency-2026-01-01'
    const isRunning = () => client.query(`SELECT 1 FROM system.processes WHERE query_id = '${id}'`)
    const endless = client.command('SELECT count() FROM system.numbers', id).catch(() => undefined)
    while ((await isRunning()).length === 0);
    await expect(sink.write({ producer: 'p', seq: 7 }, batch, true)).rejects.toThrow('already running')
    await client.command(`KILL QUERY WHERE query_id = '${id}' SYNC`)
    await endless
    await sink.write({ producer: 'p', seq: 7 }, batch, true)
    await expectStored(client, [batch])
  })

  it('stores nothing of a request that ends early', async () => {
    const { client, sink } = sinkOf(emptyDatabase())
    const latency = Array.from({ length: 1000 }, (_, le_us) => ({ time: 1767225600, le_us, count: 1 }))
    const batch: Batch = { ...EMPTY, latency }
    await sink.write({ producer: 'p', seq: 0 }, EMPTY, false) // creates the tables
    const whole = await insertRequest(server.port, (port) => {
      const other = sinkOf(clientOf(`http://127.0.0.1:${port}/${client.database}`)).sink
      other.write({ producer: 'p', seq: 1 }, batch, false).catch(() => undefined) // never reaches the server
    })
    for (const length of [whole.lastIndexOf('\n', whole.length >> 1) + 1, whole.length >> 1, whole.length - 60]) {
      const socket = connect(server.port, '127.0.0.1')
      socket.end(whole.subarray(0, length))
      socket.resume()
      await once(socket, 'close')
    }
    await expectStored(client, [])
    await writeUntilStored(sink, { producer: 'p', seq: 1 }, batch, true)
    await expectStored(client, [batch])
  })

  it('is migrated from an empty server by several nodes at once', async () => {
    const first = emptyDatabase()
    const sinks = Array.from({ length: 6 }, () => sinkOf(clientOf(`${server.url}/${first.database}`)))
    const batches = randomBatches(6, NOW_MS, sinks.length)
    await Promise.all(
      sinks.map(({ sink }, index) => sink.write({ producer: `p${index}`, seq: 0 }, batches[index] ?? EMPTY, false)),
    )
    await expectStored(first, batches)
    expect(await first.query(`SELECT DISTINCT version FROM ${first.database}.sluice_schema`)).toEqual([{ version: 4 }])
  })

  it('adds the columns that tables of an earlier version lack', async () => {
    const { client, schema } = sinkOf(emptyDatabase())
    await schema.ready()
    for (const column of ['override_id', 'bypass_id', 'signal'])
      await client.command(`ALTER TABLE ${client.database}.sluice_events DROP COLUMN ${column}`)
    await client.command(`DROP TABLE ${client.database}.sluice_schema`)
    const upgraded = sinkOf(client)
    const [batch = EMPTY] = randomBatches(9, NOW_MS, 1)
    await upgraded.sink.write({ producer: 'p', seq: 1 }, batch, false)
    await expectStored(client, [batch])
  })

  it('tells a node whose key secret differs, without a common database', async () => {
    const url = `${server.url}/${emptyDatabase().database}`
    const isDegraded = async (keySecret: string, query: 'sink' | 'query') => {
      const target =
        query === 'sink' ? { eventsSinks: [{ kind: 'clickhouse', target: url } as const] } : { eventsQuery: url }
      const settings = { eventsSinks: undefined, eventsKeys: undefined, eventsQuery: undefined, ...target }
      const parts = { limiter: createLimiter({ rules: [] }), metrics: new Metrics(), log: createLog('fatal') }
      const events = await openEvents(
        { ...settings, keySecret, dataDir: '', region: undefined, eventsSample: 1, eventsRetentionMs: 0 },
        { ...parts, database: undefined, store: undefined },
      )
      onTestFinished(() => events.close())
      return () => events.degradedReason()?.includes('--key-secret differs') ?? false
    }
    const client = clientOf(url)
    const stored = () => client.query(`SELECT fingerprint FROM ${client.database}.sluice_key_fingerprint`)
    const first = await isDegraded('0123456789abcdef', 'sink')
    await vi.waitFor(async () => expect(await stored()).toHaveLength(1), 10_000)
    const [same, other, reader] = await Promise.all([
      isDegraded('0123456789abcdef', 'query'),
      isDegraded('fedcba9876543210', 'sink'),
      isDegraded('fedcba9876543210', 'query'),
    ])
    await vi.waitFor(() => expect([other(), reader()]).toEqual([true, true]), 10_000)
    expect([first(), same()]).toEqual([false, false])
    expect(await stored()).toHaveLength(1)
  })

  it('creates tables again that were dropped', async () => {
    const { client, sink } = sinkOf(emptyDatabase())
    const [first = EMPTY, second = EMPTY] = randomBatches(7, NOW_MS, 2)
    await sink.write({ producer: 'p', seq: 1 }, first, false)
    await client.command(`DROP DATABASE ${client.database}`)
    await writeUntilStored(sink, { producer: 'p', seq: 2 }, second)
    await expectStored(client, [second])
  })

  it('rejects a batch that ClickHouse cannot read, and only that', async () => {
    const { sink } = sinkOf(emptyDatabase())
    for (const count of ['many', 1.5, {}] as unknown as number[]) {
      const batch = { ...EMPTY, latency: [{ time: 1767225600, le_us: 1, count }] }
      await expect(sink.write({ producer: 'p', seq: 1 }, batch, false)).rejects.toThrow(BatchRejected)
    }
    const unreachable = sinkOf(clientOf('http://127.0.0.1:1'))
    const failure = await unreachable.sink.write({ producer: 'p', seq: 1 }, EMPTY, false).catch((error) => error)
    expect(failure).not.toBeInstanceOf(BatchRejected)
    expect(failure.message).toMatch(/^ClickHouse at http:\/\/127.0.0.1:1 failed: .*ECONNREFUSED/)
  })

  it('brings back NUL and replaces lone surrogates in every text', async () => {
    const { client, schema, sink } = sinkOf(emptyDatabase())
    const [
      {
        events: [event],
      } = EMPTY,
    ] = randomBatches(8, NOW_MS, 1)
    if (event === undefined) throw new Error('no event')
    const texts = Object.entries(event).filter(([name, value]) => typeof value === 'string' && name !== 'event_id')
    const hostile = Object.fromEntries(texts.map(([name]) => [name, `${name} \0 \\0 \ud800 \udc00x`]))
    const changed = { ...event, ...hostile } as typeof event
    await sink.write({ producer: 'p', seq: 1 }, { ...EMPTY, events: [changed] }, false)
    const stored = Object.fromEntries(texts.map(([name]) => [name, `${name} \0 \\0 \ufffd \ufffdx`]))
    const query = { fromMs: 0, toMs: Number.MAX_SAFE_INTEGER, limit: 1 }
    const analytics = new ClickHouseAnalytics(client, schema)
    expect(await analytics.events({ ...query, filter: {} })).toEqual([{ ...event, ...stored }])
    expect(await analytics.events({ ...query, filter: { endpoint: changed.endpoint_pattern } })).toHaveLength(1)
  })

  it('drops days past their retention, and only those', async () => {
    const { client, schema, sink } = sinkOf(emptyDatabase())
    const [today = EMPTY] = randomBatches(9, NOW_MS, 1)
    const daysAgo = (days: number) => shifted(today, days * 86_400)
    for (const days of [0, 3, 8, 400]) await sink.write({ producer: 'p', seq: days }, daysAgo(days), false)
    const [clock, events] = [fakeClock(NOW_MS * 1000), [] as object[]]
    const log: Log = { ...createLog('fatal'), event: (event, fields) => void events.push({ event, ...fields }) }
    const retention = new PartitionRetention({ client, schema, keepDays: 6, log, clock })
    await retention.settled()
    await retention.close()
    await expectStored(client, [daysAgo(0), daysAgo(3)])
    expect(events[0]).toMatchObject({ event: 'retention_applied' })
  })

  it('never shows credentials in an error', async () => {
    const password = 'wr0ng:p@ss/word'
    const url = (name: string, secret: string, port = server.port) =>
      `http://${name}:${encodeURIComponent(secret)}@127.0.0.1:${port}/d`
    const right = clientOf(url(CLICKHOUSE_USER, CLICKHOUSE_PASSWORD))
    expect(await right.query('SELECT 1 AS one')).toEqual([{ one: 1 }])
    const failures = [
      clientOf(url(CLICKHOUSE_USER, password)).query('SELECT 1'),
      clientOf(url(CLICKHOUSE_USER, password, 1)).query('SELECT 1'),
      clientOf(url(CLICKHOUSE_USER, password)).command('CREATE'),
      right.query(`SELECT ${CLICKHOUSE_PASSWORD}`),
    ].map((failure) =>
      failure.then(
        () => undefined,
        (error: Error) => `${error.stack} ${JSON.stringify(error)}`,
      ),
    )
    for (const text of await Promise.all(failures)) {
      expect(text).toContain('ClickHouse at http://127.0.0.1')
      for (const secret of [password, CLICKHOUSE_PASSWORD]) {
        expect(text).not.toContain(secret)
        expect(text).not.toContain(encodeURIComponent(secret))
        expect(text).not.toContain(Buffer.from(`${CLICKHOUSE_USER}:${secret}`).toString('base64'))
      }
    }
  })
})

function clientOf(text: string, writeMs = 30_000): ClickHouseClient {
  const url = readClickHouseUrl(text)
  if (url === undefined) throw new Error(`invalid URL: ${text}`)
  const client = new ClickHouseClient(url, { writeMs, queryMs: 10_000 })
  onTestFinished(() => client.close())
  return client
}

type Operation = 'command' | 'insert' | 'query'

function intercept(client: ClickHouse, before: (operation: Operation) => void): ClickHouse {
  const first =
    <A extends unknown[], R>(operation: Operation, call: (...args: A) => R) =>
    (...args: A) => {
      before(operation)
      return call(...args)
    }
  return {
    database: client.database,
    command: first('command', (sql: string, queryId?: string) => client.command(sql, queryId)),
    insertSelect: first('insert', (insert: InsertSelect) => client.insertSelect(insert)),
    query: <Row>(sql: string) => first('query', () => client.query<Row>(sql))(),
    close: () => client.close(),
  }
}

/** Returns the bytes of the first insert that is sent to a proxy, which forwards everything else. */
async function insertRequest(targetPort: number, send: (port: number) => void): Promise<Buffer> {
  let resolve: (request: Buffer) => void = () => {}
  const promise = new Promise<Buffer>((settle) => {
    resolve = settle
  })
  const proxy = createServer((client) => {
    const target = connect(targetPort, '127.0.0.1')
    let insert: Buffer | undefined
    target.pipe(client)
    client.on('error', () => target.destroy())
    client.on('close', () => target.destroy())
    client.on('data', (chunk) => {
      if (insert === undefined && !chunk.includes('query=INSERT')) return void target.write(chunk)
      insert = Buffer.concat([insert ?? Buffer.alloc(0), chunk])
      const bodyLength = Number(/content-length: (\d+)/i.exec(insert.toString('latin1'))?.[1])
      if (insert.length < insert.indexOf('\r\n\r\n') + 4 + bodyLength) return
      resolve(insert)
      client.destroy()
    })
  }).listen(0, '127.0.0.1')
  onTestFinished(() => void proxy.close())
  await once(proxy, 'listening')
  send((proxy.address() as AddressInfo).port)
  return promise
}

/** As the pipeline does, without its back-off. */
async function writeUntilStored(sink: Sink, id: { producer: string; seq: number }, batch: Batch, retry = false) {
  for (let isRetry = retry; ; isRetry = true) {
    try {
      return await sink.write(id, batch, isRetry)
    } catch (error) {
      if (error instanceof BatchRejected) throw error
    }
  }
}

/** Compares rows and sums with those of the batches. */
async function expectStored(client: ClickHouse, batches: readonly Batch[]): Promise<void> {
  const { database } = client
  const ids = await client.query<{ event_id: string }>(`SELECT event_id FROM ${database}.sluice_events`)
  const given = batches.flatMap(({ events }) => events.map(({ event_id }) => event_id))
  expect(ids.map(({ event_id }) => event_id).sort()).toEqual(given.sort())
  for (const table of SECOND_TABLES) {
    const rows = batches.flatMap((batch) => batch[table.replace('sluice_', '') as 'counts'] as readonly object[])
    const names: readonly string[] = SUMS[table]
    const sums = names.map((name) => `toFloat64(sum(${name})) AS s_${name}`).join(', ')
    const total = (name: string) => rows.reduce((sum, row) => sum + ((row as Record<string, number>)[name] ?? 0), 0)
    const expected = Object.fromEntries(names.map((name) => [`s_${name}`, total(name)]))
    const stored = `SELECT toUInt32(count()) AS n, ${sums} FROM ${database}.${table}`
    expect(await client.query(stored), table).toEqual([{ n: rows.length, ...expected }])
    expect(await client.query(`SELECT ${sums} FROM ${database}.${table}_minute`), table).toEqual([expected])
  }
}

async function optimize(client: ClickHouse, table: string): Promise<void> {
  await client.command(`OPTIMIZE TABLE ${client.database}.${table} FINAL`)
}

/** The batch so many seconds earlier, with other event ids. */
function shifted(batch: Batch, seconds: number): Batch {
  const move = <T extends { readonly time: number }>(rows: readonly T[]) =>
    rows.map((row) => ({ ...row, time: row.time - seconds }))
  return {
    events: batch.events.map((event) => ({
      ...event,
      event_id: `${seconds}-${event.event_id}`,
      timestamp: event.timestamp - seconds * 1000,
    })),
    counts: move(batch.counts),
    limits: move(batch.limits),
    clients: move(batch.clients),
    latency: move(batch.latency),
  }
}
