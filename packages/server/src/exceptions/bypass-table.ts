// Bypass tokens in the database: created, approved, rotated, revoked and listed. Each change is one transaction with
// its audit entry and the notification of all nodes. A secret is returned once, to its creator.

import { createBypassToken } from 'sluice/bypass'
import type { Caller } from '../access/roles.ts'
import { type Approvals, approve as addApproval, approvalsRequired } from '../approvals/approval-table.ts'
import { appendAudit } from '../audit/audit.ts'
import { requireUnderstood } from '../compatibility/requirements.ts'
import type { UnknownContent } from '../compatibility/unknown-content.ts'
import type { Database, Queries } from '../db/database.ts'
import { ProblemError, problem } from '../problems/problem.ts'
import { BYPASS_STATES, type BypassState, type BypassToken } from './bypass-token.ts'
import { newId } from './ids.ts'
import { notPending } from './override-table.ts'

export const BYPASS_CHANNEL = 'sluice_bypass'
/** Cap on valid tokens: every node keeps all of them in memory. */
export const BYPASS_MAX = 1000
/** Features that nodes need to accept bypass tokens. */
export const BYPASS_FEATURES: readonly string[] = ['bypass_token']

export type BypassRequest = {
  readonly name: string
  readonly rules: readonly string[] | null
  readonly paths: readonly string[] | null
  readonly limitPerMinute: number
  readonly reason: string | undefined
  readonly expiresAt: Date
}

export type ListedBypass = {
  readonly bypassId: string
  readonly name: string
  readonly state: BypassState
  readonly rules: readonly string[] | null
  readonly paths: readonly string[] | null
  readonly limitPerMinute: number
  readonly reason: string | null
  readonly actor: string
  readonly actorName: string | null
  readonly createdAt: Date
  readonly expiresAt: Date
  readonly revokedAt: Date | null
  readonly uses: number
  readonly lastUsedAt: Date | null
  /** End of the grace period of the previous secret, while there is one. */
  readonly previousSecretEndsAt: Date | null
  readonly approvals: number
}

export type CreatedBypass = {
  readonly secret: string
  readonly approvalsRequired: number
  readonly token: ListedBypass
}

export type RotatedBypass = { readonly secret: string; readonly token: ListedBypass }

export type BypassTable = {
  create(request: BypassRequest, actor: string): Promise<CreatedBypass>
  approve(bypassId: string, caller: Caller): Promise<Approvals>
  /** The previous secret stays valid for the grace period. With approvals, only its creator may rotate a token. */
  rotate(bypassId: string, graceMs: number, actor: string): Promise<RotatedBypass>
  /** False if there is none with this id. A revoked token stays revoked. */
  revoke(bypassId: string, actor: string, reason: string | undefined): Promise<boolean>
  /** Newest first; valid ones before others if there are too many. */
  list(): Promise<readonly ListedBypass[]>
}

type BypassRow = {
  readonly bypass_id: string
  readonly name: string
  readonly state: BypassState
  readonly rules: readonly string[] | null
  readonly paths: readonly string[] | null
  readonly limit_per_minute: number
  readonly reason: string | null
  readonly actor: string
  readonly actor_name: string | null
  readonly created_at: Date
  readonly recorded_at: Date
  readonly expires_at: Date
  readonly revoked_at: Date | null
  readonly uses: number
  readonly last_used_at: Date | null
  readonly previous_ends_at: Date | null
  readonly approvals: number
}

export type BypassTableDeps = {
  readonly database: Database
  readonly now: () => Date
  /** Applies changes on this node. */
  readonly refresh: () => Promise<void>
}

export function bypassTable({ database, now, refresh }: BypassTableDeps): BypassTable {
  const change = async <T>(work: (queries: Queries) => Promise<T>): Promise<T> => {
    const result = await database.transaction(async (queries) => {
      const changed = await work(queries)
      await queries.query(`SELECT pg_notify('${BYPASS_CHANNEL}', '')`)
      return changed
    })
    await refresh()
    return result
  }
  return {
    create: (request, actor) => change((queries) => create(queries, request, actor, now())),
    approve: (id, caller) => change((queries) => approve(queries, id, caller, now())),
    rotate: (id, graceMs, actor) => change((queries) => rotate(queries, id, graceMs, actor, now())),
    revoke: (id, actor, reason) => change((queries) => revoke(queries, id, actor, reason, now())),
    list: () => list(database, now()),
  }
}

async function create(queries: Queries, request: BypassRequest, actor: string, at: Date): Promise<CreatedBypass> {
  const [row] = await queries.query<{ count: number }>(
    'SELECT count(*) AS count FROM bypass_tokens WHERE revoked_at IS NULL AND expires_at > $1',
    [at],
  )
  if ((row?.count ?? 0) >= BYPASS_MAX) {
    const detail = `There are ${BYPASS_MAX} bypass tokens: revoke some first.`
    throw new ProblemError(problem('TOO_MANY_TOKENS', detail))
  }
  await requireUnderstood(queries, BYPASS_FEATURES)
  const required = await approvalsRequired(queries)
  const state = required === 0 ? 'active' : 'pending'
  const bypassId = newId('byp', at)
  const { name, rules, paths, limitPerMinute, reason, expiresAt } = request
  await queries.query(
    `INSERT INTO bypass_tokens
       (bypass_id, name, state, rules, paths, limit_per_minute, reason, actor, created_at, expires_at)
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`,
    [
      ...[bypassId, name, state, rules && JSON.stringify(rules), paths && JSON.stringify(paths), limitPerMinute],
      ...[reason ?? null, actor, at, expiresAt],
    ],
  )
  const secret = await addSecret(queries, bypassId, at)
  const diff = { name, state, rules, paths, limit_per_minute: limitPerMinute, expires_at: expiresAt.toISOString() }
  await appendAudit(queries, { actor, action: 'bypass.create', target: bypassId, diff, reason }, at)
  return { secret, approvalsRequired: required, token: await found(queries, bypassId, at) }
}

async function addSecret(queries: Queries, bypassId: string, at: Date): Promise<string> {
  const { token, hash } = createBypassToken()
  const sql = 'INSERT INTO bypass_secrets (hash, bypass_id, created_at) VALUES ($1, $2, $3)'
  await queries.query(sql, [hash, bypassId, at])
  return token
}

async function approve(queries: Queries, bypassId: string, caller: Caller, at: Date): Promise<Approvals> {
  const sql = 'SELECT actor, recorded_at, state FROM bypass_tokens WHERE bypass_id = $1 FOR UPDATE'
  const [row] = await queries.query<Pick<BypassRow, 'actor' | 'recorded_at' | 'state'>>(sql, [bypassId])
  if (row === undefined) throw bypassUnknown(bypassId)
  if (row.state !== 'pending') throw notPending('bypass token', bypassId)
  const thing = { kind: 'bypass', id: bypassId, author: row.actor, createdAt: row.recorded_at }
  const approvals = await addApproval(queries, thing, caller)
  if (approvals.enough) {
    await requireUnderstood(queries, BYPASS_FEATURES)
    await queries.query("UPDATE bypass_tokens SET state = 'active' WHERE bypass_id = $1", [bypassId])
  }
  const diff = { approvals: approvals.given.length, required: approvals.required }
  await appendAudit(queries, { actor: caller.id, action: 'bypass.approve', target: bypassId, diff }, at)
  return approvals
}

async function rotate(
  queries: Queries,
  bypassId: string,
  graceMs: number,
  actor: string,
  at: Date,
): Promise<RotatedBypass> {
  const sql =
    'SELECT actor FROM bypass_tokens WHERE bypass_id = $1 AND revoked_at IS NULL AND expires_at > $2 FOR UPDATE'
  const [row] = await queries.query<Pick<BypassRow, 'actor'>>(sql, [bypassId, at])
  if (row === undefined) throw bypassUnknown(bypassId)
  if (row.actor !== actor && (await approvalsRequired(queries)) > 0) throw rotationForbidden(bypassId)
  const endsAt = new Date(at.getTime() + graceMs)
  // Deletes older secrets: after several rotations, only the one before this one stays valid.
  await queries.query('DELETE FROM bypass_secrets WHERE bypass_id = $1 AND ends_at IS NOT NULL', [bypassId])
  await queries.query('UPDATE bypass_secrets SET ends_at = $2 WHERE bypass_id = $1', [bypassId, endsAt])
  const secret = await addSecret(queries, bypassId, at)
  const diff = { previous_secret_ends_at: endsAt.toISOString() }
  await appendAudit(queries, { actor, action: 'bypass.rotate', target: bypassId, diff }, at)
  return { secret, token: await found(queries, bypassId, at) }
}

async function revoke(
  queries: Queries,
  bypassId: string,
  actor: string,
  reason: string | undefined,
  at: Date,
): Promise<boolean> {
  const sql =
    'UPDATE bypass_tokens SET revoked_at = $2 WHERE bypass_id = $1 AND revoked_at IS NULL RETURNING name, uses'
  const [diff] = await queries.query<{ name: string; uses: number }>(sql, [bypassId, at])
  if (diff === undefined)
    return (await queries.query('SELECT 1 FROM bypass_tokens WHERE bypass_id = $1', [bypassId])).length > 0
  await appendAudit(queries, { actor, action: 'bypass.revoke', target: bypassId, diff, reason }, at)
  return true
}

async function found(queries: Queries, bypassId: string, at: Date): Promise<ListedBypass> {
  const [token] = await select(queries, 'WHERE bypass_id = $2', [at, bypassId])
  if (token === undefined) throw bypassUnknown(bypassId)
  return token
}

function list(queries: Queries, at: Date): Promise<readonly ListedBypass[]> {
  const valid = '(revoked_at IS NULL AND expires_at > $1)'
  return select(
    queries,
    `WHERE bypass_id IN (
    SELECT bypass_id FROM bypass_tokens ORDER BY ${valid} DESC, bypass_id DESC LIMIT ${2 * BYPASS_MAX})`,
    [at],
  )
}

/** `$1` is the current time. */
async function select(queries: Queries, where: string, parameters: readonly unknown[]): Promise<ListedBypass[]> {
  const rows = await queries.query<BypassRow>(
    `SELECT bypass_id, bypass_tokens.name, state, rules, paths, limit_per_minute, reason, actor,
       api_tokens.name AS actor_name, bypass_tokens.created_at, bypass_tokens.expires_at, bypass_tokens.revoked_at,
       uses, bypass_tokens.last_used_at,
       (SELECT max(ends_at) FROM bypass_secrets WHERE bypass_secrets.bypass_id = bypass_tokens.bypass_id
         AND ends_at > $1) AS previous_ends_at,
       (SELECT count(*) FROM approvals WHERE kind = 'bypass' AND subject_id = bypass_id) AS approvals
     FROM bypass_tokens LEFT JOIN api_tokens ON id = actor ${where}
     ORDER BY bypass_id DESC`,
    parameters,
  )
  return rows.map((row) => ({
    bypassId: row.bypass_id,
    name: row.name,
    state: row.state,
    rules: row.rules,
    paths: row.paths,
    limitPerMinute: row.limit_per_minute,
    reason: row.reason,
    actor: row.actor,
    actorName: row.actor_name,
    createdAt: row.created_at,
    expiresAt: row.expires_at,
    revokedAt: row.revoked_at,
    uses: row.uses,
    lastUsedAt: row.last_used_at,
    previousSecretEndsAt: row.previous_ends_at,
    approvals: row.approvals,
  }))
}

/** Tokens as nodes need them: valid ones, and recently expired ones, which do not count as guesses. */
export async function readBypassTokens(queries: Queries, unknown: UnknownContent): Promise<BypassToken[]> {
  const rows = await queries.query<BypassRow & { readonly secrets: BypassToken['secrets'] }>(
    `SELECT bypass_id, name, state, rules, paths, limit_per_minute, expires_at, revoked_at,
       (SELECT coalesce(jsonb_agg(jsonb_build_object(
          'hash', hash, 'endsMs', (1000 * extract(epoch FROM ends_at))::float8)), '[]')
        FROM bypass_secrets WHERE bypass_secrets.bypass_id = bypass_tokens.bypass_id) AS secrets
     FROM bypass_tokens
     ORDER BY (revoked_at IS NULL AND expires_at > now()) DESC, bypass_id DESC LIMIT ${2 * BYPASS_MAX}`,
    [],
  )
  const others = rows.filter(({ state, revoked_at }) => revoked_at === null && !BYPASS_STATES.includes(state))
  const items = others.map(({ bypass_id, state }) => `${bypass_id}: state ${state}`)
  unknown.found('bypass tokens', items, 'they do not skip rules')
  return rows.map((row) => ({
    bypassId: row.bypass_id,
    name: row.name,
    state: row.state,
    rules: row.rules,
    paths: row.paths,
    limitPerMinute: row.limit_per_minute,
    expiresMs: row.expires_at.getTime(),
    revoked: row.revoked_at !== null,
    secrets: row.secrets,
  }))
}

/** The new secret goes to the caller alone, so another caller would get a token approved for someone else. */
function rotationForbidden(bypassId: string): ProblemError {
  const detail =
    `Not rotated: with approvals, only the token that created ${bypassId} may rotate it. ` +
    'Revoke it and create another one, which waits for approval.'
  return new ProblemError(problem('APPROVAL_FORBIDDEN', detail))
}

export function bypassUnknown(bypassId: string): ProblemError {
  const fix = 'GET /api/v1/rate-limit/bypass-tokens lists all bypass tokens'
  const fieldError = { field: 'bypass_id', value: bypassId, fix }
  return new ProblemError(problem('BYPASS_UNKNOWN', 'There is no valid bypass token with this id.', [fieldError]))
}
