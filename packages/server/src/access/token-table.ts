// Tokens in the database: created, revoked and read. Each change is one transaction with its audit entry and the
// notification of all nodes. Only hashes are stored; the token itself is returned once, to its creator.

import { appendAudit } from '../audit/audit.ts'
import { requireUnderstood } from '../compatibility/requirements.ts'
import type { UnknownContent } from '../compatibility/unknown-content.ts'
import type { Database, Queries } from '../db/database.ts'
import { ROLES, type Role } from './roles.ts'
import { newSecret, newTokenId, type Token, tokenHash } from './token.ts'

export const TOKENS_CHANNEL = 'sluice_tokens'
/** Every node keeps all tokens in memory and reads them every few seconds. */
export const TOKENS_MAX = 2000
/** Arbitrary, but unique among advisory locks of the database. */
/** Features that nodes need to accept tokens. */
export const ROLE_FEATURES: readonly string[] = ROLES.map((role) => `role.${role}`)
const FIRST_TOKEN_LOCK = 7_365_852

export type TokenRequest = {
  readonly name: string
  readonly role: Role
  /** null: does not expire. */
  readonly expiresAt: Date | null
}

export type ListedToken = Token & { readonly lastUsedAt: string | null }

export type CreatedToken = { readonly token: ListedToken; readonly secret: string }

/** Tokens as managed by the admin API. Each call resolves once its change is active on this node. */
export type TokenStore = {
  /** Undefined when there are TOKENS_MAX active tokens. */
  create(request: TokenRequest, actor: string): Promise<CreatedToken | undefined>
  /** False when the token does not exist. */
  revoke(tokenId: string, actor: string): Promise<boolean>
  list(): Promise<readonly ListedToken[]>
}

type TokenRow = {
  readonly id: string
  readonly name: string
  readonly role: string
  readonly hash: string
  readonly created_at: Date
  readonly expires_at: Date | null
  readonly revoked_at: Date | null
  readonly last_used_at: Date | null
}

/** Tokens as nodes need them. Leaves out tokens whose role this version does not know. */
export async function readTokens(queries: Queries, unknown: UnknownContent): Promise<Token[]> {
  const others = await queries.query<Pick<TokenRow, 'id' | 'role'>>(
    `SELECT id, role FROM api_tokens WHERE role <> ALL ($1::text[]) AND revoked_at IS NULL
       AND (expires_at IS NULL OR expires_at > now()) ORDER BY id`,
    [ROLES],
  )
  const items = others.map(({ id, role }) => `${id}: role ${role}`)
  unknown.found('tokens', items, 'requests with them get 401')
  return (await listTokens(queries)).map(({ lastUsedAt, ...token }) => token)
}

/** Newest first. At the row limit, expired and revoked tokens are left out first. */
export async function listTokens(queries: Queries): Promise<ListedToken[]> {
  const rows = await queries.query<TokenRow>(
    `SELECT * FROM (
       SELECT id, name, role, hash, created_at, expires_at, revoked_at, last_used_at FROM api_tokens
       ORDER BY revoked_at IS NOT NULL OR coalesce(expires_at <= now(), false), created_at DESC, id
       LIMIT ${2 * TOKENS_MAX}
     ) listed ORDER BY created_at DESC, id`,
    [],
  )
  return rows.flatMap((row) => {
    const role = ROLES.find((known) => known === row.role)
    return role === undefined ? [] : tokenOf(row, role)
  })
}

function tokenOf(row: TokenRow, role: Role): ListedToken {
  return {
    tokenId: row.id,
    name: row.name,
    role,
    hash: row.hash,
    createdAt: row.created_at.toISOString(),
    expiresAt: row.expires_at?.toISOString() ?? null,
    revokedAt: row.revoked_at?.toISOString() ?? null,
    lastUsedAt: row.last_used_at?.toISOString() ?? null,
  }
}

/** Undefined when there are TOKENS_MAX active tokens. */
export function createToken(
  database: Database,
  request: TokenRequest,
  actor: string,
  at: Date,
): Promise<CreatedToken | undefined> {
  return database.transaction(async (queries) => {
    const [row] = await queries.query<{ active: number }>(
      'SELECT count(*) AS active FROM api_tokens WHERE revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $1)',
      [at],
    )
    return (row?.active ?? 0) >= TOKENS_MAX ? undefined : insertToken(queries, request, actor, at)
  })
}

/** Creates the admin token of a database without tokens. Of several nodes that start together, one creates it. */
export function createFirstToken(database: Database, at: Date): Promise<CreatedToken | undefined> {
  return database.transaction(async (queries) => {
    await queries.query(`SELECT pg_advisory_xact_lock(${FIRST_TOKEN_LOCK})`)
    const some = await queries.query('SELECT 1 FROM api_tokens LIMIT 1', [])
    const request = { name: 'first start', role: 'admin' as const, expiresAt: null }
    return some.length > 0 ? undefined : insertToken(queries, request, 'sluice', at)
  })
}

async function insertToken(queries: Queries, request: TokenRequest, actor: string, at: Date): Promise<CreatedToken> {
  const { name, role, expiresAt } = request
  await requireUnderstood(queries, [`role.${role}`])
  const secret = newSecret()
  const row = { id: newTokenId(), name, role, hash: tokenHash(secret), created_at: at, expires_at: expiresAt }
  await queries.query(
    `INSERT INTO api_tokens (id, name, role, hash, created_at, expires_at, created_by)
     VALUES ($1, $2, $3, $4, $5, $6, $7)`,
    [row.id, name, role, row.hash, at, expiresAt, actor],
  )
  const diff = { name, role, expires_at: expiresAt?.toISOString() ?? null }
  await appendAudit(queries, { actor, action: 'token.create', target: row.id, diff }, at)
  await notifyNodes(queries)
  return { token: tokenOf({ ...row, revoked_at: null, last_used_at: null }, role), secret }
}

/** False when the token does not exist. A revoked token stays revoked. */
export function revokeToken(database: Database, tokenId: string, actor: string, at: Date): Promise<boolean> {
  return database.transaction(async (queries) => {
    const sql = 'UPDATE api_tokens SET revoked_at = $2 WHERE id = $1 AND revoked_at IS NULL RETURNING name, role'
    const [revoked] = await queries.query<{ name: string; role: string }>(sql, [tokenId, at])
    if (revoked === undefined)
      return (await queries.query('SELECT 1 FROM api_tokens WHERE id = $1', [tokenId])).length > 0
    await appendAudit(queries, { actor, action: 'token.revoke', target: tokenId, diff: revoked }, at)
    await notifyNodes(queries)
    return true
  })
}

/** Records when tokens were last used, to the nearest few seconds. Sends no notification: roles do not change. */
export async function noteUses(queries: Queries, uses: ReadonlyMap<string, number>): Promise<void> {
  if (uses.size === 0) return
  await queries.query(
    `UPDATE api_tokens SET last_used_at = used.at
     FROM (SELECT unnest($1::text[]) AS id, unnest($2::timestamptz[]) AS at) used
     WHERE api_tokens.id = used.id AND (last_used_at IS NULL OR last_used_at < used.at)`,
    [[...uses.keys()], [...uses.values()].map((ms) => new Date(ms).toISOString())],
  )
}

async function notifyNodes(queries: Queries): Promise<void> {
  await queries.query(`SELECT pg_notify('${TOKENS_CHANNEL}', '')`)
}
