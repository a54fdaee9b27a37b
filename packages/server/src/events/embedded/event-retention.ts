// Deletes events and rollups past their age, and the oldest events beyond a number. Safe on several nodes: deletes are
// small and skip rows that another node has locked.

import type { Database } from '../../db/database.ts'

/** Admissions are samples; refusals are the violations. */
const ADMISSIONS_MAX = 100_000
const REFUSALS_MAX = 1_000_000
/** Rows per delete: bounds how long others wait. */
const DELETED_ROWS = 5000
const ROLLUPS = ['event_counts', 'event_overview', 'event_limits', 'event_clients', 'event_latency'] as const
/** A producer that has not written for a day will not retry. */
const PRODUCER_MS = 86_400_000

/** Deletes one batch of rows before this time, or beyond the caps. Returns the number of deleted rows. */
export async function deleteOldEvents(database: Database, before: Date): Promise<number> {
  let deleted = await deleteRows(database, 'at < $1', before.toISOString())
  deleted += await deleteBeyond(database, 'allowed', ADMISSIONS_MAX)
  deleted += await deleteBeyond(database, 'NOT allowed', REFUSALS_MAX)
  const minute = Math.floor(before.getTime() / 60_000)
  for (const table of ROLLUPS) {
    const sql = `DELETE FROM ${table} WHERE ctid = ANY (ARRAY(
      SELECT ctid FROM ${table} WHERE minute < $1 LIMIT ${DELETED_ROWS} FOR UPDATE SKIP LOCKED)) RETURNING 1`
    deleted += (await database.query(sql, [minute])).length
  }
  return deleted
}

/** Makes the space of deleted rows usable. One statement each, so that other queries run in between. */
export async function reclaimEvents(database: Database): Promise<void> {
  for (const table of ['events', 'event_producers', ...ROLLUPS]) await database.query(`VACUUM ${table}`)
}

export async function deleteOldProducers(database: Database, nowMs: number): Promise<void> {
  await database.query('DELETE FROM event_producers WHERE at < $1', [new Date(nowMs - PRODUCER_MS).toISOString()])
}

async function deleteBeyond(database: Database, kind: string, max: number): Promise<number> {
  const sql = `SELECT id FROM events WHERE ${kind} ORDER BY id DESC OFFSET ${max} LIMIT 1`
  const [oldest] = await database.query<{ id: number }>(sql, [])
  return oldest === undefined ? 0 : deleteRows(database, `${kind} AND id <= $1`, oldest.id)
}

async function deleteRows(database: Database, condition: string, parameter: unknown): Promise<number> {
  const sql = `DELETE FROM events WHERE id IN (
    SELECT id FROM events WHERE ${condition} LIMIT ${DELETED_ROWS} FOR UPDATE SKIP LOCKED) RETURNING 1`
  return (await database.query(sql, [parameter])).length
}
