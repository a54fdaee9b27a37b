// Direct edits of rules: kept away from rules that roll out, and put under guard: the old version stays as a
// counterfactual for a while, and returns if the new one refuses too much.

import { appendAudit } from '../audit/audit.ts'
import type { Queries } from '../db/database.ts'
import { ProblemError, problem } from '../problems/problem.ts'
import type { ChangedRule, PlainRule } from '../rules/changes.ts'
import { EXAMPLES_AUTHOR } from '../rules/database-source.ts'
import { type Applied, lockRules } from '../rules/rule-store.ts'
import { comparedRule, editOf, ruleAfter } from './edit-history.ts'
import { GUARD_DEFAULTS } from './guard-settings.ts'
import { rolloutActive, settleEdits, supersede } from './move.ts'
import { type OpenEdits, openVersions, operationOf, readOpenEdits, requireRoom } from './open-edits.ts'
import { CHANGES_MAX, type Proposal, type ProposedChange } from './proposal.ts'
import { insertProposal, notifyRollouts, readProposal, rolloutsOf } from './proposal-table.ts'
import { stepUnderGuard } from './step.ts'
import { affectsDecisions, blindSpot, isDefence, parsedRule, tightens, unpairableReason } from './tightens.ts'

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
 * Ends the rollouts of the rules that a rollback changed. One that brings back withdrawn rules is guarded as an edit.
 */
export async function followRollback(queries: Queries, applied: Applied, options: EditGuardOptions): Promise<void> {
  if (applied.path === 'rules.reactivate') return guardEdit(queries, applied, options)
  const cause = { actor: applied.author.actor, reason: 'a rollback of the rules replaced it' }
  const now = await lockRules(queries)
  for (const { id, kind } of await rollingOut(queries, applied.rules))
    if (kind === 'change') await supersede(queries, id, cause, now)
  await settleEdits(queries, await openEditsAfter(queries, applied), cause.actor, now)
}

/** Puts a direct edit under guard. Throws 409 if one of its rules rolls out. */
export async function guardEdit(queries: Queries, applied: Applied, options: EditGuardOptions): Promise<void> {
  const { rules, author, version } = applied
  const staged = (await rollingOut(queries, rules)).filter(({ kind }) => kind === 'change')
  if (staged.length > 0) throw rolloutActive(staged.flatMap(({ id, changes }) => heldOf(id, changes, rules)))
  const now = await lockRules(queries)
  const open = await openEditsAfter(queries, applied)
  const changes = rules.map((rule) => changeUnderGuard(rule, version, open))
  const off = offReason(options) ?? harmless(changes)
  if (off !== undefined) {
    await settleEdits(queries, open, author.actor, now)
    if (options.isOff && options.guardMs > 0) await recordUnguarded(queries, applied, now.at)
    return options.onGuard({ off })
  }
  if (!(await areFirstRules(queries, version))) requireComparable(changes, await groupsOf(queries, changes))
  if (changes.length > CHANGES_MAX) {
    await settleEdits(queries, open, author.actor, now)
    return options.onGuard({ off: `more than ${CHANGES_MAX} rules changed` })
  }
  const unguarded = changes.flatMap(({ ruleId, compared }) => {
    const why = compared === undefined ? undefined : unpairableReason(compared)
    return why === undefined ? [] : [{ rule_id: ruleId, why }]
  })
  if (unguarded.length === changes.length) {
    await settleEdits(queries, open, author.actor, now)
    return options.onGuard({ off: unguardedText(unguarded) })
  }
  const ruleIds = changes.map(({ ruleId }) => ruleId)
  requireRoom(open, ruleIds)
  const proposal = await insertProposal(queries, {
    kind: 'edit',
    state: { name: 'rolling_out', step: 0, paused: undefined },
    author: author.actor,
    reason: author.reason ?? null,
    baseVersion: version - 1,
    changes: changes.map(({ compared: _, ...change }) => change),
    steps: [stepUnderGuard(options.guardMs)],
    guard: GUARD_DEFAULTS,
    sentence: `version ${version} is under guard`,
    at: now.at,
  })
  open.proposals.set(proposal.id, proposal)
  for (const { ruleId, before, after } of rules) {
    const history = open.histories.get(ruleId) ?? { base: before, edits: [editOf(version, before, after)] }
    open.histories.set(ruleId, history)
  }
  await settleEdits(queries, open, author.actor, now)
  const until = new Date(now.at.getTime() + options.guardMs).toISOString()
  const entry = { actor: author.actor, action: 'proposal.guard', target: proposal.id, diff: { rules: ruleIds, until } }
  await appendAudit(queries, { ...entry, reason: author.reason }, now.at)
  await notifyRollouts(queries)
  options.onGuard({ proposal_id: proposal.id, until, ...(unguarded.length > 0 && { unguarded }) })
}

/** The open edits of the rules that an edit has changed. It is the last one in their histories. */
async function openEditsAfter(queries: Queries, { rules, version }: Applied): Promise<OpenEdits> {
  const before = new Map(rules.map((rule) => [rule.ruleId, rule.before]))
  const open = await readOpenEdits(queries, before, version - 1)
  for (const { ruleId, before: base, after } of rules) {
    const history = open.histories.get(ruleId)
    if (history === undefined) continue
    open.histories.set(ruleId, { ...history, edits: [...history.edits, editOf(version, base, after)] })
  }
  return open
}

/** The change, and what the guard would compare. */
function changeUnderGuard({ ruleId, before, after }: ChangedRule, version: number, open: OpenEdits): ProposedChange {
  const change = { op: operationOf(before, after), ruleId, base: before, rule: after }
  const history = open.histories.get(ruleId)
  if (history === undefined) return { ...change, compared: change, ...(isDefence(change) && { defence: true }) }
  const versions = openVersions(open, ruleId).add(version)
  const accepted = { ...history, edits: history.edits.filter((edit) => !versions.has(edit.version)) }
  const trusted = ruleAfter(accepted, ruleId) ?? null
  return {
    ...change,
    compared: { base: comparedRule(history, ruleId, version, versions), rule: after },
    // An edit that is still under guard itself makes no rule exempt.
    ...(trusted?.intent === 'abuse' && isDefence(change) && { defence: true }),
  }
}

/** Reason that an edit needs no guard; undefined if decisions can depend on it. */
function harmless(changes: readonly ProposedChange[]): string | undefined {
  const compared = changes.flatMap((change) => change.compared ?? [])
  if (compared.some(({ base, rule }) => affectsDecisions(base, rule))) return undefined
  const isBack = changes.some(({ base, rule }) => affectsDecisions(base, rule))
  return isBack ? 'the rules are those from before the guarded edit' : 'no decision depends on the changed fields'
}

function unguardedText(unguarded: readonly { readonly rule_id: string; readonly why: string }[]): string {
  return unguarded.map(({ rule_id, why }) => `rule ${rule_id}: ${why}`).join(', ')
}

function offReason({ guardMs, isOff }: EditGuardOptions): string | undefined {
  if (isOff) return 'the request turned it off'
  return guardMs === 0 ? '--guard-edits is 0' : undefined
}

/** A person may write without the guard, and the audit log says so. */
async function recordUnguarded(queries: Queries, { rules, author, version }: Applied, at: Date): Promise<void> {
  const diff = { version, rules: rules.map(({ ruleId }) => ruleId) }
  await appendAudit(queries, { ...author, action: 'rules.unguarded', target: 'rules', diff }, at)
}

/** The first rules of a database, after none or the examples: clients have no rules to compare them with. */
async function areFirstRules(queries: Queries, version: number): Promise<boolean> {
  const sql = 'SELECT 1 AS found FROM rule_versions WHERE version < $1 AND actor <> $2 LIMIT 1'
  return (await queries.query(sql, [version, EXAMPLES_AUTHOR])).length === 0
}

/** The rules in the groups of the changed rules, before and after. */
async function groupsOf(queries: Queries, changes: readonly ProposedChange[]): Promise<PlainRule[]> {
  const groups = changes.flatMap(({ base, rule }) => [base?.group, rule?.group]).filter((group) => group !== undefined)
  if (groups.length === 0) return []
  const sql = "SELECT rule FROM rules WHERE rule->>'group' = ANY($1::text[])"
  return (await queries.query<{ rule: PlainRule }>(sql, [groups])).map(({ rule }) => rule)
}

/** An edit that may refuse more is compared, or refused: never written without the guard unnoticed. */
function requireComparable(changes: readonly ProposedChange[], inGroups: readonly PlainRule[]): void {
  const found = changes.flatMap(({ ruleId, compared }) => {
    const others = inGroups.filter(({ rule_id }) => rule_id !== ruleId)
    const spot = compared && blindSpot(compared, others)
    return spot === undefined ? [] : [{ ruleId, value: compared?.rule?.[spot.field], ...spot }]
  })
  const isTooLarge = changes.length > CHANGES_MAX && changes.some(isTighter)
  if (found.length === 0 && !isTooLarge) return
  const named = found.map(({ ruleId, field, why }) => `rule ${ruleId}: ${field}: ${why}`)
  if (isTooLarge) named.push(`it changes ${changes.length} rules, and the guard compares up to ${CHANGES_MAX}`)
  const errors = found.map(({ ruleId, field, value, why }) => {
    return { field: `${ruleId}.${field}`, value: value ?? null, fix: `${why}: ${UNCOMPARABLE_FIX}` }
  })
  const detail = `The guard cannot compare this edit, which may refuse more: ${named.join('; ')}. To write it, `
  throw new ProblemError(problem('NOT_COMPARABLE', `${detail}${UNCOMPARABLE_FIX}.`, errors))
}

const UNCOMPARABLE_FIX =
  'edit the other rules and fields separately and propose this change ' +
  `(POST ${PROPOSALS_PATH}, sluice rules propose), ` +
  'or turn the guard off for this request with guard=off and a reason (CLI: --guard off --reason <text>)'

function isTighter({ compared }: ProposedChange): boolean {
  return compared !== undefined && tightens(parsedRule(compared.base), parsedRule(compared.rule))
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
