// Entries that the search of the shell finds beside pages. To add a kind: a function here.

import { get, type Params } from './api.ts'
import { type ClientKind, clientFrom, clientPath, clientQuery, KINDS, keyOf } from './clients.ts'
import type { QueryPatch } from './location.ts'

export type SearchHit = {
  /** Kind of the entry: page, rule, client. */
  readonly kind: string
  readonly title: string
  readonly path: string
  readonly query?: QueryPatch
}

export type SearchFunction = (text: string, signal: AbortSignal) => Promise<readonly SearchHit[]>

export const SEARCHES: readonly SearchFunction[] = [rules, clients]

type RuleList = { readonly rules: readonly { readonly rule_id: string }[] }

const RULES_SHOWN = 6

/** Rules by id, name and endpoint. */
async function rules(text: string, signal: AbortSignal): Promise<readonly SearchHit[]> {
  const params = { enabled: 'any', search: text.slice(0, SEARCH_LENGTH_MAX), limit: RULES_SHOWN }
  const { rules: found } = await get<RuleList>('/rate-limit/rules', params, signal)
  return found.map(({ rule_id }) => ({ kind: 'rule', title: rule_id, path: `/rules/${encodeURIComponent(rule_id)}` }))
}

type Top = { readonly top: readonly { readonly name: string; readonly kind?: ClientKind }[] }
const CLIENTS_SHOWN = 3
const SEARCH_LENGTH_MAX = 255

/** Clients and tenants of the last day, those that were refused first, and the client with exactly this id. */
async function clients(text: string, signal: AbortSignal): Promise<readonly SearchHit[]> {
  const shared = { from: '24h', search: text.slice(0, SEARCH_LENGTH_MAX), count: CLIENTS_SHOWN }
  const top = async (more: Params) => (await get<Top>('/analytics/top', { ...shared, ...more }, signal)).top
  const lists = await Promise.all([
    ...(['refused', 'allowed'] as const).map((by) => top({ of: 'client', by })),
    ...(['refused', 'allowed'] as const).map((by) => top({ of: 'tenant', by })),
  ]).catch(() => [])
  const typed = clientFrom(text, 'user')
  const all = [...lists.flat().map(({ name: id, kind = 'tenant' as const }) => ({ kind, id })), typed]
  const unique = new Map(all.map((client) => [keyOf(client), client]))
  return [...unique.values()].map((client) => ({
    kind: KINDS[client.kind].toLowerCase(),
    title: client.id,
    path: clientPath(client),
    query: clientQuery(client),
  }))
}
