// The number of approvals that changes need (--approvals), kept in the database for all nodes. A node can raise it at
// its start; it never lowers it, because a node that restarts with an old flag would otherwise end the protection.
// `sluice approvals set` lowers it.

import { appendAudit } from '../audit/audit.ts'
import type { Database, Queries } from '../db/database.ts'
import type { Log } from '../log.ts'
import { admitWrite, approvalsRequired } from '../rules/write-paths.ts'

/** Sets the number. Returns the previous one. */
export function setApprovals(database: Database, required: number, actor: string, at: Date): Promise<number> {
  return database.transaction(async (queries) => {
    await admitWrite(queries, 'approvals.set')
    const before = await lockedApprovals(queries)
    if (before !== required) await writeApprovals(queries, { before, required }, actor, at)
    return before
  })
}

/** Applies the setting of a node at its start: raises the number, or logs that the higher one applies. */
export async function applyApprovals(
  database: Database,
  wanted: number | undefined,
  log: Log,
  at: Date,
): Promise<void> {
  if (wanted === undefined) return
  const required = await database.transaction(async (queries) => {
    const before = await lockedApprovals(queries)
    if (wanted > before) await writeApprovals(queries, { before, required: wanted }, 'sluice', at)
    return Math.max(wanted, before)
  })
  if (required > wanted) log.event('approvals_differ', { wanted, required })
}

async function lockedApprovals(queries: Queries): Promise<number> {
  await queries.query('SELECT 1 FROM approvals_required FOR UPDATE', [])
  return approvalsRequired(queries)
}

async function writeApprovals(
  queries: Queries,
  diff: { readonly before: number; readonly required: number },
  actor: string,
  at: Date,
): Promise<void> {
  await queries.query('UPDATE approvals_required SET required = $1', [diff.required])
  await appendAudit(queries, { actor, action: 'approvals.set', target: 'approvals', diff }, at)
}
