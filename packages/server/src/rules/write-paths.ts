// Every way to change rules, exceptions and tokens, with the effect of a freeze and of required approvals. The only
// place that decides it: writers name their path in the transaction of the change, the server does not start with a
// writing route that is in no path, and docs/reference/write-paths.md is this table.

import type { Queries } from '../db/database.ts'
import { ProblemError, problem } from '../problems/problem.ts'
import { requireUnfrozen } from './freeze.ts'

export type WritePath = {
  readonly writes: string
  readonly routes?: readonly string[]
  readonly commands?: readonly string[]
  /** Effect of a freeze. */
  readonly frozen: 'works' | 'refused'
  /** Effect of required approvals. `waits`: recorded, and in force after the last approval. */
  readonly approvals: 'direct' | 'waits' | 'refused'
  readonly why: string
}

export type WritePathName =
  | 'rules.edit'
  | 'rules.undo'
  | 'rules.restore'
  | 'rules.reactivate'
  | 'rules.seed'
  | 'demo.start'
  | 'demo.stop'
  | 'demo.clean'
  | 'proposal.create'
  | 'proposal.approve'
  | 'proposal.start'
  | 'proposal.promote'
  | 'proposal.advance'
  | 'proposal.abort'
  | 'proposal.revert'
  | 'override.loosen'
  | 'override.tighten'
  | 'override.approve'
  | 'override.remove'
  | 'bypass.create'
  | 'bypass.approve'
  | 'bypass.rotate'
  | 'bypass.rotate_other'
  | 'bypass.revoke'
  | 'factor.loosen'
  | 'factor.tighten'
  | 'factor.approve'
  | 'factor.end'
  | 'signal.send'
  | 'signal.remove'
  | 'kill_switch.disable'
  | 'kill_switch.enable'
  | 'bucket.reset'
  | 'drill.start'
  | 'incident.freeze'
  | 'token.create'
  | 'token.create_reader'
  | 'token.create_on_host'
  | 'token.approve'
  | 'token.revoke'
  | 'approvals.set'

const RULES = '/api/v1/rate-limit/rules'
const RULE_SET = '/api/v1/rate-limit/rule-set'
const PROPOSAL = '/api/v1/rate-limit/proposals/:proposal_id'
const OVERRIDES = '/api/v1/rate-limit/overrides'
const BYPASS = '/api/v1/rate-limit/bypass-tokens'
const INCIDENT = '/api/v1/rate-limit/incident'
const TOKENS = '/api/v1/admin/tokens'

const ROLLBACK = `POST ${RULE_SET}/rollback`
const RETURNS = 'returns to the approved rules'

/** Exceptions are tools for an incident: no freeze stops them. */
export const WRITE_PATHS: Readonly<Record<WritePathName, WritePath>> = {
  'rules.edit': {
    writes: 'rules: create, replace, patch, delete, import',
    routes: [
      `POST ${RULES}`,
      `PUT ${RULES}/:rule_id`,
      `PATCH ${RULES}/:rule_id`,
      `DELETE ${RULES}/:rule_id`,
      `PUT ${RULE_SET}`,
    ],
    commands: ['rules apply'],
    frozen: 'refused',
    approvals: 'refused',
    why: 'propose the change; `rules apply` does',
  },
  'rules.undo': {
    writes: 'rules: rollback from the active version to its predecessor',
    routes: [ROLLBACK],
    commands: ['rules rollback'],
    frozen: 'works',
    approvals: 'direct',
    why: 'the emergency exit; the predecessor was in force before',
  },
  'rules.restore': {
    writes: 'rules: rollback to any other version',
    routes: [ROLLBACK],
    commands: ['rules rollback'],
    frozen: 'refused',
    approvals: 'refused',
    why: 'old rules may be looser than today’s; without approvals it works, and is not guarded',
  },
  'rules.reactivate': {
    writes: 'rules: rollback that brings back a rule or value which a rollback, of the guard or a person, withdrew',
    routes: [ROLLBACK],
    commands: ['rules rollback'],
    frozen: 'refused',
    approvals: 'refused',
    why: 'an edit; without approvals it is guarded as one',
  },
  'rules.seed': {
    writes: 'rules: the examples, at the first start',
    frozen: 'works',
    approvals: 'direct',
    why: 'only into a database that never had rules',
  },
  'demo.start': {
    writes: 'rules: those of the demo traffic',
    routes: ['POST /api/v1/demo'],
    frozen: 'refused',
    approvals: 'refused',
    why: 'creates rules',
  },
  'demo.stop': {
    writes: 'rules: removes those of the demo traffic',
    routes: ['DELETE /api/v1/demo'],
    frozen: 'refused',
    approvals: 'refused',
    why: 'deletes rules; they expire by themselves',
  },
  'demo.clean': {
    writes: 'rules: the node removes expired rules of the demo traffic',
    frozen: 'refused',
    approvals: 'direct',
    why: 'expired rules decide nothing; waits for the end of a freeze',
  },
  'proposal.create': {
    writes: 'proposals: create',
    routes: ['POST /api/v1/rate-limit/proposals'],
    commands: ['rules propose', 'rules apply'],
    frozen: 'works',
    approvals: 'direct',
    why: 'changes no rule',
  },
  'proposal.approve': {
    writes: 'proposals: approve, reject',
    routes: [`POST ${PROPOSAL}/approve`, `POST ${PROPOSAL}/reject`],
    commands: ['rules approve', 'rules reject'],
    ...{
      frozen: 'works',
      approvals: 'direct',
      why: 'changes no rule; the rollout of an approved proposal does not start',
    },
  },
  'proposal.start': {
    writes: 'rules: start, resume or retry a rollout',
    routes: [`POST ${PROPOSAL}/start`],
    commands: ['rules rollout', 'rules propose', 'rules approve'],
    frozen: 'refused',
    approvals: 'waits',
    why: 'only an approved proposal starts; a retry needs new approvals',
  },
  'proposal.promote': {
    writes: 'rules: end a step of a rollout',
    routes: [`POST ${PROPOSAL}/promote`],
    commands: ['rules rollout'],
    frozen: 'refused',
    approvals: 'direct',
    why: 'only a rollout that was approved',
  },
  'proposal.advance': {
    writes: 'rules: the guard ends a step of a rollout',
    frozen: 'refused',
    approvals: 'direct',
    why: 'the rollout waits for the end of the freeze',
  },
  'proposal.abort': {
    writes: 'rules: pause or abort a rollout, or undo a direct edit under guard',
    routes: [`POST ${PROPOSAL}/pause`, `POST ${PROPOSAL}/abort`],
    commands: ['rules rollout'],
    frozen: 'works',
    approvals: 'direct',
    why: 'returns to the rules before the change',
  },
  'proposal.revert': {
    writes: 'rules: the guard rolls a change back',
    frozen: 'works',
    approvals: 'direct',
    why: 'returns to the rules before the change',
  },
  'override.loosen': {
    writes: 'overrides: raise a limit, exempt a key',
    routes: [`POST ${OVERRIDES}`],
    commands: ['overrides set'],
    frozen: 'works',
    approvals: 'waits',
    why: 'loosens a limit',
  },
  'override.tighten': {
    writes: 'overrides: lower a limit, ban a key',
    routes: [`POST ${OVERRIDES}`],
    commands: ['overrides set'],
    frozen: 'works',
    approvals: 'direct',
    why: 'a defence',
  },
  'override.approve': {
    writes: 'overrides: approve',
    routes: [`POST ${OVERRIDES}/:override_id/approve`],
    commands: ['overrides approve'],
    frozen: 'works',
    approvals: 'direct',
    why: 'is the approval',
  },
  'override.remove': {
    writes: 'overrides: remove',
    routes: [`DELETE ${OVERRIDES}/:override_id`],
    commands: ['overrides remove'],
    frozen: 'works',
    approvals: 'direct',
    why: `${RETURNS}, also from a ban`,
  },
  'bypass.create': {
    writes: 'bypass tokens: create',
    routes: [`POST ${BYPASS}`],
    commands: ['bypass create'],
    frozen: 'works',
    approvals: 'waits',
    why: 'loosens limits',
  },
  'bypass.approve': {
    writes: 'bypass tokens: approve',
    routes: [`POST ${BYPASS}/:bypass_id/approve`],
    commands: ['bypass approve'],
    frozen: 'works',
    approvals: 'direct',
    why: 'is the approval',
  },
  'bypass.rotate': {
    writes: 'bypass tokens: rotate, as their creator',
    routes: [`POST ${BYPASS}/:bypass_id/rotate`],
    commands: ['bypass rotate'],
    frozen: 'works',
    approvals: 'direct',
    why: 'the same person gets the same right',
  },
  'bypass.rotate_other': {
    writes: 'bypass tokens: rotate one of another creator',
    routes: [`POST ${BYPASS}/:bypass_id/rotate`],
    commands: ['bypass rotate'],
    frozen: 'works',
    approvals: 'refused',
    why: 'the secret would go to a person who was not approved',
  },
  'bypass.revoke': {
    writes: 'bypass tokens: revoke',
    routes: [`DELETE ${BYPASS}/:bypass_id`],
    commands: ['bypass revoke'],
    frozen: 'works',
    approvals: 'direct',
    why: RETURNS,
  },
  'factor.loosen': {
    writes: 'global factor: above 1',
    routes: [`POST ${INCIDENT}/factor`],
    commands: ['incident factor'],
    frozen: 'works',
    approvals: 'waits',
    why: 'loosens every limit',
  },
  'factor.tighten': {
    writes: 'global factor: up to 1',
    routes: [`POST ${INCIDENT}/factor`],
    commands: ['incident factor'],
    frozen: 'works',
    approvals: 'direct',
    why: 'a defence',
  },
  'factor.approve': {
    writes: 'global factor: approve',
    routes: [`POST ${INCIDENT}/factor/approve`],
    commands: ['incident approve'],
    frozen: 'works',
    approvals: 'direct',
    why: 'is the approval',
  },
  'factor.end': {
    writes: 'global factor: end',
    routes: [`DELETE ${INCIDENT}/factor`],
    commands: ['incident factor'],
    frozen: 'works',
    approvals: 'direct',
    why: RETURNS,
  },
  'signal.send': {
    writes: 'signals: send',
    routes: ['POST /api/v1/rate-limit/signals'],
    commands: ['signals send'],
    frozen: 'works',
    approvals: 'direct',
    why: 'a defence; its effect is part of the approved rule',
  },
  'signal.remove': {
    writes: 'signals: remove',
    routes: ['DELETE /api/v1/rate-limit/signals/:signal_id'],
    commands: ['signals remove'],
    frozen: 'works',
    approvals: 'direct',
    why: RETURNS,
  },
  'kill_switch.disable': {
    writes: 'kill switch: disable rules',
    routes: ['POST /api/v1/rate-limit/kill-switch'],
    commands: ['kill-switch disable'],
    frozen: 'works',
    approvals: 'direct',
    why: 'the emergency exit when a rule refuses everybody: it loosens',
  },
  'kill_switch.enable': {
    writes: 'kill switch: enable rules again',
    routes: ['POST /api/v1/rate-limit/kill-switch'],
    commands: ['kill-switch enable'],
    frozen: 'works',
    approvals: 'direct',
    why: RETURNS,
  },
  'bucket.reset': {
    writes: 'buckets: reset one key of one rule',
    routes: ['POST /api/v1/rate-limit/buckets/reset'],
    commands: ['reset'],
    frozen: 'works',
    approvals: 'direct',
    why: 'support work: gives one key its limit once more',
  },
  'drill.start': {
    writes: 'drill: rehearse an outage of Redis',
    routes: ['POST /api/v1/admin/drill'],
    commands: ['drill'],
    frozen: 'works',
    approvals: 'direct',
    why: 'at most an hour; `on_fail` of the approved rules applies',
  },
  'incident.freeze': {
    writes: 'freeze: start, end',
    routes: [`POST ${INCIDENT}/freeze`, `POST ${INCIDENT}/unfreeze`],
    commands: ['incident freeze', 'incident unfreeze'],
    frozen: 'works',
    approvals: 'direct',
    why: 'changes no rule; approvals stay as they are',
  },
  'token.create': {
    writes: 'tokens: create one of the role editor, approver or admin',
    routes: [`POST ${TOKENS}`],
    commands: ['token create'],
    frozen: 'works',
    approvals: 'waits',
    why: 'one person could otherwise act as two',
  },
  'token.create_reader': {
    writes: 'tokens: create one of the role check or viewer',
    routes: [`POST ${TOKENS}`],
    commands: ['token create'],
    frozen: 'works',
    approvals: 'direct',
    why: 'changes no rule and approves nothing',
  },
  'token.create_on_host': {
    writes: 'tokens: create one of any role, directly in the database',
    commands: ['token create'],
    frozen: 'works',
    approvals: 'direct',
    why: 'the first tokens; the audit log names `command`',
  },
  'token.approve': {
    writes: 'tokens: approve',
    routes: [`POST ${TOKENS}/:token_id/approve`],
    commands: ['token approve'],
    frozen: 'works',
    approvals: 'direct',
    why: 'is the approval',
  },
  'token.revoke': {
    writes: 'tokens: revoke, or withdraw one that waits',
    routes: [`DELETE ${TOKENS}/:token_id`],
    commands: ['token revoke'],
    frozen: 'works',
    approvals: 'direct',
    why: 'takes rights away',
  },
  'approvals.set': {
    writes: 'number of required approvals',
    commands: ['approvals set'],
    frozen: 'works',
    approvals: 'direct',
    why: 'needs the database itself; a node only raises the number',
  },
}

/** Routes with a body that change neither rules nor exceptions nor tokens. */
const OTHER_ROUTES: readonly string[] = [
  'POST /api/v1/rate-limit/check',
  'POST /api/v1/rate-limit/check/batch',
  'POST /api/v1/rate-limit/refund',
  'POST /api/v1/rate-limit/explain',
  'POST /api/v1/rate-limit/rules/validate',
  'POST /api/v1/rate-limit/simulate',
  'POST /api/v1/session',
  'DELETE /api/v1/session',
  'POST /json',
]

const READS: readonly string[] = ['GET', 'HEAD', 'OPTIONS']
const ROUTES: ReadonlySet<string> = new Set([
  ...OTHER_ROUTES,
  ...Object.values(WRITE_PATHS).flatMap(({ routes = [] }) => routes),
])

/** Whether a route may be served: it reads, or its writes are in the table. */
export function isClassified(method: string, url: string): boolean {
  return READS.includes(method) || ROUTES.has(`${method} ${url}`)
}

/** Number of approvals that changes need. */
export async function approvalsRequired(queries: Queries): Promise<number> {
  const [row] = await queries.query<{ required: number }>('SELECT required FROM approvals_required', [])
  return row?.required ?? 0
}

/**
 * Call in the transaction of the change. Returns how many approvals the change waits for; 0: it takes effect at once.
 * Throws 409 if approvals or a freeze refuse it; `about` begins the message.
 */
export async function admitWrite(queries: Queries, name: WritePathName, about = ''): Promise<number> {
  const { frozen, approvals } = WRITE_PATHS[name]
  const required = approvals === 'direct' ? 0 : await approvalsRequired(queries)
  if (approvals === 'refused' && required > 0) throw approvalRequired(required, about)
  if (frozen === 'refused') await requireUnfrozen(queries, about)
  return required
}

function approvalRequired(required: number, about: string): ProblemError {
  const count = required === 1 ? '1 approval' : `${required} approvals`
  const detail =
    `${about}Rule changes need ${count}: propose the change with POST /api/v1/rate-limit/proposals or ` +
    'sluice rules propose. In an emergency, the kill switch and a rollback to the predecessor work directly.'
  return new ProblemError(problem('APPROVAL_REQUIRED', detail))
}
