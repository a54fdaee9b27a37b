// Reads of overrides for nodes: all of them, or those that changed since a revision; and deletion of old rows.

import type { Database, Queries } from '../db/database.ts'
import type { Effect, ExceptionState } from './override.ts'

/** Rows per query, which bounds how long one query blocks the event loop. */
const PAGE_ROWS = 2000
/** Rows per DELETE. */
const DELETE_ROWS = 1000

export type OverrideRow = {
  readonly override_id: string
  readonly revision: number
  readonly state: ExceptionState
  readonly rule_id: string | null
  readonly fact: string
  readonly owner: string
  readonly effect: Effect
  /** Milliseconds since the epoch; null: never. */
  readonly expires_ms: number | null
}

export type OverrideRows = {
  readonly revision: number
  /** Whether `rows` are all active overrides. Otherwise they are the changed ones, removed ones included. */
  readonly complete: boolean
  readonly rows: readonly OverrideRow[]
}

/**
 * `known`: revision that the node has; undefined: none. Needs no transaction, which 100,000 rows would hold for
 * seconds: the revision is read first, so rows that change during the read have a higher one and are read again.
 */
export async function readOverrides(queries: Queries, known: number | undefined): Promise<OverrideRows> {
  const sql = 'SELECT revision, purged FROM override_revision'
  const [row] = await queries.query<{ revision: number; purged: number }>(sql, [])
  const { revision = 0, purged = 0 } = row ?? {}
  // A revision above that of the table: the database was restored from a backup.
  if (known === undefined || known < purged || known > revision)
    return { revision, complete: true, rows: await activeRows(queries) }
  const rows = known === revision ? [] : await changedRows(queries, known)
  return { revision, complete: false, rows }
}

const COLUMNS = `override_id, revision, state, rule_id, fact, owner, effect,
  (1000 * extract(epoch FROM expires_at))::float8 AS expires_ms`

function activeRows(queries: Queries): Promise<OverrideRow[]> {
  return paged((last) =>
    queries.query<OverrideRow>(
      `SELECT ${COLUMNS} FROM overrides
       WHERE override_id > $1 AND state = 'active' AND (expires_at IS NULL OR expires_at > now())
       ORDER BY override_id LIMIT ${PAGE_ROWS}`,
      [last?.override_id ?? ''],
    ),
  )
}

function changedRows(queries: Queries, known: number): Promise<OverrideRow[]> {
  return paged((last) =>
    queries.query<OverrideRow>(
      `SELECT ${COLUMNS} FROM overrides WHERE (revision, override_id) > ($1, $2)
       ORDER BY revision, override_id LIMIT ${PAGE_ROWS}`,
      [last?.revision ?? known, last?.override_id ?? '~'], // "~" follows every id
    ),
  )
}

async function paged(pageAfter: (last: OverrideRow | undefined) => Promise<OverrideRow[]>): Promise<OverrideRow[]> {
  const rows: OverrideRow[] = []
  for (;;) {
    const page = await pageAfter(rows.at(-1))
    for (const row of page) rows.push(row)
    if (page.length < PAGE_ROWS) return rows
  }
}

/** Deletes some of the overrides that expired or were removed before this time; returns their number. */
export function deleteOldOverrides(database: Database, before: Date): Promise<number> {
  return database.transaction(async (queries) => {
    // Locks this row first, as every change of overrides does: no deadlock.
    await queries.query('SELECT 1 FROM override_revision FOR UPDATE', [])
    const rows = await queries.query<{ override_id: string; revision: number; state: ExceptionState }>(
      `DELETE FROM overrides WHERE override_id IN (
         SELECT override_id FROM overrides WHERE expires_at < $1 OR removed_at < $1 LIMIT ${DELETE_ROWS}
       ) RETURNING override_id, revision, state`,
      [before],
    )
    const ids = rows.map(({ override_id }) => override_id)
    if (ids.length === 0) return 0
    await queries.query("DELETE FROM approvals WHERE kind = 'override' AND subject_id = ANY($1::text[])", [ids])
    // Nodes drop expired overrides themselves, but learn of removed ones by their rows.
    const removed = rows.filter(({ state }) => state === 'removed').map(({ revision }) => revision)
    if (removed.length > 0)
      await queries.query('UPDATE override_revision SET purged = greatest(purged, $1)', [Math.max(...removed)])
    return ids.length
  })
}
