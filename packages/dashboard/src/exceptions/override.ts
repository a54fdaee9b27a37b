// Overrides as the API lists them, and their effect in words.

import { fullCount } from '../format.ts'

export type Override = {
  readonly override_id: string
  readonly state: 'active' | 'pending'
  readonly rule_id: string | null
  readonly key: string
  readonly limit?: number
  readonly limit_name?: string
  readonly factor?: number
  readonly ban?: { readonly status: number }
  readonly exempt?: true
  readonly reason: string
  readonly by: string
  readonly by_name: string | null
  readonly created_at: string
  readonly expires_at: string | null
  readonly approvals?: number
}

export type OverrideList = { readonly overrides: readonly Override[]; readonly next: string | null }

type Effect = Pick<Override, 'limit' | 'limit_name' | 'factor' | 'ban' | 'exempt'>

export function effectText({ limit, limit_name: name, factor, ban, exempt }: Effect): string {
  if (ban !== undefined) return `banned (${ban.status})`
  if (exempt === true) return 'exempt'
  if (factor !== undefined) return `limits × ${factor}`
  return `limit ${fullCount(limit)}${name === undefined ? '' : ` (${name})`}`
}

/** Author of a change: the name of the token, or its id. */
export function authorText({ by, by_name: name }: { readonly by: string; readonly by_name?: string | null }): string {
  return name ?? by
}
