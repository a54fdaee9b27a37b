// Tables of ClickHouse, created and migrated at the first use. Nodes may do so at the same time: every statement is
// idempotent, and a node inserts nothing before it has run all of them.
//
// Rows of one second are stored as they arrive; views add them up per minute. ClickHouse first stores the rows and then
// those of the view, so a crash in between can lose the second part. Therefore each block also leaves a marker in the
// table of the minutes: a row with its producer and batch, which proves that the block was added up.

import { type ClickHouse, ClickHouseError } from './client.ts'
import { literal } from './sql-text.ts'

export type EventTable = 'sluice_events'
export type SecondTable = 'sluice_counts' | 'sluice_limits' | 'sluice_clients' | 'sluice_latency'
export type Table = EventTable | SecondTable

type Column = readonly [name: string, type: string]
type Rollup = { readonly keys: readonly Column[]; readonly sums: readonly string[] }

/** Rows as in event.ts, except that `limit` is `limit_name`, because LIMIT is a keyword. */
const ROLLUPS: Readonly<Record<SecondTable, Rollup>> = {
  sluice_counts: {
    keys: [
      ['rule', 'String'],
      ['endpoint', 'String'],
      ['plan', 'String'],
      ['tenant', 'String'],
      ['result', 'String'],
      ['source', 'String'],
    ],
    sums: ['count'],
  },
  sluice_limits: {
    keys: [
      ['rule', 'String'],
      ['limit_name', 'String'],
      ['mode', 'String'],
    ],
    sums: ['allowed', 'refused', 'near_limit'],
  },
  sluice_clients: {
    keys: [
      ['kind', 'String'],
      ['client', 'String'],
    ],
    sums: ['allowed', 'refused', 'near_limit'],
  },
  sluice_latency: { keys: [['le_us', 'Int64']], sums: ['count'] },
}

export const SECOND_TABLES: readonly SecondTable[] = Object.keys(ROLLUPS) as SecondTable[]
export const TABLES: readonly Table[] = ['sluice_events', ...SECOND_TABLES]
const VERSIONS = 'sluice_schema'
export const FINGERPRINTS = 'sluice_key_fingerprint'
/** The events under the name and columns of the design documents (docs/reference/source-documents.md). */
const DOCUMENT_VIEW = 'rate_limit_events'
export const DOCUMENT_COLUMNS: readonly string[] = [
  ...['event_id', 'client_id', 'endpoint', 'rule_id', 'allowed', 'current_count', 'limit_count', 'timestamp'],
  'sample_rate', // not in the document: without it, counts of sampled admissions would be too low
]

/** Columns of the first version. `timestamp` and `allowed` have other types in ClickHouse. */
const FIRST_COLUMNS: readonly Column[] = [
  ['event_id', 'String'],
  ['request_id', 'String'],
  ['client_id', 'Nullable(String)'],
  ['api_key', 'Nullable(String)'],
  ['ip', 'Nullable(String)'],
  ['tenant', 'Nullable(String)'],
  ['plan', 'Nullable(String)'],
  ['method', 'Nullable(String)'],
  ['endpoint', 'Nullable(String)'],
  ['endpoint_pattern', 'String'],
  ['rule_id', 'Nullable(String)'],
  ['limit_name', 'Nullable(String)'],
  ['scope', 'Nullable(String)'],
  ['mode', 'Nullable(String)'],
  ['shadow_refused_by', 'Nullable(String)'],
  ['bucket_key', 'String'],
  ['current_count', 'Nullable(Int64)'],
  ['limit_count', 'Nullable(Int64)'],
  ['remaining', 'Nullable(Int64)'],
  ['cost', 'Int64'],
  ['retry_after_ms', 'Nullable(Int64)'],
  ['version', 'Int64'],
  ['source', 'String'],
  ['region', 'Nullable(String)'],
  ['node', 'String'],
  ['decision_us', 'Int64'],
  ['sample_rate', 'Float64'],
]

/**
 * Columns of the second version, with the values of rows that lack them. Databases of that version exist: a further
 * column goes into a list of its own, with an entry of `migrations`.
 */
const ADDED_COLUMNS: readonly (readonly [name: string, type: string, value: string])[] = [
  ['override_id', 'Nullable(String)', 'NULL'],
  ['bypass_id', 'Nullable(String)', 'NULL'],
  ['signal', 'Nullable(String)', 'NULL'],
  ['operation', 'String', "'check'"],
  ['store_time_us', 'Int64', '0'],
  ['sequence', 'Int64', '0'],
  ['request_cost', 'Nullable(Int64)', 'NULL'],
  ['attributes', 'Nullable(String)', 'NULL'],
  ['admission_rate', 'Float64', '0'],
  ['sample_position', 'Nullable(Float64)', 'NULL'],
]

/** All columns of events that are stored as they are. */
export const EVENT_COLUMNS: readonly Column[] = [
  ...FIRST_COLUMNS,
  ...ADDED_COLUMNS.map(([name, type]): Column => [name, type]),
]

/** The batch that a row came from. */
const ORIGIN: readonly Column[] = [
  ['producer', 'String'],
  ['batch', 'UInt64'],
]
/** Set by the consumer of Kafka. */
const KAFKA: readonly Column[] = [
  ['kafka_partition', 'Int32 DEFAULT -1'],
  ['kafka_offset', 'Int64 DEFAULT -1'],
]
const EVENT_TIME: readonly Column[] = [
  ['day', 'Date'],
  ['timestamp', 'DateTime'],
  ['timestamp_ms', 'Int64'],
  ['allowed', 'UInt8'],
]
const TIME: readonly Column[] = [
  ['day', 'Date'],
  ['time', 'DateTime'],
]

export function minuteTable(table: SecondTable): string {
  return `${table}_minute`
}

export function hasRollup(table: Table): table is SecondTable {
  return table !== 'sluice_events'
}

/** Statements per version. Append only: a released version is never edited. */
function migrations(database: string): readonly (readonly string[])[] {
  return [
    [eventTable(database), ...SECOND_TABLES.flatMap((table) => rollupTables(database, table))],
    ADDED_COLUMNS.map(
      ([name, type, value]) => `ALTER TABLE ${database}.sluice_events ADD COLUMN ${name} ${type} DEFAULT ${value}`,
    ),
    [
      `CREATE TABLE IF NOT EXISTS ${database}.${FINGERPRINTS} (fingerprint String, stored_at DateTime)
         ENGINE = MergeTree PARTITION BY tuple() ORDER BY fingerprint`,
    ],
    [
      `CREATE VIEW IF NOT EXISTS ${database}.${DOCUMENT_VIEW} AS
         SELECT ${DOCUMENT_COLUMNS.join(', ')} FROM ${database}.sluice_events WHERE operation = 'check'`,
    ],
  ]
}

/** Columns that the rows of blocks.ts have. */
export function sentColumns(table: Table): readonly Column[] {
  if (!hasRollup(table)) return [...EVENT_TIME, ...EVENT_COLUMNS, ...ORIGIN]
  const { keys, sums } = ROLLUPS[table]
  return [...TIME, ...keys, ...sums.map((name): Column => [name, 'UInt64']), ...ORIGIN]
}

function eventTable(database: string): string {
  const list = columns([...EVENT_TIME, ...FIRST_COLUMNS, ...ORIGIN, ...KAFKA])
  return `CREATE TABLE IF NOT EXISTS ${database}.sluice_events (${list})
    ENGINE = MergeTree PARTITION BY day ORDER BY (timestamp, ifNull(client_id, ''))`
}

function rollupTables(database: string, table: SecondTable): string[] {
  const { keys, sums } = ROLLUPS[table]
  const second = columns([...sentColumns(table), ...KAFKA])
  const minute = columns([...sentColumns(table), ['markers', 'UInt64']])
  const names = keys.map(([name]) => name).join(', ')
  const target = `${database}.${minuteTable(table)}`
  return [
    `CREATE TABLE IF NOT EXISTS ${database}.${table} (${second})
       ENGINE = MergeTree PARTITION BY day ORDER BY (time, ${names})`,
    `CREATE TABLE IF NOT EXISTS ${target} (${minute})
       ENGINE = SummingMergeTree((${[...sums, 'markers'].join(', ')}))
       PARTITION BY day ORDER BY (producer, batch, time, ${names})`,
    `CREATE MATERIALIZED VIEW IF NOT EXISTS ${target}_view TO ${target}
       AS ${sumPerMinute(table, `${database}.${table}`)}`,
  ]
}

/** Adds up rows per minute. Rows of minutes have no producer; each batch adds one marker, whose counts are all zero. */
function sumPerMinute(table: SecondTable, from: string): string {
  const { keys, sums } = ROLLUPS[table]
  const zero = (type: string) => (type === 'String' ? "''" : 'toInt64(0)')
  const key = ([name, type]: Column) => `if(marker = 1, ${zero(type)}, ${name}) AS ${name}`
  const sum = (name: string) => `sum(if(marker = 1, toUInt64(0), ${name})) AS ${name}`
  return `SELECT day, toDateTime(if(marker = 1, 0, intDiv(toUInt32(time), 60) * 60)) AS time,
      ${keys.map(key).join(', ')}, ${sums.map(sum).join(', ')},
      if(marker = 1, producer, '') AS producer, if(marker = 1, batch, toUInt64(0)) AS batch,
      toUInt64(marker) AS markers
    FROM ${from} ARRAY JOIN [0, 1] AS marker
    GROUP BY day, time, ${keys.map(([name]) => name).join(', ')}, producer, batch, marker`
}

/** Statement that adds up a stored block without a marker. `block` is the condition that selects its rows. */
export function addUpBlock(database: string, table: SecondTable, block: string): string {
  const { keys, sums } = ROLLUPS[table]
  const names = ['day', 'time', ...keys.map(([name]) => name), ...sums, 'producer', 'batch', 'markers']
  const select = sumPerMinute(table, `(SELECT * FROM ${database}.${table} WHERE ${block})`)
  return `INSERT INTO ${database}.${minuteTable(table)} (${names.join(', ')}) ${select}`
}

export function columns(list: readonly Column[]): string {
  return list.map(([name, type]) => `${name} ${type}`).join(', ')
}

/** Codes of errors for which another node that creates the same table is the cause. */
const CREATED_BY_OTHERS: ReadonlySet<number> = new Set([57, 82])
/** The column exists. 18.16 has no ADD COLUMN IF NOT EXISTS. */
const COLUMN_EXISTS: ReadonlySet<number> = new Set([15, 44])
const CREATE_TRIES_MAX = 5

export class ClickHouseSchema {
  readonly #client: ClickHouse
  #ready: Promise<void> | undefined

  constructor(client: ClickHouse) {
    this.#client = client
  }

  /** Resolves when all tables exist. After a failure, the next call tries again. */
  ready(): Promise<void> {
    this.#ready ??= this.#migrate().catch((error: unknown) => {
      this.#ready = undefined
      throw error
    })
    return this.#ready
  }

  /** Makes the next call of `ready` check the tables again: one of them is missing. */
  forget(): void {
    this.#ready = undefined
  }

  async #migrate(): Promise<void> {
    const { database } = this.#client
    const all = migrations(database)
    const existing = await this.#existingTables()
    const hasTable = (table: Table) => existing.has(table) && (!hasRollup(table) || hasMinutes(existing, table))
    const isComplete = TABLES.every(hasTable) && [FINGERPRINTS, DOCUMENT_VIEW].every((name) => existing.has(name))
    const version = existing.has(VERSIONS) ? await this.#version() : 0
    // A newer version of Sluice may have migrated further: migrations only add columns, tables and views.
    if (isComplete && version >= all.length) return
    // An existing database needs no right to create databases.
    const databases = `SELECT name FROM system.databases WHERE name = ${literal(database)}`
    if ((await this.#client.query(databases)).length === 0)
      await this.#create(`CREATE DATABASE IF NOT EXISTS ${database}`)
    await this.#create(
      `CREATE TABLE IF NOT EXISTS ${database}.${VERSIONS} (version UInt32, applied_at DateTime)
         ENGINE = MergeTree PARTITION BY tuple() ORDER BY version`,
    )
    for (const statement of all.flat()) await this.#create(statement)
    if (version < all.length) {
      await this.#client.command(`INSERT INTO ${database}.${VERSIONS} VALUES (${all.length}, now())`)
    }
  }

  async #existingTables(): Promise<Set<string>> {
    const tables = `SELECT name FROM system.tables WHERE database = ${literal(this.#client.database)}`
    return new Set((await this.#client.query<{ name: string }>(tables)).map(({ name }) => name))
  }

  async #version(): Promise<number> {
    const [row] = await this.#client.query<{ version: number }>(
      `SELECT max(version) AS version FROM ${this.#client.database}.${VERSIONS}`,
    )
    return Number(row?.version ?? 0)
  }

  /** 18.16 may refuse to create a table that another node creates at the same moment. */
  async #create(statement: string): Promise<void> {
    for (let tries = 1; ; tries += 1) {
      try {
        return await this.#client.command(statement)
      } catch (error) {
        const code = error instanceof ClickHouseError ? (error.code ?? 0) : 0
        if (statement.startsWith('ALTER') && COLUMN_EXISTS.has(code)) return
        const isRace = CREATED_BY_OTHERS.has(code)
        if (!isRace || tries === CREATE_TRIES_MAX) throw error
      }
    }
  }
}

function hasMinutes(existing: ReadonlySet<string>, table: SecondTable): boolean {
  return existing.has(minuteTable(table)) && existing.has(`${minuteTable(table)}_view`)
}
