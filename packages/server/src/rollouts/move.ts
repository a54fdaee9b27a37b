// Moves a proposal to its next state: transition, effects on rules, audit entry, webhook event and notification of all
// nodes, in one transaction that holds the lock of the rules.

import { featuresOf, type Rule } from 'sluice'
import { appendAudit } from '../audit/audit.ts'
import { requireUnderstood } from '../compatibility/requirements.ts'
import type { Queries } from '../db/database.ts'
import { ProblemError, problem } from '../problems/problem.ts'
import { type ActiveVersion, editRules, rulesIn, touchRules } from '../rules/rule-store.ts'
import { ruleAfter, type Undone, withoutEdit } from './edit-history.ts'
import { deleteWindows } from './guard-table.ts'
import { arrangeEdits, type OpenEdits, readOpenEdits, versionOf } from './open-edits.ts'
import { type Proposal, type ProposedChange, type StoredVerdict, wasEnforced } from './proposal.ts'
import { holdRules, notifyRollouts, openEditsOf, readProposal, releaseRules, saveProposal } from './proposal-table.ts'
import { type Conflict, differing, fieldName, rebase } from './rebase.ts'
import { emitEvent, type RolloutEventType, undoneFields } from './rollout-events.ts'
import { type Event, isEnded, type State, stateText, transition } from './state.ts'
import { stepText } from './step.ts'
import { canaryProblems, isExempt, parsedRule } from './tightens.ts'

/** Actor that moves a proposal, and its reason. */
export type Cause = {
  /** Id of a token, or `guard`. */
  readonly actor: string
  /** Reason for the audit log, with numbers if the guard acts. */
  readonly reason?: string | undefined
  readonly verdict?: StoredVerdict | undefined
}

/** Throws 409 if the state machine refuses the event. `now` comes from the lock of the rules. */
export async function move(
  queries: Queries,
  before: Proposal,
  event: Event,
  given: Cause,
  now: ActiveVersion,
): Promise<Proposal> {
  let cause = given
  const facts = { kind: before.kind, steps: before.steps.length }
  const found = transition(before.state, event, facts)
  if ('refused' in found) throw new ProblemError(problem('PROPOSAL_STATE', `${before.id}: ${found.refused}.`))
  const { state } = found
  const fromRunning = before.state.name === 'rolling_out'
  let after: Proposal = { ...before, state, updatedAt: now.at, verdict: cause.verdict ?? before.verdict }
  const open = before.kind === 'edit' && isEnded(state.name) ? await openEditsWith(queries, before, now) : undefined
  if (!fromRunning && state.name === 'rolling_out') after = await begin(queries, after, cause, now)
  else if (fromRunning && state.name === 'rolling_out') after = continued(before, after, now.at)
  else if (fromRunning && state.name === 'done') after = await finish(queries, after, event, cause)
  else if (fromRunning && state.name === 'rolled_back' && open !== undefined) {
    after = await undoEdit(queries, after, open, event, cause)
    cause = { ...cause, reason: withUndone(cause.reason, after.changes) }
  } else if (fromRunning && state.name === 'rolled_back') after = await undo(queries, before, after, event, cause)
  const isRetry = isEnded(before.state.name) && !isEnded(state.name)
  if (isRetry) after = { ...after, attempt: before.attempt + 1, endedAt: null, verdict: null }
  if (isEnded(state.name)) after = { ...after, endedAt: now.at, stepAt: null, pausedAt: null }
  after = { ...after, sentence: sentenceOf(before, after, event, cause) }
  await saveProposal(queries, after)
  await record(queries, before, after, event, cause, now.at)
  if (open !== undefined) {
    open.proposals.delete(before.id)
    await settleEdits(queries, open, cause.actor, now)
  }
  await notifyRollouts(queries)
  return after
}

/** Re-checks the base, takes the rollout of each rule, and begins the first step. */
async function begin(queries: Queries, proposal: Proposal, cause: Cause, now: ActiveVersion): Promise<Proposal> {
  const { version, at } = now
  const ruleIds = proposal.changes.map(({ ruleId }) => ruleId)
  const present = new Map((await rulesIn(queries, ruleIds)).map((rule) => [rule.rule_id, rule]))
  const { changes, conflicts } = rebase(proposal.changes, present)
  if (conflicts.length > 0) throw conflictProblem(conflicts)
  for (const { rule } of changes) parsedRule(rule) // the merged rule must be valid as well
  requireCanary(proposal, changes)
  const kinds = proposal.steps.map(({ kind }) => `rollout.${kind}`)
  await requireUnderstood(queries, [
    ...kinds,
    ...changes.flatMap(({ rule }) => (rule === null ? [] : featuresOf(rule))),
  ])
  await endEditGuards(queries, proposal.id, ruleIds, cause, now)
  const taken = await holdRules(queries, proposal.id, ruleIds)
  if (taken.length > 0) throw rolloutActive(taken)
  await deleteWindows(queries, proposal.id)
  return { ...proposal, changes, baseVersion: version, startedAt: at, stepAt: at, pairShares: {} }
}

/** Rules that had a bucket per client when proposed may have become global since, which rules out canary steps. */
function requireCanary({ id, steps }: Proposal, changes: readonly ProposedChange[]): void {
  if (!steps.some(({ kind }) => kind === 'canary')) return
  const found = canaryProblems(changes)
  if (found.length === 0) return
  const named = found.map(({ ruleId, why }) => `rule ${ruleId} has ${why}`).join('; ')
  const detail = `The rules changed since ${id} was made; its canary steps are impossible: ${named}. Propose it again.`
  const errors = found.map(({ ruleId, why }) => ({ field: 'steps', value: ruleId, fix: why }))
  throw new ProblemError(problem('PROPOSAL_CONFLICT', detail, errors))
}

/** A direct edit under guard does not block a proposal of the same rule; its other rules stay under guard. */
async function endEditGuards(
  queries: Queries,
  id: string,
  ruleIds: readonly string[],
  { actor }: Cause,
  now: ActiveVersion,
): Promise<void> {
  const reason = `${id} changes the same rule`
  const edits = await openEditsOf(queries, ruleIds)
  for (const edit of edits) {
    const left = edit.changes.filter(({ ruleId }) => !ruleIds.includes(ruleId))
    if (left.length === 0) continue
    await releaseRules(queries, edit.id, ruleIds)
    await saveProposal(queries, { ...edit, changes: left, updatedAt: now.at })
    const diff = { rules: edit.changes.map(({ ruleId }) => ruleId), left: left.map(({ ruleId }) => ruleId) }
    await appendAudit(queries, { actor, action: 'proposal.narrow', target: edit.id, diff, reason }, now.at)
  }
  const ended = edits.filter(({ changes }) => changes.every(({ ruleId }) => ruleIds.includes(ruleId)))
  for (const edit of ended) await supersede(queries, edit.id, { actor, reason }, now)
}

/** Ends a rollout that another change of its rules replaces, if it has not ended. */
export async function supersede(queries: Queries, id: string, cause: Cause, now: ActiveVersion): Promise<void> {
  const proposal = await readProposal(queries, id)
  if (proposal?.state.name === 'rolling_out') await move(queries, proposal, { type: 'supersede' }, cause, now)
}

/** Writes the open edits, and ends those that have nothing left to judge. */
export async function settleEdits(queries: Queries, open: OpenEdits, actor: string, now: ActiveVersion): Promise<void> {
  const reason = 'later edits changed each of its fields again'
  for (const { id } of await arrangeEdits(queries, open, now.at)) await supersede(queries, id, { actor, reason }, now)
}

/** The open edits of the rules of this one. */
async function openEditsWith(queries: Queries, { changes }: Proposal, { version }: ActiveVersion): Promise<OpenEdits> {
  const ruleIds = changes.map(({ ruleId }) => ruleId)
  const found = new Map((await rulesIn(queries, ruleIds)).map((rule) => [rule.rule_id, rule]))
  return readOpenEdits(queries, new Map(ruleIds.map((id) => [id, found.get(id) ?? null])), version)
}

/** Next step, pause or resume. A resumed step begins again. */
function continued(before: Proposal, after: Proposal, at: Date): Proposal {
  const [old, fresh] = [before.state, after.state]
  if (old.name !== 'rolling_out' || fresh.name !== 'rolling_out') return after
  if (fresh.paused !== undefined) return { ...after, pausedAt: before.pausedAt ?? at }
  const isSame = old.step === fresh.step && old.paused === undefined
  return { ...after, pausedAt: null, stepAt: isSame ? before.stepAt : at }
}

/** Writes the rules as a new version. An applied change has its version already. */
async function finish(queries: Queries, proposal: Proposal, event: Event, cause: Cause): Promise<Proposal> {
  await releaseRules(queries, proposal.id)
  if (proposal.kind === 'edit' || event.type === 'supersede') return proposal
  const { changes, author: actor } = proposal
  const rules = changes.map(({ rule }) => parsedRule(rule)).filter((rule) => rule !== null)
  const ruleIds = changes.map(({ ruleId }) => ruleId)
  const author = { actor, reason: cause.reason ?? proposal.id }
  const edit = { action: 'rules.rollout', ruleIds, next: async () => rules }
  return { ...proposal, doneVersion: (await editRules(queries, edit, { author })).version }
}

/** The rules again, under a new, higher version. Buckets of canary keys accept them, because their generation grows. */
async function undo(
  queries: Queries,
  before: Proposal,
  after: Proposal,
  event: Event,
  cause: Cause,
): Promise<Proposal> {
  await releaseRules(queries, before.id)
  if (event.type === 'supersede' || !wasEnforced(before)) return after
  const reason = `rollback of ${before.id}`
  const ruleIds = before.changes.map(({ ruleId }) => ruleId)
  return { ...after, doneVersion: await touchRules(queries, ruleIds, { actor: cause.actor, reason }) }
}

/** Undoes exactly one direct edit: other edits of the same rules, earlier or later, stay. */
async function undoEdit(
  queries: Queries,
  edit: Proposal,
  open: OpenEdits,
  event: Event,
  cause: Cause,
): Promise<Proposal> {
  await releaseRules(queries, edit.id)
  const restored = new Map<string, Rule | null>()
  const changes = edit.changes.map((change): ProposedChange => {
    const { ruleId, compared: _, ...rest } = change
    const history = open.histories.get(ruleId)
    if (history === undefined) return change
    if (event.type === 'revert' && isExempt(edit, change)) return { ...rest, ruleId, undone: asDefence(change) }
    const { history: left, reverted, kept } = withoutEdit(history, ruleId, versionOf(edit))
    open.histories.set(ruleId, left)
    if (reverted.length > 0) restored.set(ruleId, parsedRule(ruleAfter(left, ruleId) ?? null))
    return { ...rest, ruleId, undone: { reverted, kept } }
  })
  const ruleIds = [...restored.keys()]
  if (ruleIds.length === 0) return { ...edit, changes }
  const next = async () => [...restored.values()].filter((rule) => rule !== null)
  const author = { actor: cause.actor, reason: withUndone(cause.reason, changes) ?? edit.id }
  const { version } = await editRules(
    queries,
    { action: 'rules.guard_rollback', ruleIds, next, isUndo: true },
    { author },
  )
  return { ...edit, changes, doneVersion: version }
}

function asDefence({ base, rule }: ProposedChange): Undone {
  const why = 'a defence against abuse is not rolled back automatically'
  return { reverted: [], kept: differing(base, rule).map((path) => ({ field: fieldName(path), why })) }
}

/** Reason with every field that was reverted, and every one that was not. */
function withUndone(reason: string | undefined, changes: readonly ProposedChange[]): string | undefined {
  const { reverted = [], not_reverted: kept = [] } = undoneFields(changes)
  const named = reverted.map(({ rule_id, field }) => `${rule_id}.${field}`).join(', ')
  const left = kept.map(({ rule_id, field, why }) => `${rule_id}.${field} (${why})`).join(', ')
  const parts = [reason, named && `reverted ${named}`, left && `not reverted: ${left}`]
  return parts.filter((part) => part !== undefined && part !== '').join('; ') || undefined
}

export function conflictProblem(conflicts: readonly Conflict[]): ProblemError {
  const named = conflicts.map(({ rule_id, field }) => `${rule_id}.${field}`).join(', ')
  const detail = `The rules changed since the proposal was made, and it conflicts: ${named}. Propose it again.`
  const errors = conflicts.map(({ rule_id, field, proposed, current }) => {
    return { field: `${rule_id}.${field}`, value: proposed, fix: `the current value is ${JSON.stringify(current)}` }
  })
  return new ProblemError(problem('PROPOSAL_CONFLICT', detail, errors))
}

export function rolloutActive(
  taken: readonly { readonly ruleId: string; readonly proposalId: string }[],
): ProblemError {
  const named = taken.map(({ ruleId, proposalId }) => `${ruleId} (${proposalId})`).join(', ')
  const detail = `A rule has one rollout at a time, and these already have one: ${named}. Wait, promote or abort them.`
  return new ProblemError(problem('ROLLOUT_ACTIVE', detail))
}

/** Action of the audit log, by event. */
function actionOf(before: State, after: State, event: Event): string {
  if (event.type === 'start' && before.name === 'rolling_out') return 'proposal.resume'
  if (after.name === 'rolled_back') return 'proposal.roll_back'
  if (after.name === 'done') return 'proposal.done'
  if (after.name === 'cancelled') return 'proposal.cancel'
  return `proposal.${event.type}`
}

const WEBHOOKS: Readonly<Record<string, RolloutEventType>> = {
  'proposal.start': 'rollout.started',
  'proposal.pause': 'rollout.paused',
  'proposal.roll_back': 'rollout.rolled_back',
  'proposal.done': 'rollout.done',
}

async function record(
  queries: Queries,
  before: Proposal,
  after: Proposal,
  event: Event,
  cause: Cause,
  at: Date,
): Promise<void> {
  const action = actionOf(before.state, after.state, event)
  const figures = cause.verdict === undefined ? {} : { figures: cause.verdict.rules, metric: cause.verdict.metric }
  const rules = after.changes.map(({ ruleId }) => ruleId)
  const version = after.doneVersion === null ? {} : { version: after.doneVersion }
  const diff = { rules, from: before.state, to: after.state, ...version, ...undoneFields(after.changes), ...figures }
  await appendAudit(queries, { actor: cause.actor, action, target: after.id, diff, reason: cause.reason }, at)
  const type = WEBHOOKS[action]
  if (type !== undefined) await emitEvent(queries, type, after, at)
}

/** State and reason in one sentence. */
function sentenceOf(before: Proposal, { state, steps, doneVersion }: Proposal, event: Event, cause: Cause): string {
  const by = cause.actor === 'guard' ? 'by the guard' : `by ${cause.actor}`
  const why = cause.reason === undefined ? '' : `: ${cause.reason}`
  switch (state.name) {
    case 'draft':
      return isEnded(before.state.name) ? `retry ${by}; waits for approval` : 'waits for approval'
    case 'approved':
      return 'approved; waits for start'
    case 'rolling_out': {
      const step = steps[state.step]
      const where = `step ${state.step + 1} of ${steps.length}, ${step === undefined ? '' : stepText(step)}`
      return state.paused === undefined ? `rolling out: ${where}` : `paused at ${where}: ${state.paused}`
    }
    case 'done': {
      if (event.type === 'supersede') return `superseded ${by}${why}`
      const version = doneVersion === null ? '' : `; version ${doneVersion}`
      return before.kind === 'edit' ? `kept after its guard${why}` : `applies to all keys${version}`
    }
    default:
      return `${stateText(state.name)} ${by}${why}`
  }
}
