// Operations on proposals. Each is one transaction that locks the rules first, so that proposals, direct edits and the
// guard never act on an outdated state.

import type { Caller } from '../access/roles.ts'
import { type Approvals, approve, readApprovals } from '../approvals/approval-table.ts'
import { appendAudit } from '../audit/audit.ts'
import type { Database, Queries } from '../db/database.ts'
import { ProblemError, problem } from '../problems/problem.ts'
import { isFrozen } from '../rules/freeze.ts'
import { type ActiveVersion, lockRules, rulesIn } from '../rules/rule-store.ts'
import { admitWrite, approvalsRequired } from '../rules/write-paths.ts'
import { type GuardFigures, guardFigures } from './figures.ts'
import type { Guard } from './guard-settings.ts'
import { type Cause, move } from './move.ts'
import type { Proposal, ProposedChange } from './proposal.ts'
import {
  insertProposal,
  listProposals,
  type ProposalQuery,
  type RequestPrint,
  readProposal,
  repeatedProposal,
} from './proposal-table.ts'
import { type Conflict, rebase } from './rebase.ts'
import type { Event } from './state.ts'
import type { Step } from './step.ts'

export type ProposalRequest = {
  readonly reason: string
  readonly guard: Guard
  /** Builds changes and steps from the current rules, or throws. */
  readonly plan: (queries: Queries) => Promise<RolloutPlan>
  /** Refuses the proposal if another version is active. */
  readonly ifVersion?: number | undefined
  /** Recognises a repeated request. */
  readonly print?: RequestPrint | undefined
}

/** `isRepeat`: the request was repeated, and the proposal is that of the first one. */
export type Created = { readonly proposal: Proposal; readonly isRepeat: boolean }

export type RolloutPlan = { readonly changes: readonly ProposedChange[]; readonly steps: readonly Step[] }

export type ShownProposal = {
  readonly proposal: Proposal
  readonly approvals: Approvals
  readonly conflicts: readonly Conflict[]
  /** Database time. */
  readonly now: Date
}

/** The node that the operations run on. */
export type ProposalNode = {
  moved(proposal: Proposal, byGuard: boolean): void
  /** Resolves once the node has applied the change. */
  refresh(): Promise<void>
}

export class ProposalStore {
  readonly #database: Database
  readonly #node: ProposalNode

  constructor(database: Database, node: ProposalNode) {
    this.#database = database
    this.#node = node
  }

  async create(request: ProposalRequest, caller: Caller): Promise<Created> {
    return this.#database.transaction(async (queries) => {
      const { version, at } = await lockRules(queries)
      const repeated = request.print && (await repeatedProposal(queries, caller.id, request.print, at))
      if (repeated !== undefined) return { proposal: repeated, isRepeat: true }
      if (request.ifVersion !== undefined && request.ifVersion !== version)
        throw new ProblemError(problem('VERSION_CONFLICT', `Version conflict: the current version is ${version}.`))
      await admitWrite(queries, 'proposal.create')
      await requireRoom(queries)
      const { changes, steps } = await request.plan(queries)
      const required = await approvalsRequired(queries)
      const proposal = await insertProposal(queries, {
        kind: 'change',
        state: { name: required > 0 ? 'draft' : 'approved' },
        author: caller.id,
        reason: request.reason,
        baseVersion: version,
        changes,
        steps,
        guard: request.guard,
        sentence: required > 0 ? `waits for approval: ${required} required` : 'approved; waits for start',
        print: request.print,
        at,
      })
      const rules = changes.map(({ op, ruleId, rule }) => ({ op, rule_id: ruleId, rule }))
      const diff = { rules, steps, guard: request.guard }
      const entry = { actor: caller.id, action: 'proposal.create', target: proposal.id, diff, reason: request.reason }
      await appendAudit(queries, entry, at)
      return { proposal, isRepeat: false }
    })
  }

  /** The last approval starts the rollout. A proposal that cannot start stays approved, and its sentence says why. */
  async approve(id: string, caller: Caller, starts = true): Promise<Proposal> {
    const approved = await this.#move(id, caller, async (queries, proposal) => {
      await admitWrite(queries, 'proposal.approve')
      const { enough } = await approve(queries, approvable(proposal), caller)
      return { event: { type: 'approve', enough } }
    })
    if (!starts || approved.state.name !== 'approved') return approved
    return this.start(id, caller).catch((error: unknown) => {
      if (!(error instanceof ProblemError)) throw error
      return { ...approved, sentence: `approved; not started: ${error.problem.detail}` }
    })
  }

  reject(id: string, caller: Caller, reason: string | undefined): Promise<Proposal> {
    return this.#move(id, caller, async (queries) => {
      await admitWrite(queries, 'proposal.approve')
      return { event: { type: 'reject' }, reason }
    })
  }

  /** Starts, resumes or retries. */
  async start(id: string, caller: Caller): Promise<Proposal> {
    let wasApproved = false
    const moved = await this.#move(id, caller, async (queries, proposal) => {
      await admitWrite(queries, 'proposal.start')
      const { enough, required } = await readApprovals(queries, approvable(proposal))
      wasApproved = proposal.state.name === 'approved'
      return { event: { type: 'start', enough, required } }
    })
    if (!wasApproved || moved.state.name !== 'draft') return moved
    const detail = `${id} waits for approval again: an approver was revoked or lost the role, or more are required now.`
    throw new ProblemError(problem('APPROVAL_REQUIRED', detail))
  }

  promote(id: string, caller: Caller, reason: string | undefined): Promise<Proposal> {
    return this.#move(id, caller, async (queries) => {
      await admitWrite(queries, 'proposal.promote')
      return { event: { type: 'promote' }, reason }
    })
  }

  pause(id: string, caller: Caller, reason: string | undefined): Promise<Proposal> {
    const why = `by ${caller.id}${reason === undefined ? '' : `: ${reason}`}`
    return this.#move(id, caller, async (queries) => {
      await admitWrite(queries, 'proposal.abort')
      return { event: { type: 'pause', why }, reason }
    })
  }

  abort(id: string, caller: Caller, reason: string | undefined): Promise<Proposal> {
    return this.#move(id, caller, async (queries) => {
      await admitWrite(queries, 'proposal.abort')
      return { event: { type: 'abort' }, reason }
    })
  }

  /** Moves a proposal for the guard, unless another node moved it since `revision`. Returns undefined then. */
  async moveIfUnchanged(id: string, revision: number, event: Event, cause: Cause): Promise<Proposal | undefined> {
    const moved = await this.#database.transaction(async (queries) => {
      const now = await lockRules(queries)
      const proposal = await readProposal(queries, id)
      if (proposal === undefined || proposal.revision !== revision) return undefined
      if (event.type === 'advance' && (await isFrozen(queries)) !== undefined) return undefined
      return move(queries, proposal, event, cause, now)
    })
    if (moved !== undefined) await this.#moved(moved, true)
    return moved
  }

  /** While it rolls out: figures are deleted afterwards. */
  async figures(id: string): Promise<GuardFigures> {
    return this.#database.transaction(async (queries) => guardFigures(queries, await require(queries, id)))
  }

  async show(id: string): Promise<ShownProposal> {
    return this.#database.transaction(async (queries) => {
      const proposal = await require(queries, id)
      const [row] = await queries.query<{ now: Date }>('SELECT clock_timestamp() AS now', [])
      const approvals = await readApprovals(queries, approvable(proposal))
      return { proposal, approvals, conflicts: await conflictsOf(queries, proposal), now: row?.now ?? new Date(0) }
    })
  }

  list(query: ProposalQuery): Promise<Proposal[]> {
    return listProposals(this.#database, query)
  }

  approvalsRequired(): Promise<number> {
    return approvalsRequired(this.#database)
  }

  async #move(id: string, caller: Caller, choose: ChooseEvent): Promise<Proposal> {
    const moved = await this.#database.transaction(async (queries) => {
      const now: ActiveVersion = await lockRules(queries)
      const proposal = await require(queries, id)
      const { event, reason } = await choose(queries, proposal)
      return move(queries, proposal, event, { actor: caller.id, reason }, now)
    })
    await this.#moved(moved, false)
    return moved
  }

  async #moved(proposal: Proposal, byGuard: boolean): Promise<void> {
    this.#node.moved(proposal, byGuard)
    await this.#node.refresh()
  }
}

type ChooseEvent = (
  queries: Queries,
  proposal: Proposal,
) => Promise<{ readonly event: Event; readonly reason?: string | undefined }>

function approvable({ id, author, createdAt, attempt }: Proposal) {
  return { kind: 'proposal', id, author, createdAt, attempt }
}

async function require(queries: Queries, id: string): Promise<Proposal> {
  const proposal = await readProposal(queries, id)
  if (proposal !== undefined) return proposal
  throw new ProblemError(problem('PROPOSAL_UNKNOWN', `There is no proposal ${id}.`))
}

const OPEN_MAX = 1000

async function requireRoom(queries: Queries): Promise<void> {
  const sql = "SELECT count(*) AS open FROM proposals WHERE state IN ('draft', 'approved', 'rolling_out')"
  const [row] = await queries.query<{ open: number }>(sql, [])
  if ((row?.open ?? 0) < OPEN_MAX) return
  const detail = `${OPEN_MAX} proposals have not ended: reject or abort some first.`
  throw new ProblemError(problem('TOO_MANY_PROPOSALS', detail))
}

/** Conflicts between the current rules and a proposal that has not started. */
async function conflictsOf(queries: Queries, { state, changes }: Proposal): Promise<readonly Conflict[]> {
  if (state.name !== 'draft' && state.name !== 'approved') return []
  const present = await rulesIn(
    queries,
    changes.map(({ ruleId }) => ruleId),
  )
  return rebase(changes, new Map(present.map((rule) => [rule.rule_id, rule]))).conflicts
}
