// Approvals in the database: of proposals, and of anything else that needs them. Every function runs in the transaction
// of its caller, who locks the change first and writes the audit entry.

import { type Caller, ROLES } from '../access/roles.ts'
import type { Queries } from '../db/database.ts'
import { ProblemError, problem } from '../problems/problem.ts'
import { approvalsRequired } from '../rules/write-paths.ts'
import { type Approvable, type Approver, approvalProblem, stillCounts } from './approval-rules.ts'

/** Identifies a change that needs approval. */
export type ApprovedThing = Approvable & {
  /** `proposal`, `override`, … */
  readonly kind: string
  readonly id: string
  /** Approvals of an earlier attempt do not count. Default: 1. */
  readonly attempt?: number | undefined
}

export type Approval = { readonly tokenId: string; readonly name: string | null; readonly at: Date }

export type Approvals = {
  /** Approvals that count now, oldest first. */
  readonly given: readonly Approval[]
  readonly required: number
  readonly enough: boolean
}

/** Cap on the chain of creators that is followed. */
const CREATORS_MAX = 20
/** Admin token of the settings: it has no row. */
const SETTINGS_ADMIN = 'admin-token'

type TokenRow = {
  readonly id: string
  readonly role: string
  readonly recorded_at: Date
  readonly created_by: string | null
  readonly revoked: boolean
  readonly expired: boolean
}

/**
 * Records the approval of this caller. Throws 403 if it may not approve. With no approvals required, changes nothing.
 * Approving twice counts once.
 */
export async function approve(queries: Queries, thing: ApprovedThing, caller: Caller): Promise<Approvals> {
  const required = await approvalsRequired(queries)
  if (required === 0) return { given: [], required, enough: true }
  const reason = approvalProblem(thing, await readApprover(queries, caller))
  if (reason !== undefined) throw new ProblemError(problem('APPROVAL_FORBIDDEN', `Not approved: ${reason}.`))
  await queries.query(
    `INSERT INTO approvals (kind, subject_id, attempt, token_id, at) VALUES ($1, $2, $3, $4, clock_timestamp())
     ON CONFLICT DO NOTHING`,
    [thing.kind, thing.id, thing.attempt ?? 1, caller.id],
  )
  return readApprovals(queries, thing)
}

/** Approvals that count now: those of tokens that were revoked or lost their role since do not. */
export async function readApprovals(queries: Queries, thing: ApprovedThing): Promise<Approvals> {
  const rows = await queries.query<{ token_id: string; name: string | null; at: Date }>(
    `SELECT token_id, name, at FROM approvals LEFT JOIN api_tokens ON id = token_id
     WHERE kind = $1 AND subject_id = $2 AND attempt = $3 ORDER BY at, token_id`,
    [thing.kind, thing.id, thing.attempt ?? 1],
  )
  const given: Approval[] = []
  for (const { token_id: tokenId, name, at } of rows) {
    const approver = await readApprover(queries, {
      id: tokenId,
      role: tokenId === SETTINGS_ADMIN ? 'admin' : undefined,
    })
    if (stillCounts(thing, approver)) given.push({ tokenId, name, at })
  }
  const required = await approvalsRequired(queries)
  return { given, required, enough: given.length >= required }
}

/** Reads the token from the database: the copy of this node may be a second old. */
async function readApprover(queries: Queries, { id, role }: Caller): Promise<Approver> {
  const known = await tokenRow(queries, id)
  if (known === undefined) {
    return { id, role, recordedAt: undefined, creators: [], revoked: role === undefined, expired: false }
  }
  const { recorded_at: recordedAt, revoked, expired } = known
  const creators = await creatorsOf(queries, known)
  return { id, role: ROLES.find((name) => name === known.role), recordedAt, creators, revoked, expired }
}

async function creatorsOf(queries: Queries, token: TokenRow): Promise<string[]> {
  const creators: string[] = []
  for (let next = token.created_by; next !== null && creators.length < CREATORS_MAX; ) {
    creators.push(next)
    next = (await tokenRow(queries, next))?.created_by ?? null
  }
  return creators
}

async function tokenRow(queries: Queries, id: string): Promise<TokenRow | undefined> {
  const [row] = await queries.query<TokenRow>(
    `SELECT id, role, recorded_at, created_by, revoked_at IS NOT NULL AS revoked,
       coalesce(expires_at <= clock_timestamp(), false) AS expired
     FROM api_tokens WHERE id = $1`,
    [id],
  )
  return row
}
