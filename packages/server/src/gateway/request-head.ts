// The head of a request on its way through the gateway. What concerns one connection only stays behind, what clients
// say about addresses is replaced by what the gateway saw, everything else goes on as it came. What a service behind
// could read in another way than the limiter did is refused.

import type { IncomingMessage } from 'node:http'
import type { ServerHttp2Stream } from 'node:http2'
import { invalidRequest, ProblemError } from '../http/problem.ts'
import { headerLines, soleHeader } from '../identity.ts'

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
const HOP_BY_HOP: ReadonlySet<string> = new Set([
  ...['connection', 'keep-alive', 'proxy-connection', 'proxy-authenticate', 'proxy-authorization'],
  ...['te', 'trailer', 'transfer-encoding', 'upgrade', 'http2-settings', 'expect'],
])
/** Nobody may have these taken away by naming them in `Connection`: the framing depends on them. */
const FRAMING: ReadonlySet<string> = new Set(['host', 'content-length'])
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

function hostOf({ headers, rawHeaders }: GatewayRequest): string {
  return headers[':authority']?.toString() ?? soleHeader(rawHeaders, 'host') ?? ''
}

/** Names and values in turn, for the service behind. */
export function headersForUpstream(request: GatewayRequest, forwarded: Forwarded): string[] {
  const lines = headerLinesOf(request)
  const optional = optionsOf(request.headers.connection)
  const list: string[] = ['host', forwarded.host]
  for (let at = 0; at < lines.length; at += 2) {
    const name = lines[at] ?? ''
    const lower = name.toLowerCase()
    if (lower === 'host' || HOP_BY_HOP.has(lower) || lower.startsWith(':')) continue
    if (optional?.has(lower) && !FRAMING.has(lower)) continue
    if (speaksOfClient(lower) && (!forwarded.isTrusted || WRITTEN.has(lower))) continue
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

function speaksOfClient(name: string): boolean {
  return name.startsWith('x-forwarded-') || name.startsWith('x-original-') || OTHERS.has(name)
}

const OTHERS: ReadonlySet<string> = new Set(['forwarded', 'x-real-ip', 'x-client-ip', 'true-client-ip'])
/** The gateway writes these itself, on top of what a trusted proxy says. */
const WRITTEN: ReadonlySet<string> = new Set(['x-forwarded-for', 'x-forwarded-proto', 'x-forwarded-host', 'forwarded'])

function addForwarded(
  list: string[],
  request: GatewayRequest,
  { peer, host, isEncrypted, isTrusted }: Forwarded,
): void {
  const told = (name: string) => (isTrusted ? headerLines(request.rawHeaders, name).join(', ') : '')
  const address = peer?.replace(/^::ffff:(?=\d+\.)/, '') ?? 'unknown'
  const forwardedFor = told('x-forwarded-for')
  list.push('x-forwarded-for', forwardedFor === '' ? address : `${forwardedFor}, ${address}`)
  list.push('x-forwarded-proto', told('x-forwarded-proto') || (isEncrypted ? 'https' : 'http'))
  list.push('x-forwarded-host', told('x-forwarded-host') || host)
  const chain = told('forwarded')
  if (chain !== '') list.push('forwarded', `${chain}, for=${address.includes(':') ? `"[${address}]"` : address}`)
}

/** The same for an answer, on its way to the client. `raw` is what undici read: names and values in turn. */
export function headersForClient(raw: readonly (Buffer | string)[]): string[] {
  const list = raw.map((text) => (typeof text === 'string' ? text : text.toString('latin1')))
  const optional = optionsOf(headerLines(list, 'connection').join(',') || undefined)
  const kept: string[] = []
  for (let at = 0; at < list.length; at += 2) {
    const name = list[at] ?? ''
    const lower = name.toLowerCase()
    if (HOP_BY_HOP.has(lower) || (optional?.has(lower) && !FRAMING.has(lower))) continue
    kept.push(name, list[at + 1] ?? '')
  }
  return kept
}
