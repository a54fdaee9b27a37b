// Approvals in the database: of proposals, and of anything else that needs them. Every function runs in the transaction
// of its caller, who locks the change first and writes the audit entry.

import { type Caller, ROLES, type Role } from '../access/roles.ts'
import type { Queries } from '../db/database.ts'
import { ProblemError, problem } from '../problems/problem.ts'
import { approvalsRequired } from '../rules/write-paths.ts'
import {
  type Approvable,
  type Approver,
  approvalProblem,
  familyOf,
  type Line,
  relatedText,
  stillCounts,
} from './approval-rules.ts'

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

/** Admin token of the settings: it has no row. */
const SETTINGS_ADMIN = 'admin-token'

type TokenRow = {
  readonly id: string
  readonly role: string
  readonly recorded_at: Date
  readonly revoked: boolean
  readonly expired: boolean
}

/**
 * Records the approval of this caller. Throws 403 if it may not approve, or is related to one who has. Changes nothing
 * if no approvals are required. Approving twice counts once.
 */
export async function approve(queries: Queries, thing: ApprovedThing, caller: Caller): Promise<Approvals> {
  const required = await approvalsRequired(queries)
  if (required === 0) return { given: [], required, enough: true }
  const approver = await readApprover(queries, caller)
  const reason = approvalProblem(thing, await readFamily(queries, thing.author), approver)
  if (reason !== undefined) throw forbidden(reason)
  for (const { tokenId } of (await readApprovals(queries, thing)).given) {
    if (tokenId === approver.id || (await readFamily(queries, tokenId)) !== approver.family) continue
    throw forbidden(relatedText(approver.id, tokenId, 'a token that has approved', approver.family))
  }
  await queries.query(
    `INSERT INTO approvals (kind, subject_id, attempt, token_id, at) VALUES ($1, $2, $3, $4, clock_timestamp())
     ON CONFLICT DO NOTHING`,
    [thing.kind, thing.id, thing.attempt ?? 1, caller.id],
  )
  return readApprovals(queries, thing)
}

const ASK = 'Ask the holder of an unrelated token (docs/guides/access.md#what-approvals-protect-from).'

function forbidden(reason: string): ProblemError {
  return new ProblemError(problem('APPROVAL_FORBIDDEN', `Not approved: ${reason}. ${ASK}`))
}

/**
 * Approvals that count now: those of tokens that were revoked or lost their role since do not. Related tokens count as
 * one.
 */
export async function readApprovals(queries: Queries, thing: ApprovedThing): Promise<Approvals> {
  const rows = await queries.query<{ token_id: string; name: string | null; at: Date }>(
    `SELECT token_id, name, at FROM approvals LEFT JOIN api_tokens ON id = token_id
     WHERE kind = $1 AND subject_id = $2 AND attempt = $3 ORDER BY at, token_id`,
    [thing.kind, thing.id, thing.attempt ?? 1],
  )
  const given: Approval[] = []
  const family = await readFamily(queries, thing.author)
  const counted = new Set<string>()
  for (const { token_id: tokenId, name, at } of rows) {
    const approver = await readApprover(queries, {
      id: tokenId,
      role: tokenId === SETTINGS_ADMIN ? 'admin' : undefined,
    })
    if (counted.has(approver.family) || !stillCounts(thing, family, approver)) continue
    counted.add(approver.family)
    given.push({ tokenId, name, at })
  }
  const required = await approvalsRequired(queries)
  return { given, required, enough: given.length >= required }
}

/** Reads the token from the database: the copy of this node may be a second old. */
async function readApprover(queries: Queries, { id, role }: Caller): Promise<Approver> {
  const family = await readFamily(queries, id)
  const [known] = await queries.query<TokenRow>(
    `SELECT id, role, recorded_at, revoked_at IS NOT NULL AS revoked,
       coalesce(expires_at <= clock_timestamp(), false) AS expired
     FROM api_tokens WHERE id = $1`,
    [id],
  )
  if (known === undefined) {
    return { id, role, recordedAt: undefined, family, revoked: role === undefined, expired: false }
  }
  const { recorded_at: recordedAt, revoked, expired } = known
  return { id, role: ROLES.find((name) => name === known.role), recordedAt, family, revoked, expired }
}

/** Follows the creators of a token, revoked ones too. */
async function readFamily(queries: Queries, id: string): Promise<string> {
  const line = await queries.query<Line[number]>(
    `WITH RECURSIVE line AS (
       SELECT id, created_by FROM api_tokens WHERE id = $1
       UNION SELECT creator.id, creator.created_by FROM api_tokens creator JOIN line ON creator.id = line.created_by
     ) SELECT id, created_by FROM line`,
    [id],
  )
  return familyOf(id, line)
}

/** Number of families with a valid token of one of these roles: people who can act independently. */
export async function countFamilies(queries: Queries, roles: readonly Role[]): Promise<number> {
  const tokens = await queries.query<{ id: string; created_by: string | null; counts: boolean }>(
    `SELECT id, created_by, role = ANY($1::text[]) AND revoked_at IS NULL
       AND (expires_at IS NULL OR expires_at > clock_timestamp()) AS counts FROM api_tokens`,
    [roles],
  )
  return new Set(tokens.flatMap(({ id, counts }) => (counts ? familyOf(id, tokens) : []))).size
}
