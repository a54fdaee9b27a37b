// Deletes events and rollups past their age, and the oldest ones beyond a number of rows. Safe on several nodes:
// deletes are small and skip rows that another node has locked.

import type { Queries } from '../../db/database.ts'

/** Admissions are samples; refusals are the violations. */
const ADMISSIONS_MAX = 100_000
const REFUSALS_MAX = 1_000_000
/** Rows per table, about 1 GB with their index. */
const ROLLUP_ROWS_MAX = 5_000_000
/** A page of 8 kB has fewer rows. */
const PAGE_ROWS_MAX = 200
/** Pages that are counted: exact up to 8 MB, within some percent beyond. Counting millions of rows takes seconds. */
const COUNTED_PAGES = 1000
/** Rows per delete: bounds how long others wait. */
const DELETED_ROWS = 5000
const ROLLUPS = ['event_counts', 'event_overview', 'event_limits', 'event_clients', 'event_latency'] as const
/** A producer that has not written for a day will not retry. */
const PRODUCER_MS = 86_400_000

/** Deletes one batch of rows before this time, or beyond the caps. Returns the number of deleted rows. */
export async function deleteOldEvents(
  database: Queries,
  before: Date,
  rollupRowsMax: number = ROLLUP_ROWS_MAX,
): Promise<number> {
  let deleted = await deleteRows(database, 'at < $1', before.toISOString())
  deleted += await deleteBeyond(database, 'allowed', ADMISSIONS_MAX)
  deleted += await deleteBeyond(database, 'NOT allowed', REFUSALS_MAX)
  const minute = Math.floor(before.getTime() / 60_000)
  for (const table of ROLLUPS) {
    const sql = `DELETE FROM ${table} WHERE ctid = ANY (ARRAY(
      SELECT ctid FROM ${table} WHERE minute < $1 LIMIT ${DELETED_ROWS} FOR UPDATE SKIP LOCKED)) RETURNING 1`
    deleted += (await database.query(sql, [minute])).length
    deleted += await deleteMinutesBeyond(database, table, rollupRowsMax)
  }
  return deleted
}

/** Makes the space of deleted rows usable. One statement each, so that other queries run in between. */
export async function reclaimEvents(database: Queries): Promise<void> {
  for (const table of ['events', 'event_producers', ...ROLLUPS]) await database.query(`VACUUM ${table}`)
}

export async function deleteOldProducers(database: Queries, nowMs: number): Promise<void> {
  await database.query('DELETE FROM event_producers WHERE at < $1', [new Date(nowMs - PRODUCER_MS).toISOString()])
}

async function deleteBeyond(database: Queries, kind: string, max: number): Promise<number> {
  const sql = `SELECT id FROM events WHERE ${kind} ORDER BY id DESC OFFSET ${max} LIMIT 1`
  const [oldest] = await database.query<{ id: number }>(sql, [])
  return oldest === undefined ? 0 : deleteRows(database, `${kind} AND id <= $1`, oldest.id)
}

async function deleteRows(database: Queries, condition: string, parameter: unknown): Promise<number> {
  const sql = `DELETE FROM events WHERE id IN (
    SELECT id FROM events WHERE ${condition} LIMIT ${DELETED_ROWS} FOR UPDATE SKIP LOCKED) RETURNING 1`
  return (await database.query(sql, [parameter])).length
}

/** Deletes the oldest minutes of a rollup, whole minutes only: the rest of one would be a wrong total. */
async function deleteMinutesBeyond(database: Queries, table: string, max: number): Promise<number> {
  const beyond = Math.min(DELETED_ROWS, (await rowsOf(database, table, max)) - max)
  if (beyond <= 0) return 0
  const sql = `DELETE FROM ${table} WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM ${table}
    WHERE minute <= (SELECT minute FROM ${table} ORDER BY minute OFFSET $1 LIMIT 1)
    FOR UPDATE SKIP LOCKED)) RETURNING 1`
  return (await database.query(sql, [beyond - 1])).length
}

/** Number of rows, from a sample of the pages; 0 if the table is too small for `max` rows. */
async function rowsOf(database: Queries, table: string, max: number): Promise<number> {
  const size = `SELECT pg_relation_size('${table}') / current_setting('block_size')::int AS pages`
  const pages = (await database.query<{ pages: number }>(size, []))[0]?.pages ?? 0
  if (pages * PAGE_ROWS_MAX <= max) return 0
  const percent = Math.min(100, (COUNTED_PAGES / pages) * 100)
  const sample = `SELECT count(*) AS rows FROM ${table} TABLESAMPLE SYSTEM (${percent})`
  const rows = (await database.query<{ rows: number }>(sample, []))[0]?.rows ?? 0
  return Math.round((rows * 100) / percent)
}
