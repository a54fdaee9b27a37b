// Header list → request: the rules of RFC 9113 section 8 for requests, then the fields of gRPC. A request is immutable
// and holds no state of its call, so that the requests of one connection with the same header block share it.

import type { Call, Method, Peer } from '../method.ts'

export type Request = {
  /** `plain`: not a gRPC request; it gets a status of HTTP. */
  readonly kind: 'grpc' | 'plain'
  readonly call: Call
  /** Undefined: the server has no such method, or the request is plain. */
  readonly method: Method | undefined
  /** Status of HTTP for plain requests. */
  readonly httpStatus: number
  /** `grpc-timeout` that cannot be parsed. */
  readonly isTimeoutMalformed: boolean
  /** Value of content-length; -1 without one. */
  readonly contentLength: number
}

/** Unit of `grpc-timeout` → milliseconds. */
const TIMEOUT_UNITS: Readonly<Record<string, number>> = { H: 3.6e6, M: 6e4, S: 1000, m: 1, u: 1e-3, n: 1e-6 }
const NAME = /^[!#$%&'*+\-.^_`|~0-9a-z]+$/
const BAD_VALUE = /[\0\r\n]/
const GRPC_TYPE = /^application\/grpc(\+proto)?\s*(;|$)/i
const PSEUDO = new Set([':method', ':scheme', ':path', ':authority'])
const CONNECTION_SPECIFIC = new Set(['connection', 'keep-alive', 'proxy-connection', 'transfer-encoding', 'upgrade'])

/** Returns undefined for a malformed request: its stream is reset. */
export function parseRequest(
  list: readonly string[],
  peer: Peer,
  methods: ReadonlyMap<string, Method>,
): Request | undefined {
  const pseudo = pseudoHeaders(list)
  if (pseudo === undefined || !hasValidFields(list, pseudo.size)) return undefined
  const path = pseudo.get(':path')
  if (path === undefined || path === '' || !pseudo.has(':method') || !pseudo.has(':scheme')) return undefined
  const length = valueIn(list, 'content-length')
  if (length !== undefined && !/^\d{1,15}$/.test(length)) return undefined
  const timeoutMs = timeoutOf(valueIn(list, 'grpc-timeout'))
  const isPost = pseudo.get(':method') === 'POST'
  const isGrpc = isPost && GRPC_TYPE.test(valueIn(list, 'content-type') ?? '')
  const isMalformed = Number.isNaN(timeoutMs)
  return {
    kind: isGrpc ? 'grpc' : 'plain',
    call: { path, timeoutMs: isMalformed ? undefined : timeoutMs, peer, metadata: (name) => valueIn(list, name) },
    method: isGrpc ? methods.get(path) : undefined,
    httpStatus: isPost ? 415 : 405,
    isTimeoutMalformed: isMalformed,
    contentLength: length === undefined ? -1 : Number(length),
  }
}

/** Trailers of a request: any valid list without pseudo headers. */
export function areTrailersValid(list: readonly string[]): boolean {
  return hasValidFields(list, 0)
}

/** Pseudo headers come first, each at most once. Undefined: unknown or repeated. */
function pseudoHeaders(list: readonly string[]): Map<string, string> | undefined {
  const found = new Map<string, string>()
  for (let at = 0; at < list.length; at += 2) {
    const name = list[at] as string
    if (!name.startsWith(':')) break
    if (!PSEUDO.has(name) || found.has(name)) return undefined
    const value = list[at + 1] as string
    if (BAD_VALUE.test(value)) return undefined
    found.set(name, value)
  }
  return found
}

function hasValidFields(list: readonly string[], pseudoCount: number): boolean {
  for (let at = pseudoCount * 2; at < list.length; at += 2) {
    const name = list[at] as string
    const value = list[at + 1] as string
    if (!NAME.test(name) || BAD_VALUE.test(value) || CONNECTION_SPECIFIC.has(name)) return false
    if (name === 'te' && value !== 'trailers') return false
  }
  return true
}

function valueIn(list: readonly string[], name: string): string | undefined {
  let value: string | undefined
  for (let at = 0; at < list.length; at += 2) {
    if (list[at] === name) value = value === undefined ? list[at + 1] : `${value},${list[at + 1]}`
  }
  return value
}

/** NaN if malformed. */
function timeoutOf(text: string | undefined): number | undefined {
  if (text === undefined) return undefined
  const unit = TIMEOUT_UNITS[text.at(-1) ?? '']
  const digits = text.slice(0, -1)
  return unit === undefined || !/^\d{1,8}$/.test(digits) ? Number.NaN : Number(digits) * unit
}
