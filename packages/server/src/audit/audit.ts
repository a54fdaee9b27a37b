// Who changed what, when and why: rows that are only ever added, each with a hash of itself and of the row before. An
// entry is written in the transaction of the change that it tells of, so that there is never one without the other.

import { createHash } from 'node:crypto'
import type { Database, Queries } from '../db/database.ts'

export type AuditEntry = {
  readonly actor: string
  /** `rule.create`, `token.revoke`: what was done, … */
  readonly action: string
  /** … to what. */
  readonly target: string
  /** What changed, as a value that JSON can hold. Never a secret. */
  readonly diff: unknown
  readonly reason?: string | undefined
}

type Head = { readonly seq: number; readonly hash: string }
/** The head, and what the table holds at the same moment. */
type Extent = Head & { readonly rows: number; readonly last: number | null }
type AuditRow = {
  readonly seq: number
  readonly at: Date
  /** Whether `at` is told to the millisecond, as it was written: the hash knows no more of it. */
  readonly whole: boolean
  readonly actor: string
  readonly action: string
  readonly target: string
  readonly diff: string
  readonly reason: string | null
  readonly hash: string
}

/** Rows that are looked at together: each may hold the diff of many rules. */
const PAGE_ROWS = 100

/** The row of the head stays locked until the transaction ends: entries of several nodes come one after the other. */
export async function appendAudit(queries: Queries, entry: AuditEntry, at: Date): Promise<void> {
  const [head] = await queries.query<Head>('SELECT seq, hash FROM audit_head FOR UPDATE', [])
  if (head === undefined) throw new Error('the table audit_head is empty: somebody emptied it by hand')
  const { actor, action, target, reason = null } = entry
  const unsigned = { seq: head.seq + 1, at, actor, action, target, diff: JSON.stringify(entry.diff), reason }
  const hash = hashOf(unsigned, head.hash)
  await queries.query(
    `INSERT INTO audit (seq, at, actor, action, target, diff, reason, hash) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`,
    [unsigned.seq, at.toISOString(), actor, action, target, unsigned.diff, reason, hash],
  )
  await queries.query('UPDATE audit_head SET seq = $1, hash = $2', [unsigned.seq, hash])
}

/** Does something that the database knows nothing of, such as a reset, together with the entry that tells of it. */
export type Audited = <T>(entry: AuditEntry, work: () => T | Promise<T>) => Promise<T>

/** Nothing is done that cannot be told, and what fails leaves no entry. */
export function auditedIn(database: Database, now: () => Date): Audited {
  return (entry, work) =>
    database.transaction(async (queries) => {
      await appendAudit(queries, entry, now())
      return work()
    })
}

export type AuditVerdict =
  /** `hash` is that of the last row: keep it elsewhere, and a chain that was written anew as a whole is noticed too. */
  | { readonly intact: true; readonly rows: number; readonly hash: string }
  | { readonly intact: false; readonly rows: number; readonly seq: number; readonly why: string }

/** Goes over all rows. Any one that was edited, deleted, added or moved by hand is found, the last one too. */
export async function verifyAudit(queries: Queries): Promise<AuditVerdict> {
  const head = await extentOf(queries)
  let last: Head = { seq: 0, hash: '' }
  for (;;) {
    const page = await pageAfter(queries, last.seq, head.seq)
    for (const row of page) {
      const why = faultOf(row, last)
      if (why !== undefined) return { intact: false, rows: last.seq, seq: row.seq, why }
      last = row
    }
    if (page.length < PAGE_ROWS) break
  }
  const broken = (seq: number, why: string) => ({ intact: false as const, rows: last.seq, seq, why })
  if (last.seq !== head.seq || last.hash !== head.hash)
    return broken(head.seq, `row ${head.seq} was the last one, and is gone or another`)
  if (head.rows === head.seq) return { intact: true, rows: last.seq, hash: last.hash }
  const added = head.last ?? 0
  return broken(added, `${head.seq} rows were written, and there are ${head.rows}: some were added by hand`)
}

/** In one question, so that nothing is written in between. Without its one row, the head is that of an empty audit. */
async function extentOf(queries: Queries): Promise<Extent> {
  const [extent] = await queries.query<Extent>(
    `SELECT coalesce(min(head.seq), 0) AS seq, coalesce(min(head.hash), '') AS hash,
       (SELECT count(*) FROM audit) AS rows, (SELECT max(seq) FROM audit) AS last
     FROM audit_head head`,
    [],
  )
  return extent ?? { seq: 0, hash: '', rows: 0, last: null }
}

function faultOf(row: AuditRow, { seq, hash }: Head): string | undefined {
  if (row.seq !== seq + 1) return `row ${seq + 1} is gone`
  return row.whole && row.hash === hashOf(row, hash)
    ? undefined
    : `row ${row.seq} or a row before it was edited or moved`
}

/** Up to the head as it was read: rows that are written meanwhile are none of its business. */
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
