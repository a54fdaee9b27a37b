// Tokens in the database: made, revoked and read. Each change is one transaction with its entry in the audit and the
// word to all nodes. The token itself is never stored, and told to nobody but whoever had it made.

import { appendAudit } from '../audit/audit.ts'
import type { Database, Queries } from '../db/database.ts'
import { ROLES, type Role } from './roles.ts'
import { newSecret, newTokenId, type Token, tokenHash } from './token.ts'

export const TOKENS_CHANNEL = 'sluice_tokens'
/** All of them are in the memory of every node, and read every few seconds. */
export const TOKENS_MAX = 2000
/** Any number will do that no other program uses for an advisory lock of the same database. */
const FIRST_TOKEN_LOCK = 7_365_852

export type TokenWish = {
  readonly name: string
  readonly role: Role
  /** null: it does not end by itself. */
  readonly expiresAt: Date | null
}

export type ListedToken = Token & { readonly lastUsedAt: string | null }

export type MadeToken = { readonly token: ListedToken; readonly secret: string }

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

/** What nodes have to know. A role that this version does not know gives no rights, and its token is left out. */
export async function readTokens(queries: Queries): Promise<Token[]> {
  return (await listTokens(queries)).map(({ lastUsedAt, ...token }) => token)
}

/** The newest first. When there are too many to tell, those that ended are left out before any that is good. */
export async function listTokens(queries: Queries): Promise<ListedToken[]> {
  const rows = await queries.query<TokenRow>(
    `SELECT * FROM (
       SELECT id, name, role, hash, created_at, expires_at, revoked_at, last_used_at FROM api_tokens
       ORDER BY revoked_at IS NOT NULL OR coalesce(expires_at <= now(), false), created_at DESC, id
       LIMIT ${2 * TOKENS_MAX}
     ) told ORDER BY created_at DESC, id`,
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

/** Undefined when there are too many already. */
export function createToken(
  database: Database,
  wish: TokenWish,
  actor: string,
  at: Date,
): Promise<MadeToken | undefined> {
  return database.transaction(async (queries) => {
    const [row] = await queries.query<{ living: number }>(
      'SELECT count(*) AS living FROM api_tokens WHERE revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $1)',
      [at],
    )
    return (row?.living ?? 0) >= TOKENS_MAX ? undefined : insertToken(queries, wish, actor, at)
  })
}

/** The admin of a database that has no tokens yet; of several nodes that start at once, one makes it. */
export function createFirstToken(database: Database, at: Date): Promise<MadeToken | undefined> {
  return database.transaction(async (queries) => {
    await queries.query(`SELECT pg_advisory_xact_lock(${FIRST_TOKEN_LOCK})`)
    const some = await queries.query('SELECT 1 FROM api_tokens LIMIT 1', [])
    const wish = { name: 'first start', role: 'admin' as const, expiresAt: null }
    return some.length > 0 ? undefined : insertToken(queries, wish, 'sluice', at)
  })
}

async function insertToken(queries: Queries, wish: TokenWish, actor: string, at: Date): Promise<MadeToken> {
  const { name, role, expiresAt } = wish
  const secret = newSecret()
  const row = { id: newTokenId(), name, role, hash: tokenHash(secret), created_at: at, expires_at: expiresAt }
  await queries.query(
    'INSERT INTO api_tokens (id, name, role, hash, created_at, expires_at) VALUES ($1, $2, $3, $4, $5, $6)',
    [row.id, name, role, row.hash, at, expiresAt],
  )
  const diff = { name, role, expires_at: expiresAt?.toISOString() ?? null }
  await appendAudit(queries, { actor, action: 'token.create', target: row.id, diff }, at)
  await tellNodes(queries)
  return { token: tokenOf({ ...row, revoked_at: null, last_used_at: null }, role), secret }
}

/** False when there is no such token. One that is revoked already stays so. */
export function revokeToken(database: Database, tokenId: string, actor: string, at: Date): Promise<boolean> {
  return database.transaction(async (queries) => {
    const sql = 'UPDATE api_tokens SET revoked_at = $2 WHERE id = $1 AND revoked_at IS NULL RETURNING name, role'
    const [revoked] = await queries.query<{ name: string; role: string }>(sql, [tokenId, at])
    if (revoked === undefined)
      return (await queries.query('SELECT 1 FROM api_tokens WHERE id = $1', [tokenId])).length > 0
    await appendAudit(queries, { actor, action: 'token.revoke', target: tokenId, diff: revoked }, at)
    await tellNodes(queries)
    return true
  })
}

/** When tokens were last used, to the nearest few seconds. Tells nobody: it changes no rights. */
export async function noteUses(queries: Queries, uses: ReadonlyMap<string, number>): Promise<void> {
  if (uses.size === 0) return
  await queries.query(
    `UPDATE api_tokens SET last_used_at = used.at
     FROM (SELECT unnest($1::text[]) AS id, unnest($2::timestamptz[]) AS at) used
     WHERE api_tokens.id = used.id AND (last_used_at IS NULL OR last_used_at < used.at)`,
    [[...uses.keys()], [...uses.values()].map((ms) => new Date(ms).toISOString())],
  )
}

async function tellNodes(queries: Queries): Promise<void> {
  await queries.query(`SELECT pg_notify('${TOKENS_CHANNEL}', '')`)
}
