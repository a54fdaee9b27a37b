// Proposals as rows. Readers see whole rows; writers hold the lock of the rules.

import { randomBytes } from 'node:crypto'
import type { Queries } from '../db/database.ts'
import type { Guard } from './guard-settings.ts'
import type { Proposal, ProposedChange, StoredVerdict } from './proposal.ts'
import type { Kind, State, StateName } from './state.ts'
import type { Step } from './step.ts'

export const ROLLOUTS_CHANNEL = 'sluice_rollouts'

type ProposalRow = {
  readonly id: string
  readonly kind: Kind
  readonly state: StateName
  readonly author: string
  readonly author_name: string | null
  readonly reason: string | null
  readonly base_version: number
  readonly changes: readonly ProposedChange[]
  readonly steps: readonly Step[]
  readonly guard: Guard
  readonly step: number
  readonly step_at: Date | null
  readonly paused_at: Date | null
  readonly paused_why: string | null
  readonly attempt: number
  readonly salt: string
  readonly pair_shares: Readonly<Record<string, number>>
  readonly verdict: StoredVerdict | null
  readonly sentence: string
  readonly done_version: number | null
  readonly created_at: Date
  readonly updated_at: Date
  readonly started_at: Date | null
  readonly ended_at: Date | null
  readonly revision: number
}

const SELECT = 'SELECT proposals.*, name AS author_name FROM proposals LEFT JOIN api_tokens ON api_tokens.id = author'

export async function readProposal(queries: Queries, id: string): Promise<Proposal | undefined> {
  const [row] = await queries.query<ProposalRow>(`${SELECT} WHERE proposals.id = $1`, [id])
  return row && proposalOf(row)
}

export type ProposalQuery = {
  readonly state?: StateName | undefined
  /** Id of the last proposal of the previous page. */
  readonly after?: string | undefined
  readonly limit: number
}

/** Newest first. */
export async function listProposals(queries: Queries, { state, after, limit }: ProposalQuery): Promise<Proposal[]> {
  const rows = await queries.query<ProposalRow>(
    `${SELECT} WHERE ($1::text IS NULL OR state = $1) AND ($2::text IS NULL OR (proposals.created_at, proposals.id) <
       (SELECT created_at, id FROM proposals WHERE id = $2))
     ORDER BY proposals.created_at DESC, proposals.id DESC LIMIT $3`,
    [state ?? null, after ?? null, limit],
  )
  return rows.map(proposalOf)
}

export async function activeProposals(queries: Queries): Promise<Proposal[]> {
  return (await queries.query<ProposalRow>(`${SELECT} WHERE state = 'rolling_out' ORDER BY proposals.id`, [])).map(
    proposalOf,
  )
}

/** Changes whenever a rollout begins, moves or ends. */
export const ACTIVE_PRINT = `(SELECT coalesce(string_agg(id || ' ' || revision, ',' ORDER BY id), '')
  FROM proposals WHERE state = 'rolling_out')`

function proposalOf(row: ProposalRow): Proposal {
  const { state, step, paused_at: pausedAt, paused_why: why } = row
  return {
    id: row.id,
    kind: row.kind,
    state: stateOf(state, step, pausedAt === null ? undefined : (why ?? '')),
    author: row.author,
    authorName: row.author_name,
    reason: row.reason,
    baseVersion: row.base_version,
    changes: row.changes,
    steps: row.steps.map((one) => ({ ...one, forMs: one.forMs ?? undefined, maxMs: one.maxMs ?? undefined })),
    guard: row.guard,
    stepAt: row.step_at,
    pausedAt,
    attempt: row.attempt,
    salt: row.salt,
    pairShares: row.pair_shares,
    verdict: row.verdict,
    sentence: row.sentence,
    doneVersion: row.done_version,
    createdAt: row.created_at,
    updatedAt: row.updated_at,
    startedAt: row.started_at,
    endedAt: row.ended_at,
    revision: row.revision,
  }
}

function stateOf(name: StateName, step: number, paused: string | undefined): State {
  return name === 'rolling_out' ? { name, step, paused } : { name }
}

export type NewProposal = Pick<
  Proposal,
  'kind' | 'state' | 'author' | 'reason' | 'baseVersion' | 'changes' | 'steps' | 'guard' | 'sentence'
> & { readonly at: Date }

export async function insertProposal(queries: Queries, made: NewProposal): Promise<Proposal> {
  const id = `prop_${randomBytes(8).toString('hex')}`
  const starts = made.state.name === 'rolling_out' ? made.at : null
  await queries.query(
    `INSERT INTO proposals (id, kind, state, author, reason, base_version, changes, steps, guard, salt,
       sentence, created_at, updated_at, started_at, step_at, revision)
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $12, $13, $13, nextval('proposal_revisions'))`,
    [
      ...[id, made.kind, made.state.name, made.author, made.reason, made.baseVersion],
      ...[made.changes, made.steps, made.guard].map((value) => JSON.stringify(value)),
      ...[randomBytes(16).toString('hex'), made.sentence, made.at, starts],
    ],
  )
  const inserted = await readProposal(queries, id)
  if (inserted === undefined) throw new Error(`proposal ${id} was not written`)
  return inserted
}

/** Writes everything that a transition may change, with a new revision. */
export async function saveProposal(queries: Queries, proposal: Proposal): Promise<void> {
  const { state } = proposal
  const [step, paused] = state.name === 'rolling_out' ? [state.step, state.paused] : [0, undefined]
  await queries.query(
    `UPDATE proposals SET state = $2, step = $3, paused_why = $4, paused_at = $5, step_at = $6, attempt = $7,
       verdict = $8, sentence = $9, done_version = $10, updated_at = $11, started_at = $12, ended_at = $13,
       base_version = $14, changes = $15, pair_shares = $16, revision = nextval('proposal_revisions')
     WHERE id = $1`,
    [
      ...[proposal.id, state.name, step, paused ?? null, proposal.pausedAt, proposal.stepAt, proposal.attempt],
      ...[proposal.verdict && JSON.stringify(proposal.verdict), proposal.sentence, proposal.doneVersion],
      ...[proposal.updatedAt, proposal.startedAt, proposal.endedAt, proposal.baseVersion],
      ...[JSON.stringify(proposal.changes), JSON.stringify(proposal.pairShares)],
    ],
  )
}

/** Does not change the revision: nodes need not reload. */
export async function saveVerdict(queries: Queries, id: string, verdict: StoredVerdict): Promise<void> {
  const sql = "UPDATE proposals SET verdict = $2 WHERE id = $1 AND state = 'rolling_out'"
  await queries.query(sql, [id, JSON.stringify(verdict)])
}

/** Replaces the pair shares of these rules; other rules keep theirs. */
export async function savePairShares(
  queries: Queries,
  id: string,
  shares: Readonly<Record<string, number>>,
): Promise<void> {
  await queries.query(
    `UPDATE proposals SET pair_shares = pair_shares || $2::jsonb, revision = nextval('proposal_revisions')
     WHERE id = $1 AND state = 'rolling_out'`,
    [id, JSON.stringify(shares)],
  )
  await notifyRollouts(queries)
}

export async function notifyRollouts(queries: Queries): Promise<void> {
  await queries.query(`SELECT pg_notify('${ROLLOUTS_CHANNEL}', '')`)
}

/** Takes the rollout of each rule. Returns the rules that another proposal holds. */
export async function holdRules(
  queries: Queries,
  id: string,
  ruleIds: readonly string[],
): Promise<readonly { readonly ruleId: string; readonly proposalId: string }[]> {
  const taken = await rolloutsOf(queries, ruleIds)
  if (taken.length > 0) return taken
  await queries.query('INSERT INTO rollouts (rule_id, proposal_id) SELECT unnest($2::text[]), $1', [id, ruleIds])
  return []
}

export async function rolloutsOf(
  queries: Queries,
  ruleIds: readonly string[],
): Promise<{ readonly ruleId: string; readonly proposalId: string }[]> {
  const sql = 'SELECT rule_id, proposal_id FROM rollouts WHERE rule_id = ANY($1::text[]) ORDER BY rule_id'
  const rows = await queries.query<{ rule_id: string; proposal_id: string }>(sql, [ruleIds])
  return rows.map(({ rule_id: ruleId, proposal_id: proposalId }) => ({ ruleId, proposalId }))
}

/** Open edits that change one of these rules, oldest first. */
export async function openEditsOf(queries: Queries, ruleIds: readonly string[]): Promise<Proposal[]> {
  const rows = await queries.query<ProposalRow>(
    `${SELECT} WHERE state = 'rolling_out' AND kind = 'edit' AND EXISTS (
       SELECT 1 FROM jsonb_array_elements(changes) AS change WHERE change->>'ruleId' = ANY($1::text[]))
     ORDER BY base_version`,
    [ruleIds],
  )
  return rows.map(proposalOf)
}

/** Gives the rollout of a rule to an edit, from another edit if it has it. Returns whether it changed hands. */
export async function giveRule(queries: Queries, id: string, ruleId: string): Promise<boolean> {
  const rows = await queries.query(
    `INSERT INTO rollouts (rule_id, proposal_id) VALUES ($2, $1)
     ON CONFLICT (rule_id) DO UPDATE SET proposal_id = excluded.proposal_id
       WHERE rollouts.proposal_id <> excluded.proposal_id
     RETURNING rule_id`,
    [id, ruleId],
  )
  return rows.length > 0
}

/** Releases a rule that an edit has. */
export async function releaseEdits(queries: Queries, ruleId: string): Promise<void> {
  const sql = `DELETE FROM rollouts WHERE rule_id = $1
    AND EXISTS (SELECT 1 FROM proposals WHERE id = proposal_id AND kind = 'edit')`
  await queries.query(sql, [ruleId])
}

/** Releases all rules of a proposal, or these. */
export async function releaseRules(queries: Queries, id: string, ruleIds?: readonly string[]): Promise<void> {
  const sql = 'DELETE FROM rollouts WHERE proposal_id = $1 AND ($2::text[] IS NULL OR rule_id = ANY($2::text[]))'
  await queries.query(sql, [id, ruleIds ?? null])
}
