// Real sinks of decision events that can be killed and restarted, and the number of events and decisions they hold.

import { createReadStream, existsSync, mkdirSync, mkdtempSync, renameSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { clickHouseMissing, kafkaMissing, startClickHouse, startKafka, startPostgres } from 'sluice/testing'
import { topicContents } from './topic-contents.ts'

export const SINKS = ['embedded', 'clickhouse', 'kafka', 'jsonl'] as const
export type SinkName = (typeof SINKS)[number]

/** `decisions`: sum of the rollups; undefined if the sink stores none. */
export type Contents = { readonly events: number; readonly decisions: number | undefined }

export type EventSink = {
  readonly name: SinkName
  /** Arguments of the node. */
  readonly args: readonly string[]
  kill(): Promise<void>
  restart(): Promise<void>
  /** Call it when the node has exited: a folder is open in one process. */
  contents(): Promise<Contents>
  stop(): Promise<void>
}

const DATABASE = new URL('../../../packages/server/dist/db/open-database.js', import.meta.url).href
const TOPIC = 'decisions'
const ROTATED_MAX = 5

export function missingSinks(): readonly string[] {
  return [clickHouseMissing(), kafkaMissing()].filter((reason) => reason !== undefined)
}

/** `dataDir`: data folder of the node. The embedded sink can be killed if its database is PostgreSQL. */
export function startSink(name: SinkName, dataDir: string, isKilled: boolean): Promise<EventSink> {
  if (name === 'embedded') return isKilled ? postgresSink() : embeddedSink(dataDir)
  return { clickhouse: clickHouseSink, kafka: kafkaSink, jsonl: jsonlSink }[name]()
}

type Queries = { query(sql: string): Promise<Readonly<Record<string, number>>[]>; close(): Promise<void> }
type OpenDatabase = (settings: { database: string | undefined; dataDir: string }) => Promise<Queries>

async function databaseContents(database: string | undefined, dataDir: string): Promise<Contents> {
  const { openDatabase } = (await import(DATABASE)) as { openDatabase: OpenDatabase }
  const queries = await openDatabase({ database, dataDir })
  try {
    const [row] = await queries.query(
      `SELECT (SELECT count(*) FROM events)::bigint AS events,
         (SELECT coalesce(sum(count), 0) FROM event_counts)::bigint AS decisions`,
    )
    return { events: row?.events ?? Number.NaN, decisions: row?.decisions }
  } finally {
    await queries.close()
  }
}

async function embeddedSink(dataDir: string): Promise<EventSink> {
  const unsupported = () => Promise.reject(new Error('the embedded database is a thread of the node'))
  return {
    ...{ name: 'embedded', args: [], kill: unsupported, restart: unsupported },
    contents: () => databaseContents(undefined, dataDir),
    stop: async () => {},
  }
}

/** Commits are synchronous: a killed PostgreSQL would otherwise lose the newest ones. */
async function postgresSink(): Promise<EventSink> {
  const postgres = await startPostgres(['synchronous_commit=on'])
  const url = postgres.createDatabase()
  return {
    ...{ name: 'embedded', args: ['--database', url], kill: postgres.kill, restart: postgres.up, stop: postgres.stop },
    contents: () => databaseContents(url, ''),
  }
}

async function clickHouseSink(): Promise<EventSink> {
  const { url, kill, restart, stop, query } = await startClickHouse()
  const count = async (what: string, table: string) => Number(await query(`SELECT ${what} FROM sluice.${table}`))
  return {
    ...{ name: 'clickhouse', args: ['--events-sink', `clickhouse=${url}`], kill, restart, stop },
    contents: async () => {
      const perSecond = await count('sum(count)', 'sluice_counts')
      const perMinute = await count('sum(count)', 'sluice_counts_minute')
      const decisions = perSecond === perMinute ? perMinute : Number.NaN
      return { events: await count('count()', 'sluice_events'), decisions }
    },
  }
}

async function kafkaSink(): Promise<EventSink> {
  const { host, kill, restart, stop } = await startKafka()
  return {
    ...{ name: 'kafka', args: ['--events-sink', `kafka=${host}/${TOPIC}`], kill, restart, stop },
    contents: () => topicContents(host, TOPIC),
  }
}

/** A file has no process: its folder disappears, as a file system that is unmounted. */
async function jsonlSink(): Promise<EventSink> {
  const root = mkdtempSync(join(tmpdir(), 'sluice-jsonl-'))
  const [folder, away] = [join(root, 'events'), join(root, 'away')]
  mkdirSync(folder)
  const path = join(folder, 'decisions.jsonl')
  return {
    name: 'jsonl',
    args: ['--events-sink', `jsonl=${path}`],
    kill: async () => renameSync(folder, away),
    restart: async () => renameSync(away, folder),
    contents: async () => {
      const rotated = Array.from({ length: ROTATED_MAX }, (_, index) => `${path}.${index + 1}`)
      let events = 0
      for (const file of [path, ...rotated].filter(existsSync)) events += await countLines(file)
      return { events, decisions: undefined }
    },
    stop: async () => {},
  }
}

async function countLines(path: string): Promise<number> {
  let lines = 0
  for await (const chunk of createReadStream(path) as AsyncIterable<Buffer>) {
    for (let at = chunk.indexOf('\n'); at >= 0; at = chunk.indexOf('\n', at + 1)) lines += 1
  }
  return lines
}
