// Clients as people name them: a kind and an id. Search, links and API calls use the same kinds.

import { type QueryPatch, urlOf } from './location.ts'

export const KINDS = { user: 'User', api_key: 'API key', ip: 'Address', tenant: 'Tenant' } as const
export type ClientKind = keyof typeof KINDS

export type Client = { readonly kind: ClientKind; readonly id: string }

export function isClientKind(text: string | undefined): text is ClientKind {
  return text !== undefined && Object.hasOwn(KINDS, text)
}

/** Reads what the user typed: `tenant:acme`, an address, or the id of the chosen kind. */
export function clientFrom(text: string, kind: ClientKind): Client {
  const trimmed = text.trim()
  const [, prefix, rest] = /^(\w+):(.+)$/.exec(trimmed) ?? []
  if (isClientKind(prefix) && rest !== undefined)
    return { kind: prefix, id: (prefix === 'ip' && addressFrom(rest)) || rest }
  const address = kind === 'user' || kind === 'ip' ? addressFrom(trimmed) : undefined
  return address === undefined ? { kind, id: trimmed } : { kind: 'ip', id: address }
}

/** An address as events name it: IPv6 in its shortest form, in lower case. */
function addressFrom(text: string): string | undefined {
  if (/^\d{1,3}(\.\d{1,3}){3}$/.test(text)) return text
  if (!/^[\da-f.]*:[\da-f.]*:[\da-f.:]*$/i.test(text)) return undefined
  try {
    return new URL(`http://[${text}]`).hostname.slice(1, -1)
  } catch {
    return undefined // such as 1:2:3
  }
}

/** Path of the page of a client. Browsers resolve `.` and `..` in paths, even if they are encoded. */
export function clientPath({ id }: Client): string {
  return /^\.{0,2}$/.test(id) ? '/clients' : `/clients/${encodeURIComponent(id)}`
}

export function clientQuery({ kind, id }: Client): QueryPatch {
  return { kind: kind === 'user' ? undefined : kind, id: /^\.{0,2}$/.test(id) ? id : undefined }
}

/** Filter of the live tail for a client: users need no kind. */
export function eventsQuery({ kind, id }: Client): QueryPatch {
  return { client: id, kind: kind === 'user' ? undefined : kind }
}

export function clientUrl(client: Client): string {
  return urlOf(clientPath(client), clientQuery(client))
}

/** Key of overrides and signals: `user:alice`. */
export function keyOf({ kind, id }: Client): string {
  return `${kind}:${id}`
}
