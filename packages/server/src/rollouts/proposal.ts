// A proposal: a set of rule changes against a base version, with its steps, its guard and its state.

import type { PlainRule } from '../rules/changes.ts'
import type { RuleEdit, Undone } from './edit-history.ts'
import type { Guard } from './guard-settings.ts'
import type { Verdict } from './judge.ts'
import type { Kind, State } from './state.ts'
import type { Step } from './step.ts'

export type Operation = 'create' | 'update' | 'delete'

export type ProposedChange = {
  readonly op: Operation
  readonly ruleId: string
  /** The rule that the change was made against; null: it did not exist. */
  readonly base: PlainRule | null
  /** The rule after the change; null: it is deleted. */
  readonly rule: PlainRule | null
  /** The following fields are those of a direct edit under guard. `judged` is absent for edits of earlier versions. */
  readonly judged?: Judged
  /** Versions that the guard compares while `judged` is `now`: the rule without the edit, and the rule in force. */
  readonly compared?: Pick<ProposedChange, 'base' | 'rule'>
  /** Later edits of the rule, oldest first. The oldest edit under guard has them. */
  readonly since?: readonly RuleEdit[]
  /** Tightens a rule that was against abuse before all edits under guard: the guard does not revert it. */
  readonly defence?: boolean
  /** Result of the rollback. */
  readonly undone?: Undone
}

/**
 * now: the guard compares the rule with and without the edit. later: it waits until a later edit of the rule has passed
 * or was undone. no: it can only refuse less. replaced: later edits changed each of its fields again.
 */
export type Judged = 'now' | 'later' | 'no' | 'replaced'

/** The rules that the guard compares. */
export function comparedChanges({ kind, changes }: Pick<Proposal, 'kind' | 'changes'>): readonly ProposedChange[] {
  if (kind === 'change') return changes
  return changes.flatMap((change) => {
    const { judged = 'now', compared } = change
    return judged === 'now' ? [{ ...change, ...compared }] : []
  })
}

export type Proposal = {
  readonly id: string
  readonly kind: Kind
  readonly state: State
  /** Token that made it. */
  readonly author: string
  readonly authorName: string | null
  readonly reason: string | null
  readonly baseVersion: number
  readonly changes: readonly ProposedChange[]
  readonly steps: readonly Step[]
  readonly guard: Guard
  /** Start of the current step; null before the first. */
  readonly stepAt: Date | null
  readonly pausedAt: Date | null
  /** Grows with each retry; approvals count for one attempt. */
  readonly attempt: number
  /** Selects canary keys. Kept for the whole life of the proposal, so that a retry selects the same keys. */
  readonly salt: string
  /** By rule: share of keys that both versions decide. Rules without one have their first share. */
  readonly pairShares: Readonly<Record<string, number>>
  /** The guard's last verdict. */
  readonly verdict: StoredVerdict | null
  /** State and reason in one sentence, for people. */
  readonly sentence: string
  /** Version of the rules in which the change, or its rollback, was applied. */
  readonly doneVersion: number | null
  readonly createdAt: Date
  readonly updatedAt: Date
  readonly startedAt: Date | null
  readonly endedAt: Date | null
  readonly revision: number
}

export type StoredVerdict = Verdict & {
  /** Errors in a row. */
  readonly errors: number
  /** Whether the guard has alerted already. */
  readonly alerted: boolean
  readonly at: string
}

export const CHANGES_MAX = 200
/** Share of keys that are paired at first; the evaluator raises it while there are few pairs of the rule. */
export const PAIR_SHARE_FIRST = 0.01

export function currentStep({ state, steps }: Pick<Proposal, 'state' | 'steps'>): Step | undefined {
  return state.name === 'rolling_out' ? steps[state.step] : undefined
}

/** Whether the candidate was enforced for any key. */
export function wasEnforced({ state, steps }: Pick<Proposal, 'state' | 'steps'>): boolean {
  return state.name === 'rolling_out' && (steps[state.step]?.share ?? 0) > 0
}
