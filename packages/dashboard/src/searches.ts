// Entries that the search of the shell finds beside pages. To add a kind: a function here.

import { get } from './api.ts'
import { type ClientKind, clientFrom, clientPath, clientQuery, KINDS } from './clients.ts'
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

type RuleList = { readonly rules: readonly { readonly rule_id: string; readonly name?: string }[] }

/** Rules by id and name. */
async function rules(text: string, signal: AbortSignal): Promise<readonly SearchHit[]> {
  const { rules: found } = await get<RuleList>('/rate-limit/rules', {}, signal)
  const wanted = text.toLowerCase()
  return found
    .filter(({ rule_id, name = '' }) => `${rule_id} ${name}`.toLowerCase().includes(wanted))
    .map(({ rule_id }) => ({ kind: 'rule', title: rule_id, path: `/rules/${encodeURIComponent(rule_id)}` }))
}

type TopClients = { readonly top: readonly { readonly name: string; readonly kind: ClientKind }[] }
const CLIENTS_RANKED = 200

/** Clients that were refused in the last day, and the client with exactly this id. */
async function clients(text: string, signal: AbortSignal): Promise<readonly SearchHit[]> {
  const params = { of: 'client', from: '24h', count: CLIENTS_RANKED }
  const { top } = await get<TopClients>('/analytics/top', params, signal).catch(() => ({ top: [] }))
  const wanted = text.toLowerCase()
  const found = top
    .filter(({ name }) => name.toLowerCase().includes(wanted))
    .map(({ name: id, kind }) => ({ kind, id }))
  const typed = clientFrom(text, 'user')
  const isListed = found.some(({ kind, id }) => kind === typed.kind && id === typed.id)
  return [...found.slice(0, 5), ...(isListed ? [] : [typed])].map((client) => ({
    kind: KINDS[client.kind].toLowerCase(),
    title: client.id,
    path: clientPath(client),
    query: clientQuery(client),
  }))
}
