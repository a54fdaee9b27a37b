// Abuse signals in the database: one row per key, kind and severity. A repeated signal extends its row, so the number
// of rows depends on the suspected keys, not on how often they are reported. Each change is one transaction with its
// audit entry and the notification of all nodes.

import { SEVERITIES, type Severity, type Signal } from 'sluice'
import { appendAudit } from '../audit/audit.ts'
import { requireUnderstood } from '../compatibility/requirements.ts'
import type { UnknownContent } from '../compatibility/unknown-content.ts'
import type { Database, Queries } from '../db/database.ts'
import { ProblemError, problem } from '../problems/problem.ts'
import { newId } from './ids.ts'
import { type Key, keyText } from './key.ts'

export const SIGNALS_CHANNEL = 'sluice_signals'
/** Every node keeps all signals in memory and reads them after each change. */
export const SIGNALS_MAX = 10_000
const DELETE_ROWS = 1000

/** Features that nodes need to apply signals. */
export const SIGNAL_FEATURES: readonly string[] = SEVERITIES.map((severity) => `signal.${severity}`)

export type SignalRequest = {
  readonly key: Key
  readonly kind: string
  readonly severity: Severity
  readonly source: string | undefined
  readonly expiresAt: Date
}

export type ListedSignal = {
  readonly signalId: string
  readonly key: Key
  readonly kind: string
  readonly severity: Severity
  readonly source: string | null
  readonly actor: string
  readonly actorName: string | null
  readonly createdAt: Date
  readonly expiresAt: Date
}

export type SignalQuery = {
  readonly key?: Key | undefined
  readonly kind?: string | undefined
  readonly before?: string | undefined
  readonly limit: number
}

export type SignalTable = {
  /** Returns the id of the row, which may have existed before. */
  send(request: SignalRequest, actor: string): Promise<string>
  /** False if there is none with this id. */
  remove(signalId: string, actor: string, reason: string | undefined): Promise<boolean>
  /** Newest first. Without expired ones. */
  list(query: SignalQuery): Promise<readonly ListedSignal[]>
}

export type SignalTableDeps = {
  readonly database: Database
  readonly now: () => Date
  /** Applies changes on this node. */
  readonly refresh: () => Promise<void>
}

export function signalTable({ database, now, refresh }: SignalTableDeps): SignalTable {
  const change = async <T>(work: (queries: Queries) => Promise<T>): Promise<T> => {
    const result = await database.transaction(async (queries) => {
      const changed = await work(queries)
      await queries.query(`SELECT pg_notify('${SIGNALS_CHANNEL}', '')`)
      return changed
    })
    await refresh()
    return result
  }
  return {
    send: (request, actor) => change((queries) => send(queries, request, actor, now())),
    remove: (id, actor, reason) => change((queries) => remove(queries, id, actor, reason, now())),
    list: (query) => list(database, query, now()),
  }
}

async function send(queries: Queries, request: SignalRequest, actor: string, at: Date): Promise<string> {
  // Serializes signals, so that two of one key do not become two rows and the cap holds.
  await queries.query('LOCK TABLE signals IN SHARE ROW EXCLUSIVE MODE')
  await requireUnderstood(queries, [`signal.${request.severity}`])
  const { key, kind, severity, source = null, expiresAt } = request
  const [known] = await queries.query<{ signal_id: string }>(
    `UPDATE signals SET expires_at = greatest(expires_at, $1::timestamptz), source = $2, actor = $3
     WHERE md5(owner) = md5($4::text) AND owner = $4 AND fact = $5 AND kind = $6 AND severity = $7 AND expires_at > $8
     RETURNING signal_id`,
    [expiresAt, source, actor, key.owner, key.fact, kind, severity, at],
  )
  const signalId = known?.signal_id ?? (await insert(queries, request, actor, at))
  const diff = { key: keyText(key), kind, severity, source, expires_at: expiresAt.toISOString() }
  await appendAudit(queries, { actor, action: 'signal.send', target: signalId, diff }, at)
  return signalId
}

async function insert(queries: Queries, request: SignalRequest, actor: string, at: Date): Promise<string> {
  const sql = 'SELECT count(*) AS count FROM signals WHERE expires_at > $1'
  const [row] = await queries.query<{ count: number }>(sql, [at])
  if ((row?.count ?? 0) >= SIGNALS_MAX) throw tooManySignals()
  const signalId = newId('sig', at)
  const { key, kind, severity, source = null, expiresAt } = request
  await queries.query(
    `INSERT INTO signals (signal_id, fact, owner, kind, severity, source, actor, created_at, expires_at)
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`,
    [signalId, key.fact, key.owner, kind, severity, source, actor, at, expiresAt],
  )
  return signalId
}

async function remove(
  queries: Queries,
  signalId: string,
  actor: string,
  reason: string | undefined,
  at: Date,
): Promise<boolean> {
  const [row] = await queries.query<{ fact: string; owner: string; kind: string; severity: string }>(
    'DELETE FROM signals WHERE signal_id = $1 AND expires_at > $2 RETURNING fact, owner, kind, severity',
    [signalId, at],
  )
  if (row === undefined) return false
  const diff = { key: keyText(row), kind: row.kind, severity: row.severity }
  await appendAudit(queries, { actor, action: 'signal.remove', target: signalId, diff, reason }, at)
  return true
}

type SignalRow = {
  readonly signal_id: string
  readonly fact: string
  readonly owner: string
  readonly kind: string
  readonly severity: Severity
  readonly source: string | null
  readonly actor: string
  readonly actor_name: string | null
  readonly created_at: Date
  readonly expires_at: Date
}

async function list(queries: Queries, query: SignalQuery, at: Date): Promise<readonly ListedSignal[]> {
  const parameters: unknown[] = [at]
  const conditions: string[] = ['signals.expires_at > $1']
  const add = (condition: (placeholder: string) => string, value: unknown) => {
    if (value === undefined) return
    parameters.push(value)
    conditions.push(condition(`$${parameters.length}`))
  }
  add((value) => `fact = ${value}`, query.key?.fact)
  add((value) => `md5(owner) = md5(${value}::text) AND owner = ${value}`, query.key?.owner)
  add((value) => `kind = ${value}`, query.kind)
  add((value) => `signal_id < ${value}`, query.before)
  const rows = await queries.query<SignalRow>(
    `SELECT signal_id, fact, owner, kind, severity, source, actor, name AS actor_name, signals.created_at,
       signals.expires_at
     FROM signals LEFT JOIN api_tokens ON id = actor
     WHERE ${conditions.join(' AND ')} ORDER BY signal_id DESC LIMIT ${query.limit}`,
    parameters,
  )
  return rows.map((row) => ({
    signalId: row.signal_id,
    key: { fact: row.fact, owner: row.owner },
    kind: row.kind,
    severity: row.severity,
    source: row.source,
    actor: row.actor,
    actorName: row.actor_name,
    createdAt: row.created_at,
    expiresAt: row.expires_at,
  }))
}

/** Signals as nodes need them, without those whose severity this version does not know. */
export async function readSignals(queries: Queries, unknown: UnknownContent): Promise<Signal[]> {
  const rows = await queries.query<SignalRow>(
    `SELECT signal_id, fact, owner, kind, severity, expires_at FROM signals WHERE expires_at > now()
     ORDER BY expires_at DESC LIMIT ${SIGNALS_MAX}`,
    [],
  )
  const known = rows.filter(({ severity }) => SEVERITIES.includes(severity))
  const others = rows.filter((row) => !known.includes(row))
  const items = others.map(({ signal_id, severity }) => `${signal_id}: severity ${severity}`)
  unknown.found('signals', items, 'they do not apply; the limits of the rules do')
  return known.map(({ fact, owner, kind, severity, expires_at }) => {
    return { fact, owner, kind, severity, expiresAtMs: expires_at.getTime() }
  })
}

/** Deletes some of the signals that expired before this time; returns their number. */
export async function deleteOldSignals(database: Database, before: Date): Promise<number> {
  const rows = await database.query(
    `DELETE FROM signals WHERE signal_id IN (
       SELECT signal_id FROM signals WHERE expires_at < $1 LIMIT ${DELETE_ROWS} FOR UPDATE SKIP LOCKED
     ) RETURNING 1`,
    [before],
  )
  return rows.length
}

export function signalUnknown(signalId: string): ProblemError {
  const fieldError = { field: 'signal_id', value: signalId, fix: 'GET /api/v1/rate-limit/signals lists all signals' }
  return new ProblemError(
    problem('SIGNAL_UNKNOWN', 'There is no signal with this id, or it has expired.', [fieldError]),
  )
}

function tooManySignals(): ProblemError {
  const detail = `There are ${SIGNALS_MAX} signals: wait until some expire, or delete some.`
  return new ProblemError(problem('TOO_MANY_SIGNALS', detail))
}
