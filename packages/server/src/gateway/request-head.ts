// The head of a request on its way through the gateway. What concerns one connection only stays behind, what clients
// say about addresses is replaced by what the gateway saw, everything else goes on as it came. What a service behind
// could read in another way than the limiter did is refused.

import type { IncomingMessage } from 'node:http'
import type { ServerHttp2Stream } from 'node:http2'
import { type HeaderRecord, joinedHeaders } from 'sluice/http'
import { headerLines, soleHeader } from '../clients/identity.ts'
import { invalidRequest, ProblemError } from '../problems/problem.ts'

/** Node's HTTP/2 has requests and responses with the face of HTTP/1.1; those have a stream. */
export type GatewayRequest = IncomingMessage & { readonly stream?: ServerHttp2Stream }

export type Target = {
  /** Begins with a slash; the query belongs to it. */
  readonly path: string
  /** What the client calls the service: `example.org:8000`. */
  readonly host: string
}

/** What the gateway adds about the client. */
export type Forwarded = {
  readonly peer: string | undefined
  readonly host: string
  readonly isEncrypted: boolean
  /** Whether the peer is a proxy whose word is taken: then the gateway adds to what it says. */
  readonly isTrusted: boolean
}

/** RFC 9110, 7.6.1; `expect` is answered here. */
const HOP_BY_HOP = [
  ...['connection', 'keep-alive', 'proxy-connection', 'proxy-authenticate', 'proxy-authorization'],
  ...['te', 'trailer', 'transfer-encoding', 'upgrade', 'http2-settings', 'expect'],
]
/** The gateway writes these itself, on top of what a trusted proxy says. */
const WRITTEN = ['x-forwarded-for', 'x-forwarded-proto', 'x-forwarded-host', 'forwarded']
const OF_CLIENT = ['x-real-ip', 'x-client-ip', 'true-client-ip', 'x-rewrite-url']

/** What becomes of a header: `hop` and `own` stay behind, `client` goes on if a trusted proxy has sent it. */
type HeaderKind = 'plain' | 'framing' | 'hop' | 'own' | 'client' | 'limit'

/** By the name as it is sent, so that nothing has to be written in lower case twice. */
const KINDS = new Map<string, HeaderKind>()
const KINDS_MAX = 1000

function kindOf(name: string): HeaderKind {
  const known = KINDS.get(name)
  if (known !== undefined) return known
  const kind = kindOfLower(name.toLowerCase())
  if (KINDS.size < KINDS_MAX) KINDS.set(name, kind)
  return kind
}

function kindOfLower(name: string): HeaderKind {
  if (HOP_BY_HOP.includes(name)) return 'hop'
  if (name === 'host' || name.startsWith(':') || WRITTEN.includes(name)) return 'own'
  // Nobody may have this taken away by naming it in `Connection`.
  if (name === 'content-length') return 'framing'
  // Services that make variables of headers, as CGI does, read an underline for a dash.
  const read = name.replaceAll('_', '-')
  if (read !== name && WRITTEN.includes(read)) return 'own'
  if (read.startsWith('x-forwarded-') || read.startsWith('x-original-') || OF_CLIENT.includes(read)) return 'client'
  return /^(x-)?ratelimit/.test(name) ? 'limit' : 'plain'
}

const ABSOLUTE = /^https?:\/\/([^/?#@]+)([/?][^#]*)?$/i
const COMMON_OPTIONS: ReadonlySet<string> = new Set(['', 'keep-alive', 'close', 'upgrade', 'Upgrade'])

export function targetOf(request: GatewayRequest): Target {
  const { url = '' } = request
  const host = hostOf(request)
  if (url.startsWith('/') && !url.includes('#')) return { path: url, host }
  const [whole, authority = '', rest = '/'] = ABSOLUTE.exec(url) ?? []
  if (whole !== undefined) return { path: rest.startsWith('/') ? rest : `/${rest}`, host: authority }
  throw new ProblemError(invalidRequest([{ field: 'target', value: url, fix: 'ask for a path that begins with "/"' }]))
}

function hostOf({ headers, rawHeaders, stream }: GatewayRequest): string {
  const authority = stream === undefined ? undefined : headers[':authority']?.toString()
  return authority ?? soleHeader(rawHeaders, 'host') ?? ''
}

/** Names and values in turn, for the service behind. */
export function headersForUpstream(request: GatewayRequest, forwarded: Forwarded): string[] {
  const lines = headerLinesOf(request)
  const optional = optionsOf(request.headers.connection)
  const list: string[] = ['host', forwarded.host]
  for (let at = 0; at < lines.length; at += 2) {
    const name = lines[at] ?? ''
    const kind = kindOf(name)
    if (kind === 'hop' || kind === 'own' || (kind === 'client' && !forwarded.isTrusted)) continue
    if (optional !== undefined && kind !== 'framing' && optional.has(name.toLowerCase())) continue
    list.push(name, lines[at + 1] ?? '')
  }
  addForwarded(list, request, forwarded)
  return list
}

/** HTTP/2 may send a cookie in crumbs, which Node has put together again in `headers`. */
function headerLinesOf({ httpVersionMajor, headers, rawHeaders }: GatewayRequest): readonly string[] {
  if (httpVersionMajor < 2) return rawHeaders
  return Object.entries(headers).flatMap(([name, value]) => [value ?? []].flat().flatMap((line) => [name, line]))
}

/** Names of headers that belong to this connection, beside those that always do. */
function optionsOf(connection: string | undefined): ReadonlySet<string> | undefined {
  if (connection === undefined || COMMON_OPTIONS.has(connection)) return undefined
  return new Set(connection.split(',').map((option) => option.trim().toLowerCase()))
}

function addForwarded(list: string[], request: GatewayRequest, forwarded: Forwarded): void {
  const { peer, host, isEncrypted, isTrusted } = forwarded
  const address = peer === undefined ? 'unknown' : peer.startsWith('::ffff:') ? peer.slice('::ffff:'.length) : peer
  const proto = isEncrypted ? 'https' : 'http'
  if (!isTrusted) {
    list.push('x-forwarded-for', address, 'x-forwarded-proto', proto, 'x-forwarded-host', host)
    return
  }
  const told = (name: string) => headerLines(request.rawHeaders, name).join(', ')
  const [addresses, chain] = [told('x-forwarded-for'), told('forwarded')]
  list.push('x-forwarded-for', addresses === '' ? address : `${addresses}, ${address}`)
  list.push('x-forwarded-proto', told('x-forwarded-proto') || proto)
  list.push('x-forwarded-host', told('x-forwarded-host') || host)
  if (chain !== '') list.push('forwarded', `${chain}, for=${address.includes(':') ? `"[${address}]"` : address}`)
}

/** Headers of an answer as undici has read them: names in lower case. */
export type AnswerHeaders = Readonly<NodeJS.Dict<string | string[]>>

/** The same for an answer, on its way to the client. */
export function headersForClient(headers: AnswerHeaders, ours: Readonly<HeaderRecord>): string[] {
  const list: string[] = []
  const optional = optionsOf(headers.connection?.toString())
  let isLimited = false
  for (const name in headers) {
    const kind = kindOf(name)
    if (kind === 'hop' || (optional !== undefined && kind !== 'framing' && optional.has(name))) continue
    if (kind === 'limit') isLimited = true
    const value = headers[name] ?? ''
    if (typeof value === 'string') list.push(name, value)
    else for (const line of value) list.push(name, line)
  }
  return isLimited ? joined(list, ours) : withOurs(list, ours)
}

/** A service may have limits of its own: lists are joined, and of the numbers the scarcer stay. */
function joined(list: readonly string[], ours: Readonly<HeaderRecord>): string[] {
  const headers = joinedHeaders(ours, true, (name) => headerLines(list, name.toLowerCase()).join(', ') || undefined)
  const replaced = new Set(Object.keys(headers).map((name) => name.toLowerCase()))
  return withOurs(
    list.filter((_, at) => !replaced.has(list[at - (at % 2)] ?? '')),
    headers,
  )
}

function withOurs(list: string[], ours: Readonly<HeaderRecord>): string[] {
  for (const name in ours) list.push(name, ours[name] ?? '')
  return list
}

/** Fields of one connection, of framing and of routing have no meaning behind a body (RFC 9110, 6.5.1). */
export function trailersForClient(trailers: AnswerHeaders): Record<string, string> {
  const entries = Object.entries(trailers).filter(([name]) => !['hop', 'own', 'framing'].includes(kindOf(name)))
  return Object.fromEntries(entries.map(([name, value]) => [name, [value ?? []].flat().join(', ')]))
}
