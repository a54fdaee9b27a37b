// Identity of a client: user, API key, tenant and plan, read from the sources in the settings. Ambiguous input is
// rejected, so that the upstream cannot attribute the request to another client.

import type { MaybePromise, Subject } from 'sluice'
import { invalidRequest, ProblemError } from '../problems/problem.ts'
import type { FactSource, IdentitySettings, JwtSettings } from '../settings/client-settings.ts'
import { settingInvalid } from '../settings/setting-invalid.ts'
import { type Claims, type ClaimsOf, claimsReader } from './jwt-claims.ts'

export type Facts = Pick<Subject, 'user' | 'apiKey' | 'tenant' | 'plan'>

/** Input for identification. */
export type Credentials = {
  /** Alternating names and values, as sent. */
  readonly rawHeaders: readonly string[]
  /** The verified certificate of the connection, if it has one: `cn` and `fingerprint`. */
  readonly certificate?: Readonly<Record<string, string | undefined>> | undefined
}

export type Identify = (credentials: Credentials) => MaybePromise<Facts>

type Reader = (credentials: Credentials, claims: Claims) => string | undefined

const NO_CLAIMS: Claims = {}

/** Throws OPTION_INVALID for JWT keys without a JWT source, and for certificate sources without client certificates. */
export function createIdentify(settings: IdentitySettings, hasCertificates = false): Identify {
  const { userFrom: user, apiKeyFrom: apiKey, tenantFrom: tenant, planFrom: plan } = settings
  if (!hasCertificates) rejectCertificateSources(settings)
  const sources = Object.entries({ user, apiKey, tenant, plan }).flatMap(([fact, source]) => {
    return source === undefined ? [] : [[fact as keyof Facts, readerOf(source)] as const]
  })
  const readsTokens = [user, apiKey, tenant, plan].some((source) => source?.kind === 'jwt')
  const claimsOf = claimsReader(settings)
  if (!readsTokens) rejectUnusedKeys(settings)
  const factsOf = (credentials: Credentials, claims: Claims) => {
    const facts: { -readonly [K in keyof Facts]: Facts[K] } = {}
    // An empty string is not an identity.
    for (const [fact, read] of sources) facts[fact] = read(credentials, claims) || undefined
    return facts
  }
  if (!readsTokens) return (credentials) => factsOf(credentials, NO_CLAIMS)
  return async (credentials) => factsOf(credentials, await claimsIn(credentials, claimsOf))
}

/** Lower-case names of the headers that facts are read from. */
export function identityHeadersOf({ userFrom, apiKeyFrom, tenantFrom, planFrom }: IdentitySettings): readonly string[] {
  const sources = [userFrom, apiKeyFrom, tenantFrom, planFrom]
  return sources.flatMap((source) => (source?.kind === 'header' ? [source.name] : []))
}

function rejectUnusedKeys({ jwtSecret, jwtKey }: JwtSettings): void {
  const fix = 'remove it, or read a fact from jwt:<claim>: it has no effect otherwise'
  if (jwtSecret !== undefined) throw settingInvalid('jwt-secret', undefined, fix)
  if (jwtKey !== undefined) throw settingInvalid('jwt-key', jwtKey, fix)
}

function rejectCertificateSources({ userFrom, apiKeyFrom, tenantFrom, planFrom }: IdentitySettings): void {
  for (const [flag, source] of Object.entries({
    user: userFrom,
    'api-key': apiKeyFrom,
    tenant: tenantFrom,
    plan: planFrom,
  })) {
    if (source?.kind !== 'cert') continue
    const fix = 'use another source: only a gateway with --listen-client-ca receives client certificates'
    throw settingInvalid(`${flag}-from`, `cert:${source.name}`, fix)
  }
}

function readerOf({ kind, name }: FactSource): Reader {
  switch (kind) {
    case 'header':
      return ({ rawHeaders }) => singleHeader(rawHeaders, name)
    case 'cookie':
      return cookieReader(name)
    case 'jwt':
      return (_credentials, claims) => claimText(claims[name])
    case 'cert':
      return ({ certificate }) => certificate?.[name]
  }
}

/** Value of a header by its lower-case name. Rejects repeated headers, which the upstream may read differently. */
export function singleHeader(rawHeaders: readonly string[], name: string): string | undefined {
  const at = headerAt(rawHeaders, name, 0)
  if (at < 0) return undefined
  if (headerAt(rawHeaders, name, at + 2) < 0) return rawHeaders[at + 1]
  const value = headerLines(rawHeaders, name).join(', ')
  throw new ProblemError(invalidRequest([{ field: name, value, fix: 'send this header once' }]))
}

export function headerLines(rawHeaders: readonly string[], name: string): string[] {
  const lines: string[] = []
  for (let at = headerAt(rawHeaders, name, 0); at >= 0; at = headerAt(rawHeaders, name, at + 2)) {
    lines.push(rawHeaders[at + 1] ?? '')
  }
  return lines
}

/** Index of a header, from `start` on; -1 if absent. */
function headerAt(rawHeaders: readonly string[], name: string, start: number): number {
  for (let at = start; at < rawHeaders.length; at += 2) {
    const sent = rawHeaders[at] ?? ''
    if (sent.length === name.length && (sent === name || sent.toLowerCase() === name)) return at
  }
  return -1
}

/**
 * Reads a cookie by its name. Services disagree on repeated cookies and on separators: Python's SimpleCookie reads
 * `alice` from `session=x session=alice`. Rejects a cookie that any of them could read differently.
 */
function cookieReader(name: string): Reader {
  const occurrence = new RegExp(`(?:^|[;,\\s])${name.replace(/[^\w]/g, '\\$&')}\\s*=`, 'g')
  // The values may be secrets: the error shows the name only.
  const ambiguous = (fix: string) => new ProblemError(invalidRequest([{ field: 'cookie', value: name, fix }]))
  return ({ rawHeaders }) => {
    const lines = headerLines(rawHeaders, 'cookie')
    const count = lines.reduce((sum, line) => sum + (line.match(occurrence)?.length ?? 0), 0)
    if (count === 0) return undefined
    if (count > 1) throw ambiguous('send the cookie of this name once')
    const value = cookieValue(lines, name)
    if (value === undefined) throw ambiguous('put a semicolon before the cookie of this name')
    if (AMBIGUOUS_VALUE.test(value))
      throw ambiguous('percent-encode spaces, commas, quotes and backslashes in its value')
    return percentDecoded(value)
  }
}

/** Separators and escapes of lenient parsers. RFC 6265 allows none of them in a value. */
const AMBIGUOUS_VALUE = /[\s,"\\]/

/** Strips whitespace and quotes, as many services do: both forms are the same client. */
function cookieValue(lines: readonly string[], name: string): string | undefined {
  for (const pair of lines.flatMap((line) => line.split(';'))) {
    const equals = pair.indexOf('=')
    if (equals < 0 || pair.slice(0, equals).trim() !== name) continue
    return pair
      .slice(equals + 1)
      .trim()
      .replace(/^"(.*)"$/, '$1')
  }
  return undefined
}

function percentDecoded(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    return text
  }
}

async function claimsIn({ rawHeaders }: Credentials, claimsOf: ClaimsOf): Promise<Claims> {
  const [scheme = '', token] = singleHeader(rawHeaders, 'authorization')?.trim().split(/\s+/) ?? []
  return token !== undefined && scheme.toLowerCase() === 'bearer' ? claimsOf(token) : NO_CLAIMS
}

function claimText(claim: unknown): string | undefined {
  return typeof claim === 'string' || typeof claim === 'number' ? String(claim) : undefined
}
