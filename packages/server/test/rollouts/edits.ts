// Direct edits on a database of their own, without nodes.

import { onTestFinished } from 'vitest'
import { openDatabase } from '../../src/db/open-database.ts'
import { type EditGuard, editHooks } from '../../src/rollouts/edit-hooks.ts'
import { comparedChanges, type Proposal } from '../../src/rollouts/proposal.ts'
import { ProposalStore } from '../../src/rollouts/proposal-store.ts'
import { activeProposals, readProposal } from '../../src/rollouts/proposal-table.ts'
import { parsedRule } from '../../src/rollouts/tightens.ts'
import { RuleStore, rulesIn } from '../../src/rules/rule-store.ts'
import { temporaryFolder } from '../databases.ts'

const FAILED = { actor: 'guard', reason: 'rule payments: 60 % newly denied' }

export async function openedAt(url: string) {
  const database = await openDatabase({ database: url, dataDir: temporaryFolder() })
  onTestFinished(() => database.close())
  const proposals = new ProposalStore(database, { moved: () => {}, refresh: async () => {} })
  const store = new RuleStore(database)
  /** Replaces these rules; null deletes one. Returns the guard of the edit. */
  const edit = async (
    rules: Readonly<Record<string, object | null>>,
    guardMs = 60_000,
    isOff = false,
  ): Promise<EditGuard> => {
    let found: EditGuard = { off: 'nothing changed' }
    const next = async () => {
      return Object.entries(rules).flatMap(([rule_id, fields]) => parsedRule(fields && { ...fields, rule_id }) ?? [])
    }
    const onGuard = (guard: EditGuard) => {
      found = guard
    }
    await store.edit(
      { action: 'rules.import', ruleIds: Object.keys(rules), next },
      { author: { actor: 'ann', reason: 'x' }, hooks: editHooks({ guardMs, isOff, onGuard }) },
    )
    return found
  }
  const read = async (id: string): Promise<Proposal> => {
    const proposal = await readProposal(database, id)
    if (proposal === undefined) throw new Error(`no proposal ${id}`)
    return proposal
  }
  const end = async (guard: EditGuard, type: 'revert' | 'advance' = 'revert') => {
    const id = idOf(guard)
    return proposals.moveIfUnchanged(id, (await read(id)).revision, { type }, FAILED)
  }
  const rules = async () => new Map((await rulesIn(database)).map((rule) => [rule.rule_id, rule]))
  const judged = async () => {
    const held = (await activeProposals(database)).flatMap((one) =>
      comparedChanges(one).map(({ ruleId, base, rule }) => ({ id: one.id, ruleId, base, rule })),
    )
    return held.sort((one, other) => (one.ruleId < other.ruleId ? -1 : 1))
  }
  return { database, proposals, store, edit, end, read, rules, judged }
}

export const idOf = (guard: EditGuard) => ('proposal_id' in guard ? guard.proposal_id : '')
export const perUser = (limit: number, more: object = {}) => ({ scope: 'per_user', limit, window_seconds: 60, ...more })
