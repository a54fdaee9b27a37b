// Append-only audit log: who changed what, when and why. Each row contains a hash of itself and the previous row. An
// entry is written in the transaction of its change, so neither exists without the other.

import { createHash } from 'node:crypto'
import type { Database, Queries } from '../db/database.ts'

export type AuditEntry = {
  readonly actor: string
  /** `rule.create`, `token.revoke`. */
  readonly action: string
  readonly target: string
  /** The change as a JSON value, without secrets. */
  readonly diff: unknown
  readonly reason?: string | undefined
}

type Head = { readonly seq: number; readonly hash: string }
/** The head, and the size of the table at the same moment. */
type HeadAndSize = Head & { readonly rows: number; readonly last: number | null }
type AuditRow = {
  readonly seq: number
  readonly at: Date
  /** Whether `at` has no fraction of a millisecond, as written; the hash covers milliseconds only. */
  readonly whole: boolean
  readonly actor: string
  readonly action: string
  readonly target: string
  readonly diff: string
  readonly reason: string | null
  readonly hash: string
}

/** Rows per query; each may hold the diff of many rules. */
const PAGE_ROWS = 100

/** Locks the head until the transaction ends, which serializes entries of several nodes. */
export async function appendAudit(queries: Queries, entry: AuditEntry, at: Date): Promise<void> {
  const [head] = await queries.query<Head>('SELECT seq, hash FROM audit_head FOR UPDATE', [])
  if (head === undefined) throw new Error('the table audit_head is empty: it was modified by hand')
  const { actor, action, target, reason = null } = entry
  const unsigned = { seq: head.seq + 1, at, actor, action, target, diff: JSON.stringify(entry.diff), reason }
  const hash = hashOf(unsigned, head.hash)
  await queries.query(
    `INSERT INTO audit (seq, at, actor, action, target, diff, reason, hash) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`,
    [unsigned.seq, at.toISOString(), actor, action, target, unsigned.diff, reason, hash],
  )
  await queries.query('UPDATE audit_head SET seq = $1, hash = $2', [unsigned.seq, hash])
}

/** Runs a change outside the database, such as a bucket reset, together with its audit entry. */
export type Audited = <T>(entry: AuditEntry, work: () => T | Promise<T>) => Promise<T>

/** If the entry cannot be written, the work does not run; if the work fails, no entry remains. */
export function auditedIn(database: Database, now: () => Date): Audited {
  return (entry, work) =>
    database.transaction(async (queries) => {
      await appendAudit(queries, entry, now())
      return work()
    })
}

export type AuditVerdict =
  /** `hash` is that of the last row. A copy stored elsewhere reveals a log that was rewritten as a whole. */
  | { readonly intact: true; readonly rows: number; readonly hash: string }
  | { readonly intact: false; readonly rows: number; readonly seq: number; readonly why: string }

/** Checks all rows. Finds any row that was edited, deleted, added or moved by hand, including the last. */
export async function verifyAudit(queries: Queries): Promise<AuditVerdict> {
  const head = await headAndSize(queries)
  let last: Head = { seq: 0, hash: '' }
  for (;;) {
    const page = await pageAfter(queries, last.seq, head.seq)
    for (const row of page) {
      const why = defectOf(row, last)
      if (why !== undefined) return { intact: false, rows: last.seq, seq: row.seq, why }
      last = row
    }
    if (page.length < PAGE_ROWS) break
  }
  const broken = (seq: number, why: string) => ({ intact: false as const, rows: last.seq, seq, why })
  if (last.seq !== head.seq || last.hash !== head.hash)
    return broken(head.seq, `the last row, ${head.seq}, is missing or was edited`)
  if (head.rows === head.seq) return { intact: true, rows: last.seq, hash: last.hash }
  const added = head.last ?? 0
  return broken(added, `${head.seq} rows were written, but the table has ${head.rows}: rows were added by hand`)
}

/** Uses one query, so that nothing is written in between. A missing head counts as an empty log. */
async function headAndSize(queries: Queries): Promise<HeadAndSize> {
  const [extent] = await queries.query<HeadAndSize>(
    `SELECT coalesce(min(head.seq), 0) AS seq, coalesce(min(head.hash), '') AS hash,
       (SELECT count(*) FROM audit) AS rows, (SELECT max(seq) FROM audit) AS last
     FROM audit_head head`,
    [],
  )
  return extent ?? { seq: 0, hash: '', rows: 0, last: null }
}

function defectOf(row: AuditRow, { seq, hash }: Head): string | undefined {
  if (row.seq !== seq + 1) return `row ${seq + 1} is missing`
  return row.whole && row.hash === hashOf(row, hash)
    ? undefined
    : `row ${row.seq} or a row before it was edited or moved`
}

/** Ignores rows written after the head was read. */
function pageAfter(queries: Queries, seq: number, lastSeq: number): Promise<AuditRow[]> {
  const sql = `SELECT seq, at, at = date_trunc('milliseconds', at) AS whole, actor, action, target, diff, reason, hash
    FROM audit WHERE seq > $1 AND seq <= $2 ORDER BY seq LIMIT ${PAGE_ROWS}`
  return queries.query<AuditRow>(sql, [seq, lastSeq])
}

function hashOf(
  { seq, at, actor, action, target, diff, reason }: Omit<AuditRow, 'hash' | 'whole'>,
  previous: string,
): string {
  const text = JSON.stringify([previous, seq, at.toISOString(), actor, action, target, diff, reason])
  return createHash('sha256').update(text).digest('hex')
}
