// Violations: the refusals among the events in the database, read page by page.

import type { Queries } from '../db/database.ts'
import type { KeyHash } from '../log.ts'
import { hashedName, storable } from './client-key.ts'

/** `user_id` and `ip_address` hold hashes if keys are hashed. */
export type StoredViolation = {
  readonly violation_id: number
  readonly bucket_key: string
  readonly user_id: string | null
  readonly ip_address: string | null
  readonly endpoint: string | null
  readonly requested_at: Date
  readonly tokens_at_time: number
  readonly rule_id: string | null
}

/** Last violation of the previous page; the list is newest first. */
export type ViolationCursor = { readonly requestedAt: Date; readonly violationId: number }

export type ViolationQuery = {
  readonly userId?: string | undefined
  readonly ipAddress?: string | undefined
  readonly ruleId?: string | undefined
  readonly since?: Date | undefined
  readonly before?: ViolationCursor | undefined
  readonly limit: number
}

export type FindViolations = (query: ViolationQuery) => Promise<StoredViolation[]>

/** Finds records in plain text and hashed ones. */
export function findViolations(queries: Queries, wanted: ViolationQuery, hash: KeyHash): Promise<StoredViolation[]> {
  const { userId, ipAddress, ruleId, since, before, limit } = wanted
  const conditions: string[] = []
  const parameters: unknown[] = []
  const where = (condition: string, ...values: readonly unknown[]) => {
    const placeholders = values.map((_, index) => `$${parameters.length + index + 1}`)
    parameters.push(...values)
    conditions.push(condition.replace(/\?/g, () => placeholders.shift() ?? ''))
  }
  if (userId !== undefined) where('user_id IN (?, ?)', storable(userId), hashedName(hash, 'user', storable(userId)))
  if (ipAddress !== undefined) where('ip_address IN (?, ?)', ipAddress, hashedName(hash, 'ip', ipAddress))
  if (ruleId !== undefined) where('rule_id = ?', ruleId)
  if (since !== undefined) where('requested_at >= ?', since)
  if (before !== undefined)
    where('(requested_at, violation_id) < (?::timestamptz, ?::bigint)', before.requestedAt, before.violationId)
  parameters.push(limit)
  return queries.query<StoredViolation>(
    `SELECT violation_id, bucket_key, user_id, ip_address, endpoint, requested_at, tokens_at_time, rule_id
     FROM violations ${conditions.length === 0 ? '' : `WHERE ${conditions.join(' AND ')}`}
     ORDER BY requested_at DESC, violation_id DESC LIMIT $${parameters.length}`,
    parameters,
  )
}
