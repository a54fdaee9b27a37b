// Webhook events of rollouts. They are rows first: a node that dies right after a transition loses none, and exactly
// one node with webhooks sends each.

import type { Queries } from '../db/database.ts'
import type { Proposal, ProposedChange } from './proposal.ts'

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
    ...undoneFields(changes),
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

/** Result of a rollback of a direct edit, by rule and field; empty for every other transition. */
export function undoneFields(changes: readonly ProposedChange[]): {
  readonly reverted?: readonly { readonly rule_id: string; readonly field: string }[]
  readonly not_reverted?: readonly { readonly rule_id: string; readonly field: string; readonly why: string }[]
} {
  if (changes.every(({ undone }) => undone === undefined)) return {}
  return {
    reverted: changes.flatMap(({ ruleId, undone }) => {
      return (undone?.reverted ?? []).map((field) => ({ rule_id: ruleId, field }))
    }),
    not_reverted: changes.flatMap(({ ruleId, undone }) => {
      return (undone?.kept ?? []).map(({ field, why }) => ({ rule_id: ruleId, field, why }))
    }),
  }
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
