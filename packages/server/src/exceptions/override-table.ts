// Overrides in the database. Each change is one transaction with a new revision, its audit entry and the notification
// of all nodes. Revisions are committed in their order, so a node reads only the rows above the revision that it has.

import type { Caller } from '../access/roles.ts'
import { type Approvals, approve as addApproval, approvalsRequired } from '../approvals/approval-table.ts'
import { appendAudit } from '../audit/audit.ts'
import { requireUnderstood } from '../compatibility/requirements.ts'
import type { Database, Queries } from '../db/database.ts'
import { ProblemError, problem } from '../problems/problem.ts'
import { newId } from './ids.ts'
import { keyText } from './key.ts'
import {
  type Effect,
  type ExceptionState,
  featuresOfEffect,
  type OverrideRequest,
  replacementGroup,
  type StoredOverride,
} from './override.ts'

export const OVERRIDES_CHANNEL = 'sluice_overrides'
/** Every node keeps all overrides in memory. */
export const OVERRIDES_MAX = 100_000

export type CreatedOverride = {
  readonly overrideId: string
  readonly state: ExceptionState
  /** Approvals that it needs to take effect. */
  readonly approvalsRequired: number
  /** Overrides of the same rule, key and limit that it replaced. */
  readonly replaced: readonly string[]
}

export type OverrideQuery = {
  readonly ruleId?: string | undefined
  readonly owner?: string | undefined
  readonly fact?: string | undefined
  /** Only overrides before this one: the last of the previous page. */
  readonly before?: string | undefined
  readonly limit: number
}

export type OverrideTable = {
  create(request: OverrideRequest, actor: string): Promise<CreatedOverride>
  approve(overrideId: string, caller: Caller): Promise<Approvals>
  /** False if there is none with this id. */
  remove(overrideId: string, actor: string, reason: string | undefined): Promise<boolean>
  find(overrideId: string): Promise<StoredOverride | undefined>
  /** Newest first. Without expired ones. */
  list(query: OverrideQuery): Promise<readonly StoredOverride[]>
}

type OverrideRow = {
  readonly override_id: string
  readonly state: ExceptionState
  readonly rule_id: string | null
  readonly fact: string
  readonly owner: string
  readonly effect: Effect
  readonly reason: string
  readonly actor: string
  readonly actor_name: string | null
  readonly created_at: Date
  readonly recorded_at: Date
  readonly expires_at: Date | null
  readonly approvals: number
}

export type OverrideTableDeps = {
  readonly database: Database
  readonly now: () => Date
  /** Applies changes on this node. */
  readonly refresh: () => Promise<void>
}

export function overrideTable(deps: OverrideTableDeps): OverrideTable {
  const { database, now, refresh } = deps
  const change = async <T>(work: (queries: Queries, revision: number) => Promise<T>): Promise<T> => {
    const result = await database.transaction(async (queries) => {
      const changed = await work(queries, await nextRevision(queries))
      await queries.query(`SELECT pg_notify('${OVERRIDES_CHANNEL}', '')`)
      return changed
    })
    await refresh()
    return result
  }
  return {
    create: (request, actor) => change((queries, revision) => create(queries, revision, request, actor, now())),
    approve: (id, caller) => change((queries, revision) => approve(queries, revision, id, caller, now())),
    remove: (id, actor, reason) => change((queries, revision) => remove(queries, revision, id, actor, reason, now())),
    find: async (id) => (await select(database, 'override_id = $2', [now(), id], 1))[0],
    list: (query) => list(database, query, now()),
  }
}

/** Locks the row until the transaction ends. */
async function nextRevision(queries: Queries): Promise<number> {
  const sql = 'UPDATE override_revision SET revision = revision + 1 RETURNING revision'
  const [row] = await queries.query<{ revision: number }>(sql, [])
  if (row === undefined) throw new Error('the table override_revision is empty: it was modified by hand')
  return row.revision
}

async function create(
  queries: Queries,
  revision: number,
  request: OverrideRequest,
  actor: string,
  at: Date,
): Promise<CreatedOverride> {
  const [row] = await queries.query<{ count: number }>(
    "SELECT count(*) AS count FROM overrides WHERE state <> 'removed' AND (expires_at IS NULL OR expires_at > $1)",
    [at],
  )
  if ((row?.count ?? 0) >= OVERRIDES_MAX) throw tooManyOverrides()
  await requireUnderstood(queries, featuresOfEffect(request.effect))
  const required = request.raises ? await approvalsRequired(queries) : 0
  const state = required === 0 ? 'active' : 'pending'
  const overrideId = newId('ovr', at)
  const { ruleId, key, effect, reason, expiresAt } = request
  const replaced = state === 'active' ? await replaceEarlier(queries, revision, request, at) : []
  await queries.query(
    `INSERT INTO overrides
       (override_id, revision, state, rule_id, fact, owner, slot, effect, reason, actor, created_at, expires_at)
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)`,
    [
      ...[overrideId, revision, state, ruleId, key.fact, key.owner, replacementGroup(effect), JSON.stringify(effect)],
      ...[reason, actor, at, expiresAt],
    ],
  )
  const diff = { ...describe(request), state, ...(replaced.length > 0 ? { replaced } : {}) }
  await appendAudit(queries, { actor, action: 'override.create', target: overrideId, diff, reason }, at)
  return { overrideId, state, approvalsRequired: required, replaced }
}

/** Removes active overrides of the same rule, key and replacement key. */
async function replaceEarlier(
  queries: Queries,
  revision: number,
  { ruleId, key, effect }: Pick<OverrideRequest, 'ruleId' | 'key' | 'effect'>,
  at: Date,
): Promise<string[]> {
  const rows = await queries.query<{ override_id: string }>(
    `UPDATE overrides SET state = 'removed', revision = $1, removed_at = $2
     WHERE md5(owner) = md5($3::text) AND owner = $3 AND fact = $4 AND slot = $5
       AND rule_id IS NOT DISTINCT FROM $6 AND state = 'active'
     RETURNING override_id`,
    [revision, at, key.owner, key.fact, replacementGroup(effect), ruleId],
  )
  return rows.map(({ override_id }) => override_id)
}

async function approve(
  queries: Queries,
  revision: number,
  overrideId: string,
  caller: Caller,
  at: Date,
): Promise<Approvals> {
  const [found] = await select(queries, 'override_id = $2', [at, overrideId], 1)
  if (found === undefined) throw overrideUnknown(overrideId)
  if (found.state !== 'pending') throw notPending('override', overrideId)
  const { actor: author, recordedAt: createdAt } = found
  const approvals = await addApproval(queries, { kind: 'override', id: overrideId, author, createdAt }, caller)
  if (approvals.enough) {
    await requireUnderstood(queries, featuresOfEffect(found.effect))
    await replaceEarlier(queries, revision, found, at)
    const sql = "UPDATE overrides SET state = 'active', revision = $2 WHERE override_id = $1"
    await queries.query(sql, [overrideId, revision])
  }
  const diff = { approvals: approvals.given.length, required: approvals.required }
  await appendAudit(queries, { actor: caller.id, action: 'override.approve', target: overrideId, diff }, at)
  return approvals
}

async function remove(
  queries: Queries,
  revision: number,
  overrideId: string,
  actor: string,
  reason: string | undefined,
  at: Date,
): Promise<boolean> {
  const [found] = await select(queries, 'override_id = $2', [at, overrideId], 1)
  if (found === undefined) return false
  const sql = "UPDATE overrides SET state = 'removed', revision = $2, removed_at = $3 WHERE override_id = $1"
  await queries.query(sql, [overrideId, revision, at])
  const entry = { actor, action: 'override.remove', target: overrideId, diff: describe(found), reason }
  await appendAudit(queries, entry, at)
  return true
}

/** Override as the audit log shows it. */
function describe({
  ruleId,
  key,
  effect,
  expiresAt,
}: Pick<OverrideRequest, 'ruleId' | 'key' | 'effect' | 'expiresAt'>) {
  return { rule_id: ruleId, key: keyText(key), ...effect, expires_at: expiresAt?.toISOString() ?? null }
}

async function list(queries: Queries, query: OverrideQuery, at: Date): Promise<readonly StoredOverride[]> {
  const parameters: unknown[] = [at]
  const conditions: string[] = ['true']
  const add = (condition: (placeholder: string) => string, value: unknown) => {
    if (value === undefined) return
    parameters.push(value)
    conditions.push(condition(`$${parameters.length}`))
  }
  add((value) => `rule_id = ${value}`, query.ruleId)
  add((value) => `fact = ${value}`, query.fact)
  add((value) => `md5(owner) = md5(${value}::text) AND owner = ${value}`, query.owner)
  add((value) => `override_id < ${value}`, query.before)
  return select(queries, conditions.join(' AND '), parameters, query.limit)
}

/** `$1` is the current time. */
async function select(
  queries: Queries,
  condition: string,
  parameters: readonly unknown[],
  limit: number,
): Promise<StoredOverride[]> {
  const rows = await queries.query<OverrideRow>(
    `SELECT override_id, state, rule_id, fact, owner, effect, reason, actor, name AS actor_name,
       overrides.created_at, overrides.expires_at,
       (SELECT count(*) FROM approvals WHERE kind = 'override' AND subject_id = override_id) AS approvals,
       overrides.recorded_at
     FROM overrides LEFT JOIN api_tokens ON id = actor
     WHERE state <> 'removed' AND (overrides.expires_at IS NULL OR overrides.expires_at > $1) AND ${condition}
     ORDER BY override_id DESC LIMIT ${limit}`,
    parameters,
  )
  return rows.map((row) => ({
    overrideId: row.override_id,
    state: row.state,
    ruleId: row.rule_id,
    key: { fact: row.fact, owner: row.owner },
    effect: row.effect,
    reason: row.reason,
    actor: row.actor,
    actorName: row.actor_name,
    createdAt: row.created_at,
    expiresAt: row.expires_at,
    recordedAt: row.recorded_at,
    approvals: row.approvals,
  }))
}

export function overrideUnknown(overrideId: string): ProblemError {
  const fix = 'GET /api/v1/rate-limit/overrides lists all overrides'
  return new ProblemError(
    problem('OVERRIDE_UNKNOWN', 'There is no override with this id, or it has expired.', [
      { field: 'override_id', value: overrideId, fix },
    ]),
  )
}

function tooManyOverrides(): ProblemError {
  const detail = `There are ${OVERRIDES_MAX} overrides: remove some first, or change the rule or its by_plan limits.`
  return new ProblemError(problem('TOO_MANY_OVERRIDES', detail))
}

export function notPending(what: string, id?: string): ProblemError {
  const named = id === undefined ? what : `${what} ${id}`
  return new ProblemError(problem('NOT_PENDING', `No approval is needed: the ${named} does not wait for one.`))
}
