// Decides who sent a request: the bearer token, else the session of the dashboard. Guessing is throttled per address.

import { timingSafeEqual } from 'node:crypto'
import type { IncomingHttpHeaders } from 'node:http'
import type { Clock } from 'sluice'
import type { Metrics } from '../metrics/metrics.ts'
import { ProblemError, problem } from '../problems/problem.ts'
import type { AllowedHosts } from './allowed-hosts.ts'
import type { Caller } from './roles.ts'
import { openSession, type Session } from './session.ts'
import { sessionCookieOf } from './session-cookie.ts'
import type { Throttle } from './throttle.ts'
import { endedReason, type Token, tokenHash } from './token.ts'
import type { TokenRegistry } from './token-registry.ts'

export type AuthenticatorDeps = {
  readonly tokens: TokenRegistry
  /** Admin token of the settings, which needs no database. */
  readonly adminToken: string | undefined
  /** Undefined: this node accepts no sessions. */
  readonly hosts: AllowedHosts | undefined
  readonly metrics: Metrics
  readonly throttle: Throttle
  /** Time of day. */
  readonly clock: Clock
}

type Sender = { readonly headers: IncomingHttpHeaders; readonly ip: string }

export const ANONYMOUS_CALLER: Caller = { id: 'anonymous', role: undefined }
const SETTINGS_ADMIN_ID = 'admin-token'

export class Authenticator {
  readonly #deps: AuthenticatorDeps
  readonly #settingsAdmin: Token | undefined

  constructor(deps: AuthenticatorDeps) {
    this.#deps = deps
    this.#settingsAdmin = deps.adminToken === undefined ? undefined : settingsAdmin(deps.adminToken)
  }

  /** Throws UNAUTHORIZED for an invalid bearer token. An invalid session is ignored: browsers send cookies unasked. */
  identify({ headers, ip }: Sender): Caller {
    const { authorization } = headers
    const secret = authorization === undefined ? undefined : bearerOf(authorization)
    if (secret !== undefined) {
      const { tokenId: id, role } = this.token(secret, ip)
      return { id, role }
    }
    const session = this.#session(headers)
    return session === undefined ? ANONYMOUS_CALLER : { id: session.token.tokenId, role: session.token.role, session }
  }

  /** Returns the valid token with this secret, or throws UNAUTHORIZED. */
  token(secret: string, ip: string): Token {
    return this.tokenOfHash(tokenHash(secret), ip)
  }

  /** The same by hash, for callers that cache it: a revoked token is refused at once. */
  tokenOfHash(hash: string, ip: string): Token {
    const { tokens, metrics, throttle } = this.#deps
    const token = tokens.find(hash)
    if (token === undefined) {
      // Compared before the throttle: invalid tokens from an address must not lock out an admin behind the same
      // address.
      if (this.#settingsAdmin !== undefined && isSameHash(hash, this.#settingsAdmin.hash)) return this.#settingsAdmin
      metrics.tokenRejected()
      throttle.invalidToken(ip || '127.0.0.1') // a socket file has no address; its clients are local
      throw unauthorized('Unknown token.')
    }
    const ended = endedReason(token, this.nowMs())
    if (ended !== undefined) {
      metrics.tokenRejected()
      throw unauthorized(ended)
    }
    tokens.used(token, this.nowMs())
    return token
  }

  /** Whether the token or session of a caller is still valid. For streams, which can outlive it. */
  isStillValid({ id, role, session }: Caller): boolean {
    if (role === undefined) return true
    const token = this.#find(id)
    const isEnded = token === undefined || endedReason(token, this.nowMs()) !== undefined
    return !isEnded && (session === undefined || this.nowMs() < session.expiresMs)
  }

  /** Whether any token could sign in. */
  get canSignIn(): boolean {
    return this.#settingsAdmin !== undefined || this.#deps.tokens.someMayView(this.nowMs())
  }

  nowMs(): number {
    return this.#deps.clock.nowUs() / 1000
  }

  #session(headers: IncomingHttpHeaders): Session | undefined {
    const { hosts, tokens } = this.#deps
    const cookie = hosts === undefined ? undefined : sessionCookieOf(headers)
    if (cookie === undefined || hosts?.allows(headers.host) !== true) return undefined
    const session = openSession(cookie, (tokenId) => this.#find(tokenId), this.nowMs())
    if (session === undefined || endedReason(session.token, this.nowMs()) !== undefined) return undefined
    tokens.used(session.token, this.nowMs())
    return session
  }

  #find(tokenId: string): Token | undefined {
    return tokenId === SETTINGS_ADMIN_ID ? this.#settingsAdmin : this.#deps.tokens.findById(tokenId)
  }
}

function settingsAdmin(secret: string): Token {
  const dates = { createdAt: '', expiresAt: null, revokedAt: null }
  return { tokenId: SETTINGS_ADMIN_ID, name: '--admin-token', role: 'admin', hash: tokenHash(secret), ...dates }
}

/** Ignores other schemes: they belong to the service behind a proxy. */
export function bearerOf(header: string): string | undefined {
  return /^bearer(?:\s|$)/i.test(header) ? header.slice('bearer'.length).trim() : undefined
}

/** Compares hashes in constant time, so that timing reveals neither length nor content of the token. */
function isSameHash(one: string, other: string): boolean {
  return timingSafeEqual(Buffer.from(one), Buffer.from(other))
}

export function unauthorized(detail: string): ProblemError {
  return new ProblemError(problem('UNAUTHORIZED', detail), { 'www-authenticate': 'Bearer realm="sluice"' })
}
