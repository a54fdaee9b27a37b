// Direct edits under guard. Several edits of one rule can be open at once: the guard judges the newest that may refuse
// more, and the others wait until it has passed or was undone. The oldest keeps the history of the rule, from which
// every other fact follows: which fields an edit still decides, and what the rule would be without it.

import type { Queries } from '../db/database.ts'
import { ProblemError, problem } from '../problems/problem.ts'
import type { PlainRule } from '../rules/changes.ts'
import { comparedRule, editOf, type History, isCovered, isLive, ruleAfter, trimmed } from './edit-history.ts'
import { deleteWindows } from './guard-table.ts'
import type { Proposal, ProposedChange } from './proposal.ts'
import { giveRule, openEditsOf, releaseEdits, saveProposal } from './proposal-table.ts'
import { sameRule } from './rebase.ts'
import { parsedRule, tightens } from './tightens.ts'

export type OpenEdits = {
  /** By id. */
  readonly proposals: Map<string, Proposal>
  /** Histories of the rules with an open edit, by id. */
  readonly histories: Map<string, History>
}

/** Open edits of one rule, at most: each edit of it reads them all. */
const OPEN_MAX = 100

export function versionOf({ baseVersion }: Pick<Proposal, 'baseVersion'>): number {
  return baseVersion + 1
}

export function changeOf({ changes }: Proposal, ruleId: string): ProposedChange | undefined {
  return changes.find((change) => change.ruleId === ruleId)
}

/** Open edits of these rules. `present` are the rules in `version` of the set. */
export async function readOpenEdits(
  queries: Queries,
  present: ReadonlyMap<string, PlainRule | null>,
  version: number,
): Promise<OpenEdits> {
  const found = await openEditsOf(queries, [...present.keys()])
  const proposals = new Map(found.map((proposal) => [proposal.id, proposal]))
  const histories = new Map<string, History>()
  for (const [ruleId, rule] of present) {
    const history = historyOf(found, ruleId)
    if (history !== undefined) histories.set(ruleId, upToDate(history, ruleId, rule, version))
  }
  return { proposals, histories }
}

function historyOf(proposals: Iterable<Proposal>, ruleId: string): History | undefined {
  const opened = openIn(proposals, ruleId)
  const [oldest] = opened
  if (oldest === undefined) return undefined
  const { base, since = [] } = oldest.change
  const known = new Set(since.map(({ version }) => version))
  // Edits that an earlier version of the service wrote are in no history.
  const unknown = opened.filter(({ version }) => !known.has(version))
  const edits = [...since, ...unknown.map(({ version, change }) => editOf(version, change.base, change.rule))]
  return { base, edits: edits.sort((one, other) => one.version - other.version) }
}

/** Adds what was written past the hooks of edits, as an edit that is not under guard. */
function upToDate(history: History, ruleId: string, present: PlainRule | null, version: number): History {
  const known = ruleAfter(history, ruleId) ?? null
  return sameRule(known, present) ? history : { ...history, edits: [...history.edits, editOf(version, known, present)] }
}

type Opened = { readonly proposal: Proposal; readonly change: ProposedChange; readonly version: number }

/** Oldest first. */
function openIn(proposals: Iterable<Proposal>, ruleId: string): Opened[] {
  const found = [...proposals].flatMap((proposal): Opened[] => {
    const change = changeOf(proposal, ruleId)
    return change === undefined ? [] : [{ proposal, change, version: versionOf(proposal) }]
  })
  return found.sort((one, other) => one.version - other.version)
}

export function openVersions({ proposals }: OpenEdits, ruleId: string): Set<number> {
  return new Set(openIn(proposals.values(), ruleId).map(({ version }) => version))
}

/** Each edit of a rule reads and writes all that are open. */
export function requireRoom({ proposals }: OpenEdits, ruleIds: readonly string[]): void {
  const full = ruleIds.find((ruleId) => openIn(proposals.values(), ruleId).length >= OPEN_MAX)
  if (full === undefined) return
  const detail =
    `Rule ${full} has ${OPEN_MAX} edits under guard: wait, promote or abort some, or write without the guard: ` +
    'guard=off, with a reason (CLI: --guard off --reason <text>).'
  throw new ProblemError(problem('TOO_MANY_PROPOSALS', detail))
}

/**
 * Writes the open edits of these rules after an edit was added or has ended, and gives each rule to the edit that is
 * judged next. Returns the edits that have nothing left to judge.
 */
export async function arrangeEdits(queries: Queries, open: OpenEdits, at: Date): Promise<Proposal[]> {
  const next = new Map<string, Map<string, ProposedChange>>()
  const begins = new Set<string>()
  for (const [ruleId, history] of open.histories) {
    const changes = changesOf(open, ruleId, history)
    const holder = [...changes].find(([, { judged }]) => judged === 'now')?.[0]
    if (holder === undefined) await releaseEdits(queries, ruleId)
    else if (await giveRule(queries, holder, ruleId)) begins.add(holder)
    for (const [id, change] of changes) {
      const ofProposal = next.get(id) ?? new Map<string, ProposedChange>()
      next.set(id, ofProposal.set(ruleId, change))
    }
  }
  const ended: Proposal[] = []
  for (const [id, changes] of next) {
    const before = open.proposals.get(id)
    if (before === undefined) continue
    const after = { ...before, changes: before.changes.map((change) => changes.get(change.ruleId) ?? change) }
    if (begins.has(id)) await begin(queries, after, at)
    else if (JSON.stringify(after.changes) !== JSON.stringify(before.changes))
      await saveProposal(queries, { ...after, updatedAt: at })
    if (after.changes.every(({ judged }) => judged === 'replaced')) ended.push(after)
  }
  return ended
}

/** Changes of one rule by proposal: the newest edit that may refuse more is judged now. */
function changesOf(open: OpenEdits, ruleId: string, given: History): Map<string, ProposedChange> {
  const versions = openVersions(open, ruleId)
  const history = trimmed(given, ruleId, versions)
  const present = ruleAfter(history, ruleId) ?? null
  const edits = openIn(open.proposals.values(), ruleId).map(({ proposal, change, version }, index) => {
    const base = ruleAfter(history, ruleId, version - 1) ?? null
    const rule = ruleAfter(history, ruleId, version) ?? null
    const compared = comparedRule(history, ruleId, version, versions)
    const live = isLive(history, version, versions)
    return {
      id: proposal.id,
      live,
      tighter: live && tightens(parsedRule(compared), parsedRule(present)),
      waits: live && isCovered(history, version, versions),
      compared,
      change: {
        ...{ op: operationOf(base, rule), ruleId, base, rule },
        ...(change.defence === true && { defence: true }),
        ...(index === 0 && history.edits.length > 1 && { since: history.edits.slice(1) }),
      },
    }
  })
  const holder = edits.findLast(({ tighter }) => tighter) ?? edits.findLast(({ live }) => live)
  return new Map(
    edits.map((edit): [string, ProposedChange] => {
      const { id, change, compared, live, tighter, waits } = edit
      if (edit === holder) return [id, { ...change, judged: 'now', compared: { base: compared, rule: present } }]
      return [id, { ...change, judged: live ? (tighter || waits ? 'later' : 'no') : 'replaced' }]
    }),
  )
}

export function operationOf(base: PlainRule | null, rule: PlainRule | null): ProposedChange['op'] {
  if (base === null) return 'create'
  return rule === null ? 'delete' : 'update'
}

/** Judges an edit from now on. One that had waited is judged anew: its counterfactual buckets have missed requests. */
async function begin(queries: Queries, proposal: Proposal, at: Date): Promise<void> {
  const isNew = proposal.startedAt?.getTime() === at.getTime()
  if (!isNew) await deleteWindows(queries, proposal.id)
  const restarted = { attempt: proposal.attempt + 1, startedAt: at, stepAt: at, pairShares: {} }
  await saveProposal(queries, { ...proposal, updatedAt: at, ...(isNew ? {} : restarted) })
}
