// Tokens as managed by the admin API, and those that wait for approval. With approvals required, a token of the role
// editor or above takes effect only once others have approved it: its creator could otherwise act as several people.
// The creator gets the secret at once; no node accepts it until the last approval moves its row to the tokens.

import type { Caller, Role } from '../access/roles.ts'
import { newSecret, newTokenId, tokenHash } from '../access/token.ts'
import {
  type CreatedToken,
  hasRoom,
  insertToken,
  type ListedToken,
  listTokens,
  notifyNodes,
  revokeToken,
  type TokenRequest,
} from '../access/token-table.ts'
import { appendAudit } from '../audit/audit.ts'
import type { Database, Queries } from '../db/database.ts'
import { ProblemError, problem } from '../problems/problem.ts'
import { admitWrite, approvalsRequired } from '../rules/write-paths.ts'
import { type Approvals, approve, readApprovals } from './approval-table.ts'

/** A token is deleted if it is not approved within this time. */
const WAIT_MS = 86_400_000
const PENDING_MAX = 100
/** Roles that neither change rules nor approve. */
const READERS: readonly Role[] = ['check', 'viewer']

type PendingRow = {
  readonly id: string
  readonly name: string
  readonly role: Role
  readonly hash: string
  readonly created_by: string
  readonly created_at: Date
  readonly expires_at: Date | null
  readonly waits_until: Date
  readonly recorded_at: Date
}

/** Each call resolves once its change is active on this node. */
export type TokenStore = {
  /** Undefined when there are too many tokens. */
  create(request: TokenRequest, actor: string): Promise<CreatedToken | undefined>
  /** Throws if no token with this id waits for approval. */
  approve(tokenId: string, caller: Caller): Promise<Approvals>
  /** Also withdraws a token that waits for approval. False when the token does not exist. */
  revoke(tokenId: string, actor: string): Promise<boolean>
  list(): Promise<readonly ListedToken[]>
}

/** `refresh` applies the tokens on this node. */
export function tokenStore(database: Database, refresh: () => Promise<void>, now: () => Date): TokenStore {
  const refreshed = async <T>(change: Promise<T>): Promise<T> => {
    const result = await change
    await refresh()
    return result
  }
  return {
    list: async () => [...(await listPending(database, now())), ...(await listTokens(database))],
    create: (request, actor) => refreshed(requestToken(database, request, actor, now())),
    approve: (tokenId, caller) => refreshed(approveToken(database, tokenId, caller, now())),
    revoke: async (tokenId, actor) => {
      const isWithdrawn = await withdrawToken(database, tokenId, actor, now())
      return isWithdrawn || refreshed(revokeToken(database, tokenId, actor, now()))
    },
  }
}

/** Creates a token, pending if it needs approval. Undefined when there are too many. */
function requestToken(
  database: Database,
  request: TokenRequest,
  actor: string,
  at: Date,
): Promise<CreatedToken | undefined> {
  return database.transaction(async (queries) => {
    await deleteOverdue(queries, at)
    const isReader = READERS.includes(request.role)
    const required = await admitWrite(queries, isReader ? 'token.create_reader' : 'token.create')
    const [row] = await queries.query<{ pending: number }>('SELECT count(*) AS pending FROM pending_tokens', [])
    if (!(await hasRoom(queries, at)) || (required > 0 && (row?.pending ?? 0) >= PENDING_MAX)) return undefined
    return required === 0 ? insertToken(queries, request, actor, at) : insertPending(queries, request, actor, at)
  })
}

async function insertPending(queries: Queries, request: TokenRequest, actor: string, at: Date): Promise<CreatedToken> {
  const { name, role, expiresAt } = request
  const secret = newSecret()
  const [id, until] = [newTokenId(), new Date(at.getTime() + WAIT_MS)]
  const [row] = await queries.query<PendingRow>(
    `INSERT INTO pending_tokens (id, name, role, hash, created_by, created_at, expires_at, waits_until)
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8) RETURNING *`,
    [id, name, role, tokenHash(secret), actor, at, expiresAt, until],
  )
  if (row === undefined) throw new Error(`token ${id} was not written`)
  const diff = { name, role, expires_at: expiresAt?.toISOString() ?? null, state: 'pending' }
  await appendAudit(queries, { actor, action: 'token.create', target: id, diff }, at)
  return { token: await listed(queries, row), secret }
}

/** Records an approval. The last one makes the token valid. */
function approveToken(database: Database, tokenId: string, caller: Caller, at: Date): Promise<Approvals> {
  return database.transaction(async (queries) => {
    await admitWrite(queries, 'token.approve')
    await deleteOverdue(queries, at)
    const [row] = await queries.query<PendingRow>('SELECT * FROM pending_tokens WHERE id = $1 FOR UPDATE', [tokenId])
    if (row === undefined) throw notPendingToken(tokenId)
    const approvals = await approve(queries, thingOf(row), caller)
    if (approvals.enough) {
      await queries.query(
        `WITH approved AS (DELETE FROM pending_tokens WHERE id = $1 RETURNING *)
         INSERT INTO api_tokens (id, name, role, hash, created_at, expires_at, created_by)
         SELECT id, name, role, hash, created_at, expires_at, created_by FROM approved`,
        [tokenId],
      )
      await notifyNodes(queries)
    }
    const diff = { name: row.name, role: row.role, approvals: approvals.given.length, required: approvals.required }
    await appendAudit(queries, { actor: caller.id, action: 'token.approve', target: tokenId, diff }, at)
    return approvals
  })
}

/** False if no token with this id waits. */
function withdrawToken(database: Database, tokenId: string, actor: string, at: Date): Promise<boolean> {
  return database.transaction(async (queries) => {
    const sql = 'DELETE FROM pending_tokens WHERE id = $1 RETURNING name, role'
    const [row] = await queries.query<{ name: string; role: string }>(sql, [tokenId])
    if (row === undefined) return false
    const diff = { name: row.name, role: row.role, state: 'pending' }
    await appendAudit(queries, { actor, action: 'token.revoke', target: tokenId, diff }, at)
    return true
  })
}

/** Newest first. */
function listPending(database: Database, at: Date): Promise<ListedToken[]> {
  return database.transaction(async (queries) => {
    const sql = 'SELECT * FROM pending_tokens WHERE waits_until > $1 ORDER BY created_at DESC, id'
    const tokens: ListedToken[] = []
    for (const row of await queries.query<PendingRow>(sql, [at])) tokens.push(await listed(queries, row))
    return tokens
  })
}

async function deleteOverdue(queries: Queries, at: Date): Promise<void> {
  const sql = 'DELETE FROM pending_tokens WHERE waits_until <= $1 RETURNING id, name, role'
  for (const { id, name, role } of await queries.query<PendingRow>(sql, [at])) {
    const diff = { name, role, state: 'pending' }
    await appendAudit(queries, { actor: 'sluice', action: 'token.expire', target: id, diff }, at)
  }
}

function thingOf({ id, created_by: author, recorded_at: createdAt }: PendingRow) {
  return { kind: 'token', id, author, createdAt }
}

async function listed(queries: Queries, row: PendingRow): Promise<ListedToken> {
  const { given } = await readApprovals(queries, thingOf(row))
  return {
    tokenId: row.id,
    name: row.name,
    role: row.role,
    hash: row.hash,
    createdAt: row.created_at.toISOString(),
    expiresAt: row.expires_at?.toISOString() ?? null,
    revokedAt: null,
    lastUsedAt: null,
    pending: {
      approvals: given.length,
      approvalsRequired: await approvalsRequired(queries),
      until: row.waits_until.toISOString(),
    },
  }
}

function notPendingToken(tokenId: string): ProblemError {
  const fix = 'GET /api/v1/admin/tokens lists all tokens; a pending one is deleted after a day'
  const fieldError = { field: 'token_id', value: tokenId, fix }
  const detail = `The token ${tokenId} does not wait for approval: it is unknown, approved already, or was deleted.`
  return new ProblemError(problem('NOT_PENDING', detail, [fieldError]))
}
