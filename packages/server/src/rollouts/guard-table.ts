// Figures of the guard in the database: written by every process, read by the evaluator.

import type { Queries } from '../db/database.ts'
import type { PairFigures } from './pair-statistics.ts'
import type { NodeFigures } from './windows.ts'

export type WindowRow = {
  readonly proposal_id: string
  /** Empty: figures of the node. */
  readonly rule_id: string
  /** Start of the window, database time. */
  readonly window_ms: number
  readonly figures: PairFigures | NodeFigures
}

/** Figures of an earlier attempt, that a node writes late, are dropped. */
export type WrittenRow = WindowRow & { readonly attempt: number }

/** Replaces rows of this process: a repeated write changes nothing. */
export async function writeWindows(queries: Queries, node: string, rows: readonly WrittenRow[]): Promise<void> {
  if (rows.length === 0) return
  await queries.query(
    `INSERT INTO guard_windows (proposal_id, rule_id, window_ms, node, figures)
     SELECT row.proposal_id, row.rule_id, row.window_ms, $1, row.figures
     FROM jsonb_to_recordset($2::jsonb)
       AS row (proposal_id text, attempt integer, rule_id text, window_ms bigint, figures jsonb)
     WHERE EXISTS (SELECT 1 FROM proposals
       WHERE id = row.proposal_id AND attempt = row.attempt AND state = 'rolling_out')
     ON CONFLICT (proposal_id, rule_id, window_ms, node)
       DO UPDATE SET figures = excluded.figures, changed_at = clock_timestamp()`,
    [node, JSON.stringify(rows)],
  )
}

/** Rows of windows since `sinceMs`. With `changedMs`, only windows of which a row was written since, database time. */
export function readWindows(
  queries: Queries,
  proposalId: string,
  sinceMs: number,
  changedMs?: number,
): Promise<WindowRow[]> {
  const changed =
    changedMs === undefined
      ? ''
      : `AND (rule_id, window_ms) IN (
           SELECT rule_id, window_ms FROM guard_windows
           WHERE proposal_id = $1 AND changed_at >= to_timestamp($3::float8 / 1000))`
  return queries.query<WindowRow>(
    `SELECT proposal_id, rule_id, window_ms, figures FROM guard_windows
     WHERE proposal_id = $1 AND window_ms >= $2 ${changed} ORDER BY window_ms`,
    [proposalId, Math.floor(sinceMs), ...(changedMs === undefined ? [] : [changedMs])],
  )
}

/** A retry is judged by its own figures. */
export async function deleteWindows(queries: Queries, proposalId: string): Promise<void> {
  await queries.query('DELETE FROM guard_windows WHERE proposal_id = $1', [proposalId])
}

/** Time for which ended proposals are shown; the audit log keeps their history. */
const ENDED_KEPT = "interval '90 days'"
/** A direct edit creates a proposal each time. */
const EDITS_KEPT = "interval '7 days'"
/** Bounds the events while no node has webhooks. */
const EVENTS_KEPT = "interval '1 hour'"

/** Deletes figures of ended rollouts, old proposals, and webhook events that no node takes. */
export async function deleteOldRows(queries: Queries, beforeMs: number): Promise<void> {
  await queries.query(
    `DELETE FROM guard_windows WHERE window_ms < $1
       OR NOT EXISTS (SELECT 1 FROM proposals WHERE id = proposal_id AND state = 'rolling_out')`,
    [Math.floor(beforeMs)],
  )
  await queries.query(
    `DELETE FROM proposals
       WHERE ended_at < now() - ${ENDED_KEPT} OR (kind = 'edit' AND ended_at < now() - ${EDITS_KEPT});
     DELETE FROM approvals WHERE kind = 'proposal' AND NOT EXISTS (SELECT 1 FROM proposals WHERE id = subject_id);
     DELETE FROM rollout_events WHERE at < now() - ${EVENTS_KEPT}`,
  )
}

/**
 * Takes or renews the leader lock. Returns true while this process is the leader. Another process takes over when the
 * lock has expired. Two leaders at once would be harmless: every transition checks the revision under a lock.
 */
export async function acquireLeaderLock(queries: Queries, holder: string, lockMs: number): Promise<boolean> {
  const rows = await queries.query(
    `UPDATE guard_evaluator SET holder = $1, until = clock_timestamp() + $2 * interval '1 ms'
     WHERE holder = $1 OR until < clock_timestamp() RETURNING 1 AS held`,
    [holder, lockMs],
  )
  return rows.length > 0
}

export async function releaseLeaderLock(queries: Queries, holder: string): Promise<void> {
  await queries.query('UPDATE guard_evaluator SET until = to_timestamp(0) WHERE holder = $1', [holder])
}
