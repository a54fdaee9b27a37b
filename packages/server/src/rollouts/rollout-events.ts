// Webhook events of rollouts. They are rows first: a node that dies right after a transition loses none, and exactly
// one node with webhooks sends each.

import type { Queries } from '../db/database.ts'
import type { Proposal } from './proposal.ts'

export const ROLLOUT_EVENTS = [
  'rollout.started',
  'rollout.paused',
  'rollout.rolled_back',
  'rollout.done',
  'rollout.alert',
] as const

export type RolloutEventType = (typeof ROLLOUT_EVENTS)[number]

export type RolloutEvent = { readonly type: RolloutEventType; readonly data: Readonly<Record<string, unknown>> }

/** Bounds the events while no node has webhooks. */
const KEPT = "interval '1 hour'"
const BATCH = 100

export async function emitEvent(
  queries: Queries,
  type: RolloutEventType,
  { id, kind, state, changes, sentence, reason, author, verdict }: Proposal,
  at: Date,
): Promise<void> {
  const data = {
    proposal_id: id,
    kind,
    state: state.name,
    rules: changes.map(({ ruleId }) => ruleId),
    author,
    reason,
    sentence,
    figures: verdict?.rules ?? [],
  }
  await queries.query('INSERT INTO rollout_events (type, data, at) VALUES ($1, $2, $3)', [
    type,
    JSON.stringify(data),
    at,
  ])
}

/** Takes the events for sending: at most once, by one node. */
export async function takeEvents(queries: Queries): Promise<RolloutEvent[]> {
  const rows = await queries.query<RolloutEvent & { readonly id: number; readonly fresh: boolean }>(
    `DELETE FROM rollout_events
     WHERE id IN (SELECT id FROM rollout_events ORDER BY id LIMIT ${BATCH} FOR UPDATE SKIP LOCKED)
     RETURNING id, type, data, at > clock_timestamp() - ${KEPT} AS fresh`,
    [],
  )
  return rows.sort((one, other) => one.id - other.id).flatMap(({ type, data, fresh }) => (fresh ? { type, data } : []))
}
