// Proposals of a node: created from a plan, moved, shown and waited for.

import type { PlainProposal, PlainShownProposal } from '../http/bodies/proposal-body.ts'
import { PROPOSALS_PATH } from '../rollouts/edit-hooks.ts'
import type { StateName } from '../rollouts/state.ts'
import type { PlainStep } from '../rollouts/step.ts'
import type { RuleChange } from '../rules/changes.ts'
import type { Api } from './api.ts'
import { CommandError } from './command.ts'
import type { Plan } from './rule-set-api.ts'

export type Moved = { readonly proposal_id: string; readonly state: StateName; readonly sentence: string }

export type ProposeOptions = {
  readonly reason: string
  readonly steps?: readonly PlainStep[] | undefined
  readonly guard?: unknown
}

/** Proposes the changes of a plan, against the version of the plan. */
export function propose(api: Api, { version, changes }: Plan, options: ProposeOptions): Promise<Moved> {
  const { reason, steps, guard } = options
  const body = { changes: changes.map(changeOf), reason, steps, guard, base_version: version }
  return api.post<Moved>(PROPOSALS_PATH, body)
}

/** The merge patch that makes the change. */
function changeOf({ rule_id, change, before, after }: RuleChange): object {
  if (change === 'deleted') return { op: 'delete', rule: { rule_id } }
  if (after === undefined) throw new CommandError('too many changes for one proposal: split the file')
  if (change === 'created') return { op: 'create', rule: withoutMetadata(after) }
  const removed = Object.keys(before ?? {}).filter((name) => !(name in after))
  return { op: 'update', rule: { ...after, ...Object.fromEntries(removed.map((name) => [name, null])), rule_id } }
}

function withoutMetadata(rule: Readonly<Record<string, unknown>>): object {
  const { version, created_at, updated_at, ...rest } = rule
  return rest
}

export function moveProposal(
  api: Api,
  id: string,
  action: string,
  body: { readonly reason?: string | undefined; readonly start?: boolean } = {},
): Promise<Moved> {
  return api.post<Moved>(`${PROPOSALS_PATH}/${encodeURIComponent(id)}/${action}`, body)
}

export function readProposal(api: Api, id: string): Promise<PlainShownProposal> {
  return api.get<PlainShownProposal>(`${PROPOSALS_PATH}/${encodeURIComponent(id)}`)
}

export type ProposalList = { readonly proposals: readonly PlainProposal[]; readonly approvals_required: number }

export function listProposals(api: Api, limit: number): Promise<ProposalList> {
  return api.get<ProposalList>(`${PROPOSALS_PATH}?limit=${limit}`)
}

/** Starts a proposal that has its approvals; returns any other unchanged. */
export async function startIfApproved(api: Api, moved: Moved): Promise<Moved> {
  return moved.state === 'approved' ? moveProposal(api, moved.proposal_id, 'start') : moved
}

const ENDED: readonly StateName[] = ['done', 'rejected', 'cancelled', 'rolled_back']

export function hasEnded({ state }: Pick<Moved, 'state'>): boolean {
  return ENDED.includes(state)
}
