// Translates request and response heads between client and upstream. Drops hop-by-hop headers, replaces address headers
// of untrusted clients, and forwards the rest unchanged. Rejects heads that an upstream could read differently than the
// limiter did.

import { type IncomingMessage, METHODS } from 'node:http'
import type { ServerHttp2Stream } from 'node:http2'
import { type HeaderRecord, joinedHeaders } from 'sluice/http'
import { headerLines, singleHeader } from '../clients/identity.ts'
import { invalidRequest, ProblemError } from '../problems/problem.ts'

/** In HTTP/2, requests of Node's compatibility API have a `stream`. */
export type GatewayRequest = IncomingMessage & { readonly stream?: ServerHttp2Stream }

export type RequestTarget = {
  /** Begins with a slash and includes the query. */
  readonly path: string
  /** Host as sent by the client: `example.org:8000`. */
  readonly host: string
}

/** Facts about the client for the forwarded headers. */
export type Forwarded = {
  readonly peer: string | undefined
  readonly host: string
  readonly isEncrypted: boolean
  /** Whether the peer is a trusted proxy, whose forwarded headers are extended rather than replaced. */
  readonly isTrusted: boolean
  /** Whether the limiter used the method of an override header. */
  readonly honoursMethod: boolean
  /** Headers that identify the client. */
  readonly identityHeaders: readonly string[]
  /** Header with a bypass token, which the upstream never gets. */
  readonly bypassHeader: string
}

/** RFC 9110, 7.6.1; the gateway itself answers `expect`. */
const HOP_BY_HOP = [
  ...['connection', 'keep-alive', 'proxy-connection', 'proxy-authenticate', 'proxy-authorization'],
  ...['te', 'trailer', 'transfer-encoding', 'upgrade', 'http2-settings', 'expect'],
]
/** Written by the gateway. Values from a trusted proxy are extended. */
const FORWARDED_HEADERS = ['x-forwarded-for', 'x-forwarded-proto', 'x-forwarded-host', 'forwarded']
const CLIENT_HEADERS = ['x-real-ip', 'x-client-ip', 'true-client-ip', 'x-rewrite-url']
const CREDENTIAL_HEADERS = ['authorization', 'cookie']
/** Some services read the method from these instead of the request line. */
const METHOD_OVERRIDE_HEADERS = ['x-http-method-override', 'x-http-method', 'x-method-override']

/**
 * Decides whether a header is forwarded: `hop` and `own` never, `client` only from a trusted proxy, `method` only if
 * the limiter honours it, `underscored` unless a service could confuse it with another header.
 */
type HeaderKind = 'plain' | 'framing' | 'hop' | 'own' | 'client' | 'limit' | 'method' | 'underscored'

/** Keyed by the name as sent, which saves the conversion to lower case. */
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
  if (name === 'host' || name.startsWith(':') || FORWARDED_HEADERS.includes(name)) return 'own'
  // A client must not be able to remove it by listing it in `Connection`.
  if (name === 'content-length') return 'framing'
  // Services that map headers to variables, as CGI does, read `Content_Length` as `Content-Length`.
  if (name.includes('_')) return 'underscored'
  if (name.startsWith('x-forwarded-') || name.startsWith('x-original-') || CLIENT_HEADERS.includes(name))
    return 'client'
  if (METHOD_OVERRIDE_HEADERS.includes(name)) return 'method'
  return /^(x-)?ratelimit/.test(name) ? 'limit' : 'plain'
}

const ABSOLUTE = /^https?:\/\/([^/?#@]+)([/?][^#]*)?$/i
const COMMON_OPTIONS: ReadonlySet<string> = new Set(['', 'keep-alive', 'close', 'upgrade', 'Upgrade'])

/** A name or address with an optional port; no userinfo, no list, not empty (RFC 9110). */
const HOST = /^(?:[\w.-]+|\[[\da-f:.]+\])(?::\d{0,5})?$/i

export function targetOf(request: GatewayRequest): RequestTarget {
  const { url = '' } = request
  const host = hostOf(request)
  if (url.startsWith('/') && !url.includes('#')) return { path: url, host: validHost(host) }
  const [whole, authority = '', rest = '/'] = ABSOLUTE.exec(url) ?? []
  if (whole !== undefined) return { path: rest.startsWith('/') ? rest : `/${rest}`, host: validHost(authority) }
  throw new ProblemError(invalidRequest([{ field: 'target', value: url, fix: 'use a path that begins with "/"' }]))
}

function validHost(host: string): string {
  if (HOST.test(host)) return host
  const fix = 'give one host, optionally with a port: example.org or example.org:8000'
  throw new ProblemError(invalidRequest([{ field: 'Host', value: host, fix }]))
}

/** The method that the upstream acts on, which a header of a POST may override. */
export function methodOf({ method = '', rawHeaders }: GatewayRequest, honoursOverride: boolean): string {
  if (!honoursOverride || method !== 'POST') return method
  const named = METHOD_OVERRIDE_HEADERS.flatMap((name) => headerLines(rawHeaders, name))
  const [override = method] = named
  if (named.length < 2 && METHODS.includes(override.toUpperCase())) return override.toUpperCase()
  const fix = 'give one method in one header'
  throw new ProblemError(invalidRequest([{ field: 'X-HTTP-Method-Override', value: named.join(', '), fix }]))
}

function hostOf({ headers, rawHeaders, stream }: GatewayRequest): string {
  const authority = stream === undefined ? undefined : headers[':authority']?.toString()
  return authority ?? singleHeader(rawHeaders, 'host') ?? ''
}

/** Alternating names and values for the upstream. */
export function headersForUpstream(request: GatewayRequest, forwarded: Forwarded): string[] {
  const lines = headerLinesOf(request)
  const optional = optionsOf(request.headers.connection)
  const list: string[] = ['host', forwarded.host]
  for (let at = 0; at < lines.length; at += 2) {
    const name = lines[at] ?? ''
    const kind = kindOf(name)
    if (kind !== 'plain' && !isForwarded(name, kind, request, forwarded)) continue
    if (name.length === forwarded.bypassHeader.length && name.toLowerCase() === forwarded.bypassHeader) continue
    if (optional !== undefined && kind !== 'framing' && optional.has(name.toLowerCase())) continue
    list.push(name, lines[at + 1] ?? '')
  }
  addForwarded(list, request, forwarded)
  return list
}

function isForwarded(name: string, kind: HeaderKind, request: GatewayRequest, forwarded: Forwarded): boolean {
  switch (kind) {
    case 'hop':
    case 'own':
      return false
    case 'client':
      return forwarded.isTrusted
    case 'method':
      return forwarded.honoursMethod && request.method === 'POST'
    case 'underscored':
      return isUnambiguous(name.toLowerCase().replaceAll('_', '-'), request, forwarded)
    default:
      return true
  }
}

/** Whether a header with underscores cannot be confused with a header that the gateway uses. */
function isUnambiguous(read: string, request: GatewayRequest, forwarded: Forwarded): boolean {
  const used = [...CREDENTIAL_HEADERS, ...forwarded.identityHeaders, forwarded.bypassHeader]
  if (kindOf(read) !== 'plain' || used.includes(read)) return false
  return headerLines(request.rawHeaders, read).length === 0
}

/** For HTTP/2, uses `headers`, in which Node.js has joined split cookies. */
function headerLinesOf({ httpVersionMajor, headers, rawHeaders }: GatewayRequest): readonly string[] {
  if (httpVersionMajor < 2) return rawHeaders
  return Object.entries(headers).flatMap(([name, value]) => [value ?? []].flat().flatMap((line) => [name, line]))
}

/** Further hop-by-hop headers named in `Connection`. */
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
  const received = (name: string) => headerLines(request.rawHeaders, name).join(', ')
  const [addresses, chain] = [received('x-forwarded-for'), received('forwarded')]
  list.push('x-forwarded-for', addresses === '' ? address : `${addresses}, ${address}`)
  list.push('x-forwarded-proto', received('x-forwarded-proto') || proto)
  list.push('x-forwarded-host', received('x-forwarded-host') || host)
  if (chain !== '') list.push('forwarded', `${chain}, for=${address.includes(':') ? `"[${address}]"` : address}`)
}

/** Response headers from undici, with names in lower case. */
export type UpstreamHeaders = Readonly<NodeJS.Dict<string | string[]>>

/** Alternating names and values for the client. */
export function headersForClient(headers: UpstreamHeaders, ours: Readonly<HeaderRecord>): string[] {
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

/** Merges rate limit headers of the upstream with ours: lists are joined, and the stricter numbers win. */
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

/** Drops trailers for connection, framing and routing, which are not allowed after a body (RFC 9110, 6.5.1). */
export function trailersForClient(trailers: UpstreamHeaders): Record<string, string> {
  const entries = Object.entries(trailers).filter(([name]) => !['hop', 'own', 'framing'].includes(kindOf(name)))
  return Object.fromEntries(entries.map(([name, value]) => [name, [value ?? []].flat().join(', ')]))
}
