// The head of a request on its way through the gateway. What concerns one connection only stays behind, what clients
// say about addresses is replaced by what the gateway saw, everything else goes on as it came. What a service behind
// could read in another way than the limiter did is refused.

import { type IncomingMessage, METHODS } from 'node:http'
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
  /** Whether the limiter has decided by the method that a header names. */
  readonly honoursMethod: boolean
  /** Headers that say who the client is. */
  readonly identityHeaders: readonly string[]
}

/** RFC 9110, 7.6.1; `expect` is answered here. */
const HOP_BY_HOP = [
  ...['connection', 'keep-alive', 'proxy-connection', 'proxy-authenticate', 'proxy-authorization'],
  ...['te', 'trailer', 'transfer-encoding', 'upgrade', 'http2-settings', 'expect'],
]
/** The gateway writes these itself, on top of what a trusted proxy says. */
const WRITTEN = ['x-forwarded-for', 'x-forwarded-proto', 'x-forwarded-host', 'forwarded']
const OF_CLIENT = ['x-real-ip', 'x-client-ip', 'true-client-ip', 'x-rewrite-url']
const CREDENTIALS = ['authorization', 'cookie']
/** Services take the method from these instead of the request line. */
const OF_METHOD = ['x-http-method-override', 'x-http-method', 'x-method-override']

/**
 * What becomes of a header: `hop` and `own` stay behind, `client` goes on if a trusted proxy has sent it, `method` if
 * the limiter honours it, `underscored` unless a service could take it for another header.
 */
type HeaderKind = 'plain' | 'framing' | 'hop' | 'own' | 'client' | 'limit' | 'method' | 'underscored'

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
  // Services that make variables of headers, as CGI does, read `Content_Length` as `Content-Length`.
  if (name.includes('_')) return 'underscored'
  if (name.startsWith('x-forwarded-') || name.startsWith('x-original-') || OF_CLIENT.includes(name)) return 'client'
  if (OF_METHOD.includes(name)) return 'method'
  return /^(x-)?ratelimit/.test(name) ? 'limit' : 'plain'
}

const ABSOLUTE = /^https?:\/\/([^/?#@]+)([/?][^#]*)?$/i
const COMMON_OPTIONS: ReadonlySet<string> = new Set(['', 'keep-alive', 'close', 'upgrade', 'Upgrade'])

/** A name or an address, and a port: RFC 9110 knows no user here, and a list or an empty text names no host. */
const HOST = /^(?:[\w.-]+|\[[\da-f:.]+\])(?::\d{0,5})?$/i

export function targetOf(request: GatewayRequest): Target {
  const { url = '' } = request
  const host = hostOf(request)
  if (url.startsWith('/') && !url.includes('#')) return { path: url, host: validHost(host) }
  const [whole, authority = '', rest = '/'] = ABSOLUTE.exec(url) ?? []
  if (whole !== undefined) return { path: rest.startsWith('/') ? rest : `/${rest}`, host: validHost(authority) }
  throw new ProblemError(invalidRequest([{ field: 'target', value: url, fix: 'ask for a path that begins with "/"' }]))
}

function validHost(host: string): string {
  if (HOST.test(host)) return host
  const fix = 'name one host, with a port if need be: example.org or example.org:8000'
  throw new ProblemError(invalidRequest([{ field: 'Host', value: host, fix }]))
}

/** The method that the service acts on: some let a header of a POST change it. */
export function methodOf({ method = '', rawHeaders }: GatewayRequest, honoursOverride: boolean): string {
  if (!honoursOverride || method !== 'POST') return method
  const named = OF_METHOD.flatMap((name) => headerLines(rawHeaders, name))
  const [override = method] = named
  if (named.length < 2 && METHODS.includes(override.toUpperCase())) return override.toUpperCase()
  const fix = 'name one method, in one header'
  throw new ProblemError(invalidRequest([{ field: 'X-HTTP-Method-Override', value: named.join(', '), fix }]))
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
    if (kind !== 'plain' && !goesOn(name, kind, request, forwarded)) continue
    if (optional !== undefined && kind !== 'framing' && optional.has(name.toLowerCase())) continue
    list.push(name, lines[at + 1] ?? '')
  }
  addForwarded(list, request, forwarded)
  return list
}

function goesOn(name: string, kind: HeaderKind, request: GatewayRequest, forwarded: Forwarded): boolean {
  switch (kind) {
    case 'hop':
    case 'own':
      return false
    case 'client':
      return forwarded.isTrusted
    case 'method':
      return forwarded.honoursMethod && request.method === 'POST'
    case 'underscored':
      return isItself(name.toLowerCase().replaceAll('_', '-'), request, forwarded)
    default:
      return true
  }
}

/** Whether a header whose dashes were written as underscores cannot be taken for another one that was read here. */
function isItself(read: string, request: GatewayRequest, { identityHeaders }: Forwarded): boolean {
  if (kindOf(read) !== 'plain' || CREDENTIALS.includes(read) || identityHeaders.includes(read)) return false
  return headerLines(request.rawHeaders, read).length === 0
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
