// Direct edits of rules: kept away from rules that roll out, and put under guard: the old version stays as a
// counterfactual for a while, and returns if the new one refuses too much.

import { appendAudit } from '../audit/audit.ts'
import type { Queries } from '../db/database.ts'
import type { ChangedRule } from '../rules/changes.ts'
import { type Applied, lockRules } from '../rules/rule-store.ts'
import { GUARD_DEFAULTS } from './guard-settings.ts'
import { move, rolloutActive } from './move.ts'
import { CHANGES_MAX, type Proposal, type ProposedChange } from './proposal.ts'
import { holdRules, insertProposal, notifyRollouts, readProposal, rolloutsOf } from './proposal-table.ts'
import { sameRule } from './rebase.ts'
import { stepUnderGuard } from './step.ts'
import { unpairableReason } from './tightens.ts'

export const PROPOSALS_PATH = '/api/v1/rate-limit/proposals'

/** The guard of one direct edit, for its response. */
export type EditGuard =
  | {
      readonly proposal_id: string
      readonly until: string
      /** Rules of the edit that the guard cannot compare. */
      readonly unguarded?: readonly { readonly rule_id: string; readonly why: string }[]
    }
  /** Reason that the edit is not guarded. */
  | { readonly off: string }

export type EditGuardOptions = {
  /** 0: off. */
  readonly guardMs: number
  /** Whether the request disabled the guard. */
  readonly isOff: boolean
  readonly onGuard: (guard: EditGuard) => void
}

/**
 * Ends the rollouts of the rules that a rollback changed. One that brings back what was withdrawn is guarded as an edit.
 */
export async function followRollback(queries: Queries, applied: Applied, options: EditGuardOptions): Promise<void> {
  if (applied.path === 'rules.reactivate') return guardEdit(queries, applied, options)
  const reason = 'a rollback of the rules replaced it'
  for (const proposal of await rollingOut(queries, applied.rules))
    await supersede(queries, proposal, applied.author.actor, reason)
}

/** Puts a direct edit under guard. Throws 409 if one of its rules rolls out. */
export async function guardEdit(queries: Queries, applied: Applied, options: EditGuardOptions): Promise<void> {
  const { rules, author, version } = applied
  const rolling = await rollingOut(queries, rules)
  const staged = rolling.filter(({ kind }) => kind === 'change')
  if (staged.length > 0) throw rolloutActive(staged.flatMap(({ id, changes }) => heldOf(id, changes, rules)))
  for (const proposal of rolling) await supersede(queries, proposal, author.actor, 'a later edit replaced it')
  const off = offReason(options, rules)
  if (off !== undefined) return options.onGuard({ off })
  const changes = guardedChanges(rules, rolling).filter(({ base, rule }) => !sameRule(base, rule))
  if (changes.length === 0) return options.onGuard({ off: 'the rules are those from before the guarded edit' })
  const unguarded = changes.flatMap((change) => {
    const why = unpairableReason(change)
    return why === undefined ? [] : [{ rule_id: change.ruleId, why }]
  })
  if (unguarded.length === changes.length) return options.onGuard({ off: unguardedText(unguarded) })
  const { at } = await lockRules(queries)
  const proposal = await insertProposal(queries, {
    kind: 'edit',
    state: { name: 'rolling_out', step: 0, paused: undefined },
    author: author.actor,
    reason: author.reason ?? null,
    baseVersion: version - 1,
    changes,
    steps: [stepUnderGuard(options.guardMs)],
    guard: GUARD_DEFAULTS,
    sentence: `version ${version} is under guard`,
    at,
  })
  const ruleIds = changes.map(({ ruleId }) => ruleId)
  await holdRules(queries, proposal.id, ruleIds)
  const until = new Date(at.getTime() + options.guardMs).toISOString()
  const entry = { actor: author.actor, action: 'proposal.guard', target: proposal.id, diff: { rules: ruleIds, until } }
  await appendAudit(queries, { ...entry, reason: author.reason }, at)
  await notifyRollouts(queries)
  options.onGuard({ proposal_id: proposal.id, until, ...(unguarded.length > 0 && { unguarded }) })
}

function unguardedText(unguarded: readonly { readonly rule_id: string; readonly why: string }[]): string {
  return unguarded.map(({ rule_id, why }) => `rule ${rule_id}: ${why}`).join(', ')
}

function offReason({ guardMs, isOff }: EditGuardOptions, rules: readonly ChangedRule[]): string | undefined {
  if (isOff) return 'the request turned it off'
  if (guardMs === 0) return '--guard-edits is 0'
  return rules.length > CHANGES_MAX ? `more than ${CHANGES_MAX} rules changed` : undefined
}

/**
 * A rule whose earlier edit has not passed the guard keeps the version from before that edit: it is the last one known
 * to be good. A rule that was just created has none. Other rules of the superseded guards stay under this one.
 */
function guardedChanges(rules: readonly ChangedRule[], rolling: readonly Proposal[]): ProposedChange[] {
  const earlier = new Map(rolling.flatMap(({ changes }) => changes).map((change) => [change.ruleId, change]))
  const passed = new Set(rolling.filter(({ verdict }) => verdict?.outcome === 'pass').flatMap(({ changes }) => changes))
  const fresh = rules.map(({ ruleId, before, after }): ProposedChange => {
    const known = earlier.get(ruleId)
    const base = known === undefined || known.base === null || passed.has(known) ? before : known.base
    return { op: base === null ? 'create' : after === null ? 'delete' : 'update', ruleId, base, rule: after }
  })
  for (const { ruleId } of rules) earlier.delete(ruleId)
  return [...fresh, ...earlier.values()]
}

async function rollingOut(queries: Queries, rules: readonly ChangedRule[]): Promise<Proposal[]> {
  const held = await rolloutsOf(
    queries,
    rules.map(({ ruleId }) => ruleId),
  )
  const proposals: Proposal[] = []
  for (const id of new Set(held.map(({ proposalId }) => proposalId))) {
    const proposal = await readProposal(queries, id)
    if (proposal !== undefined) proposals.push(proposal)
  }
  return proposals
}

function heldOf(proposalId: string, changes: readonly ProposedChange[], rules: readonly ChangedRule[]) {
  const changed = new Set(rules.map(({ ruleId }) => ruleId))
  return changes.flatMap(({ ruleId }) => (changed.has(ruleId) ? { ruleId, proposalId } : []))
}

/** Ends a rollout whose rule was changed by another edit. The caller has written the rule. */
async function supersede(queries: Queries, proposal: Proposal, actor: string, reason: string): Promise<void> {
  const now = await lockRules(queries)
  await move(queries, proposal, { type: 'supersede' }, { actor, reason }, now)
}
