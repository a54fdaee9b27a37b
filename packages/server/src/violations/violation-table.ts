// Violations in the database: written in batches, read page by page, deleted in batches.

import type { Queries } from '../db/database.ts'
import type { KeyHash } from '../log.ts'
import { hashedKey } from './hashed-key.ts'

export type Violation = {
  readonly bucket_key: string
  readonly user_id: string | null
  readonly ip_address: string | null
  /** In the place of the address. */
  readonly ip_hash: string | null
  readonly endpoint: string | null
  readonly requested_at: Date
  readonly tokens_at_time: number
  readonly rule_id: string | null
}

/** `ip_address` is the hash, if that is known instead. */
export type StoredViolation = Omit<Violation, 'ip_hash'> & { readonly violation_id: number }

/** The place in the list, newest first, behind which a page begins. */
export type ViolationPlace = { readonly requestedAt: Date; readonly violationId: number }

export type ViolationQuery = {
  readonly userId?: string | undefined
  readonly ipAddress?: string | undefined
  readonly ruleId?: string | undefined
  readonly since?: Date | undefined
  readonly before?: ViolationPlace | undefined
  readonly limit: number
}

/** Deleted together: their number bounds how long others wait for the table. */
const DELETED_ROWS = 5000
const ENDPOINT_MAX = 1024
/** What is longer would not fit into an index of PostgreSQL (2704 bytes), and the row would be refused. */
const USER_ID_MAX = 512

export async function insertViolations(queries: Queries, violations: readonly Violation[]): Promise<void> {
  const rows = violations.map((violation) => ({
    ...violation,
    user_id: violation.user_id && cut(violation.user_id, USER_ID_MAX),
    endpoint: violation.endpoint && cut(violation.endpoint, ENDPOINT_MAX),
    requested_at: violation.requested_at.toISOString(),
  }))
  await queries.query(
    `INSERT INTO violations (bucket_key, user_id, ip_address, ip_hash, endpoint, requested_at, tokens_at_time, rule_id)
     SELECT bucket_key, user_id, ip_address, ip_hash, endpoint, requested_at, tokens_at_time, rule_id
     FROM jsonb_to_recordset($1::jsonb) AS row (bucket_key text, user_id text, ip_address inet, ip_hash text,
       endpoint text, requested_at timestamptz, tokens_at_time double precision, rule_id text)`,
    [JSON.stringify(rows)],
  )
}

/** With the hash of keys it finds those that were written in clear as well as those that were hashed. */
export function findViolations(
  queries: Queries,
  wanted: ViolationQuery,
  hash?: KeyHash | undefined,
): Promise<StoredViolation[]> {
  const { userId, ipAddress, ruleId, since, before, limit } = wanted
  const conditions: string[] = []
  const parameters: unknown[] = []
  const where = (condition: string, ...values: readonly unknown[]) => {
    const places = values.map((_, index) => `$${parameters.length + index + 1}`)
    parameters.push(...values)
    conditions.push(condition.replace(/\?/g, () => places.shift() ?? ''))
  }
  const hashed = (fact: string, value: string) => (hash === undefined ? null : hashedKey(hash, fact, value))
  if (userId !== undefined) where('user_id IN (?, ?)', cut(userId, USER_ID_MAX), hashed('user', userId))
  if (ipAddress !== undefined) where('(ip_address = ?::inet OR ip_hash = ?)', ipAddress, hashed('ip', ipAddress))
  if (ruleId !== undefined) where('rule_id = ?', ruleId)
  if (since !== undefined) where('requested_at >= ?', since)
  if (before !== undefined)
    where('(requested_at, violation_id) < (?::timestamptz, ?::bigint)', before.requestedAt, before.violationId)
  parameters.push(limit)
  return queries.query<StoredViolation>(
    `SELECT violation_id, bucket_key, user_id, coalesce(host(ip_address), ip_hash) AS ip_address, endpoint,
       requested_at, tokens_at_time, rule_id
     FROM violations ${conditions.length === 0 ? '' : `WHERE ${conditions.join(' AND ')}`}
     ORDER BY requested_at DESC, violation_id DESC LIMIT $${parameters.length}`,
    parameters,
  )
}

/** Returns how many it deleted; rows that another node is deleting are left to that node. */
export async function deleteViolations(queries: Queries, before: Date): Promise<number> {
  const sql = `DELETE FROM violations WHERE violation_id IN (
    SELECT violation_id FROM violations WHERE requested_at < $1 LIMIT ${DELETED_ROWS} FOR UPDATE SKIP LOCKED)
    RETURNING 1`
  return (await queries.query(sql, [before])).length
}

/** Never in the middle of a character: half of one has no place in a database. */
function cut(text: string, lengthMax: number): string {
  return text.length <= lengthMax ? text : text.slice(0, lengthMax).replace(/[\ud800-\udbff]$/, '')
}
