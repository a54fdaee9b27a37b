// Freeze of an incident: while it lasts, rules do not change, except by a rollback to the predecessor. The kill switch
// still works.

import type { Queries } from '../db/database.ts'
import { ProblemError, problem } from '../problems/problem.ts'

export type Freeze = {
  readonly since: Date
  readonly by: string
  /** Name of the token `by`. */
  readonly byName?: string | null
  readonly reason: string | null
}

type FreezeRow = {
  readonly frozen_since: Date | null
  readonly frozen_by: string | null
  readonly frozen_why: string | null
  readonly name: string | null
}

/** Undefined: rules may change. */
export async function isFrozen(queries: Queries): Promise<Freeze | undefined> {
  const sql = `SELECT frozen_since, frozen_by, frozen_why, name FROM incident LEFT JOIN api_tokens ON id = frozen_by`
  const [row] = await queries.query<FreezeRow>(sql, [])
  if (row === undefined || row.frozen_since === null) return undefined
  return { since: row.frozen_since, by: row.frozen_by ?? '', byName: row.name, reason: row.frozen_why }
}

/** Starts or, with undefined, ends the freeze. The caller writes the audit entry in the same transaction. */
export async function setFreeze(queries: Queries, freeze: Freeze | undefined): Promise<void> {
  await queries.query('UPDATE incident SET frozen_since = $1, frozen_by = $2, frozen_why = $3', [
    freeze?.since ?? null,
    freeze?.by ?? null,
    freeze?.reason ?? null,
  ])
}

/** Throws 409 during a freeze. `about` begins the message. */
export async function requireUnfrozen(queries: Queries, about = ''): Promise<void> {
  const freeze = await isFrozen(queries)
  if (freeze === undefined) return
  const why = freeze.reason === null ? '' : ` (${freeze.reason})`
  const detail =
    `${about}Rule changes have been frozen since ${freeze.since.toISOString()} by ${freeze.by}${why}. ` +
    'A rollback to the predecessor and the kill switch still work.'
  throw new ProblemError(problem('FROZEN', detail))
}
