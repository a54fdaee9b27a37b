// Global factor in the database: multiplies every limit until it expires. At most one is active. Each change is one
// transaction with its audit entry and the notification of all nodes.

import type { GlobalFactor } from 'sluice'
import type { Caller } from '../access/roles.ts'
import { type Approvals, approve as addApproval, approvalsRequired } from '../approvals/approval-table.ts'
import { appendAudit } from '../audit/audit.ts'
import { requireUnderstood } from '../compatibility/requirements.ts'
import type { Database, Queries } from '../db/database.ts'
import { newId } from '../exceptions/ids.ts'
import { notPending } from '../exceptions/override-table.ts'
import { ProblemError, problem } from '../problems/problem.ts'

/** Features that nodes need to multiply all limits. */
export const FACTOR_FEATURES: readonly string[] = ['global_factor']

const FACTOR_STATES = ['pending', 'active', 'ended']

export type FactorState = 'pending' | 'active'

export type ListedFactor = {
  readonly factorId: string
  readonly state: FactorState
  readonly factor: number
  readonly reason: string
  readonly actor: string
  readonly actorName: string | null
  readonly createdAt: Date
  readonly expiresAt: Date
  readonly approvals: number
}

export type FactorRequest = Pick<ListedFactor, 'factor' | 'reason' | 'expiresAt'>

/** Changes of the global factor, in the transaction of the caller. */
export async function createFactor(
  queries: Queries,
  { factor, reason, expiresAt }: FactorRequest,
  actor: string,
  at: Date,
): Promise<{ readonly factorId: string; readonly state: FactorState; readonly approvalsRequired: number }> {
  await lock(queries)
  await requireUnderstood(queries, FACTOR_FEATURES)
  const required = factor > 1 ? await approvalsRequired(queries) : 0
  const state = required === 0 ? 'active' : 'pending'
  // Replaces the active factor, or an earlier one that still waits for approval.
  await queries.query("UPDATE global_factors SET state = 'ended' WHERE state = $1", [state])
  const factorId = newId('fac', at)
  await queries.query(
    `INSERT INTO global_factors (factor_id, state, factor, reason, actor, created_at, expires_at)
     VALUES ($1, $2, $3, $4, $5, $6, $7)`,
    [factorId, state, factor, reason, actor, at, expiresAt],
  )
  const diff = { factor, state, expires_at: expiresAt.toISOString() }
  await appendAudit(queries, { actor, action: 'factor.set', target: factorId, diff, reason }, at)
  return { factorId, state, approvalsRequired: required }
}

/** `factorId`: the factor that the caller has read. It may have been replaced by another one since. */
export async function approveFactor(queries: Queries, factorId: string, caller: Caller, at: Date): Promise<Approvals> {
  await lock(queries)
  const [pending] = await queries.query<{ factor_id: string; actor: string; recorded_at: Date }>(
    `SELECT factor_id, actor, recorded_at FROM global_factors
     WHERE state = 'pending' AND expires_at > $1 AND factor_id = $2`,
    [at, factorId],
  )
  if (pending === undefined) throw notPending('global factor', factorId)
  const { factor_id: id, actor: author, recorded_at: createdAt } = pending
  const approvals = await addApproval(queries, { kind: 'factor', id, author, createdAt }, caller)
  if (approvals.enough) {
    await requireUnderstood(queries, FACTOR_FEATURES)
    await queries.query("UPDATE global_factors SET state = 'ended' WHERE state = 'active'", [])
    await queries.query("UPDATE global_factors SET state = 'active' WHERE factor_id = $1", [id])
  }
  const diff = { approvals: approvals.given.length, required: approvals.required }
  await appendAudit(queries, { actor: caller.id, action: 'factor.approve', target: id, diff }, at)
  return approvals
}

/** Ends the active factor and one that waits for approval. Throws if there is neither. */
export async function endFactor(queries: Queries, actor: string, reason: string | undefined, at: Date): Promise<void> {
  await lock(queries)
  const ended = await queries.query<{ factor_id: string; factor: number }>(
    `UPDATE global_factors SET state = 'ended' WHERE state IN ('active', 'pending') AND expires_at > $1
     RETURNING factor_id, factor`,
    [at],
  )
  if (ended.length === 0) throw new ProblemError(problem('FACTOR_UNKNOWN', 'There is no global factor.'))
  for (const { factor_id: id, factor } of ended)
    await appendAudit(queries, { actor, action: 'factor.end', target: id, diff: { factor }, reason }, at)
}

async function lock(queries: Queries): Promise<void> {
  await queries.query('LOCK TABLE global_factors IN SHARE ROW EXCLUSIVE MODE')
}

type FactorRow = {
  readonly factor_id: string
  readonly state: FactorState
  readonly factor: number
  readonly reason: string
  readonly actor: string
  readonly actor_name: string | null
  readonly created_at: Date
  readonly expires_at: Date
  readonly approvals: number
}

/** The active factor and one that waits for approval. */
export async function listFactors(queries: Queries, at: Date): Promise<readonly ListedFactor[]> {
  const rows = await queries.query<FactorRow>(
    `SELECT factor_id, state, factor, reason, actor, name AS actor_name, global_factors.created_at,
       global_factors.expires_at,
       (SELECT count(*) FROM approvals WHERE kind = 'factor' AND subject_id = factor_id) AS approvals
     FROM global_factors LEFT JOIN api_tokens ON id = actor
     WHERE state IN ('active', 'pending') AND global_factors.expires_at > $1 ORDER BY state, factor_id`,
    [at],
  )
  return rows.map((row) => ({
    factorId: row.factor_id,
    state: row.state,
    factor: row.factor,
    reason: row.reason,
    actor: row.actor,
    actorName: row.actor_name,
    createdAt: row.created_at,
    expiresAt: row.expires_at,
    approvals: row.approvals,
  }))
}

/** Factors in a state of a newer version. */
export async function unknownFactors(queries: Queries, at: Date): Promise<string[]> {
  const rows = await queries.query<{ readonly factor_id: string; readonly state: string }>(
    `SELECT factor_id, state FROM global_factors WHERE state <> ALL ($1::text[]) AND expires_at > $2
     ORDER BY factor_id`,
    [FACTOR_STATES, at],
  )
  return rows.map(({ factor_id: id, state }) => `${id}: state ${state}`)
}

/** The factor as the limiter needs it; undefined: limits are unchanged. */
export function factorOf(factors: readonly ListedFactor[]): GlobalFactor | undefined {
  const active = factors.find(({ state }) => state === 'active')
  return active && { factor: active.factor, expiresAtMs: active.expiresAt.getTime() }
}

/** Deletes ended and expired factors; returns 0, because all are deleted at once. */
export async function deleteOldFactors(database: Database, before: Date): Promise<number> {
  await database.query('DELETE FROM global_factors WHERE expires_at < $1', [before])
  return 0
}
