// Stores events and rollups in the database of the rules. A batch and its marker are one transaction, and the marker is
// written first: a retry waits for an attempt that is still running, and then knows whether it stored the batch. Raw
// events are capped per second, because the database also serves the rules.

import type { Queries, Transactions } from '../../db/database.ts'
import { DatabaseUnavailable } from '../../db/database.ts'
import type { Batch, DecisionEvent } from '../event.ts'
import { minuteOf } from '../merged-rollups.ts'
import { type BatchId, BatchRejected, type Sink } from '../sink.ts'

/** Each write is a transaction, during which a change of the rules waits. */
const EVENTS_MAX = { perBatch: 1000, perWrite: 500 } as const
/** Rows per statement. */
const CHUNK = 250

export function embeddedSink(database: Transactions): Sink {
  return {
    name: 'embedded',
    eventsMax: EVENTS_MAX,
    write: (id, batch) => write(database, id, batch),
    close: async () => {},
  }
}

async function write(database: Transactions, id: BatchId, batch: Batch): Promise<number> {
  const { events } = batch
  let rejected = 0
  try {
    await database.transaction(async (queries) => {
      if (!(await mark(queries, id))) return
      await addRollups(queries, batch)
      for (let from = 0; from < events.length; from += CHUNK) {
        rejected += await insertValid(queries, events.slice(from, from + CHUNK))
      }
    })
  } catch (error) {
    if (error instanceof DatabaseUnavailable) throw error
    throw new BatchRejected(error instanceof Error ? error.message : String(error))
  }
  return rejected
}

/** Splits events that the database rejects, so that only the offending row is dropped. Returns the number of those. */
async function insertValid(queries: Queries, events: readonly DecisionEvent[]): Promise<number> {
  await queries.query('SAVEPOINT events')
  try {
    await insertEvents(queries, events)
    return 0
  } catch (error) {
    if (error instanceof DatabaseUnavailable) throw error
    await queries.query('ROLLBACK TO SAVEPOINT events')
  }
  if (events.length === 1) return 1
  const half = events.length >> 1
  return (await insertValid(queries, events.slice(0, half))) + (await insertValid(queries, events.slice(half)))
}

/** Returns false if the batch is stored already. */
async function mark(queries: Queries, { producer, seq }: BatchId): Promise<boolean> {
  const rows = await queries.query(
    `INSERT INTO event_producers AS old (producer, seq, at) VALUES ($1, $2, now())
     ON CONFLICT (producer) DO UPDATE SET seq = EXCLUDED.seq, at = EXCLUDED.at WHERE old.seq < EXCLUDED.seq
     RETURNING 1`,
    [producer, seq],
  )
  return rows.length > 0
}

async function insertEvents(queries: Queries, events: readonly DecisionEvent[]): Promise<void> {
  if (events.length === 0) return
  const rows = events.map(({ timestamp, ...event }) => ({ ...event, at: new Date(timestamp).toISOString() }))
  const names = EVENT_COLUMNS.map(([name]) => name).join(', ')
  const types = EVENT_COLUMNS.map(([name, type]) => `${name} ${type}`).join(', ')
  await queries.query(
    `INSERT INTO events (${names}) SELECT ${names} FROM jsonb_to_recordset($1::jsonb) AS row (${types}) ORDER BY at`,
    [JSON.stringify(rows)],
  )
}

const EVENT_COLUMNS: readonly (readonly [name: string, type: string])[] = [
  ['event_id', 'uuid'],
  ['at', 'timestamptz'],
  ['operation', 'text'],
  ['store_time_us', 'bigint'],
  ['sequence', 'bigint'],
  ['request_id', 'text'],
  ['client_id', 'text'],
  ['api_key', 'text'],
  ['ip', 'text'],
  ['tenant', 'text'],
  ['plan', 'text'],
  ['method', 'text'],
  ['endpoint', 'text'],
  ['endpoint_pattern', 'text'],
  ['rule_id', 'text'],
  ['limit_name', 'text'],
  ['scope', 'text'],
  ['mode', 'text'],
  ['shadow_refused_by', 'text'],
  ['bucket_key', 'text'],
  ['override_id', 'text'],
  ['bypass_id', 'text'],
  ['signal', 'text'],
  ['allowed', 'boolean'],
  ['current_count', 'double precision'],
  ['limit_count', 'double precision'],
  ['remaining', 'double precision'],
  ['cost', 'double precision'],
  ['request_cost', 'double precision'],
  ['attributes', 'text'],
  ['retry_after_ms', 'double precision'],
  ['version', 'bigint'],
  ['source', 'text'],
  ['region', 'text'],
  ['node', 'text'],
  ['decision_us', 'double precision'],
  ['sample_rate', 'double precision'],
  ['admission_rate', 'double precision'],
  ['sample_position', 'double precision'],
]

type RollupTable = {
  readonly table: string
  readonly rows: (batch: Batch) => readonly Readonly<Record<string, unknown> & { time: number }>[]
  readonly keys: readonly (readonly [column: string, type: string, field?: string])[]
  readonly sums: readonly string[]
}

const ROLLUP_TABLES: readonly RollupTable[] = [
  {
    table: 'event_counts',
    rows: ({ counts }) => counts,
    keys: ['rule', 'endpoint', 'plan', 'tenant', 'result', 'source'].map((name) => [name, 'text'] as const),
    sums: ['count'],
  },
  {
    table: 'event_overview',
    rows: ({ counts }) => counts,
    keys: ['rule', 'endpoint', 'result', 'source'].map((name) => [name, 'text'] as const),
    sums: ['count'],
  },
  {
    table: 'event_limits',
    rows: ({ limits }) => limits,
    keys: [
      ['rule', 'text'],
      ['limit_name', 'text', 'limit'],
      ['mode', 'text'],
    ],
    sums: ['allowed', 'refused', 'near_limit'],
  },
  {
    table: 'event_clients',
    rows: ({ clients }) => clients,
    keys: [
      ['kind', 'text'],
      ['client', 'text'],
    ],
    sums: ['allowed', 'refused', 'near_limit'],
  },
  { table: 'event_latency', rows: ({ latency }) => latency, keys: [['le_us', 'integer']], sums: ['count'] },
]

/** Adds rows to those of their minute. Sorted, so that nodes which write at the same time do not deadlock. */
async function addRollups(queries: Queries, batch: Batch): Promise<void> {
  for (const { table, rows, keys, sums } of ROLLUP_TABLES) {
    const records = rows(batch).map((row) => [
      minuteOf(row.time) / 60,
      ...keys.map(([column, , field = column]) => row[field]),
      ...sums.map((name) => row[name]),
    ])
    if (records.length === 0) continue
    const keyNames = ['minute', ...keys.map(([column]) => column)]
    const columns = [
      'minute integer',
      ...keys.map(([column, type]) => `${column} ${type}`),
      ...sums.map((name) => `${name} bigint`),
    ]
    const names = [...keyNames, ...sums]
    const objects = records.map((record) => Object.fromEntries(names.map((name, index) => [name, record[index]])))
    await queries.query(
      `INSERT INTO ${table} AS old (${names.join(', ')})
       SELECT ${keyNames.join(', ')}, ${sums.map((name) => `sum(${name})`).join(', ')}
       FROM jsonb_to_recordset($1::jsonb) AS row (${columns.join(', ')})
       GROUP BY ${keyNames.join(', ')} ORDER BY ${keyNames.join(', ')}
       ON CONFLICT (${keyNames.join(', ')})
       DO UPDATE SET ${sums.map((name) => `${name} = old.${name} + EXCLUDED.${name}`).join(', ')}`,
      [JSON.stringify(objects)],
    )
  }
}
