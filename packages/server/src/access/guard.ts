// Authenticates and authorises every request before its body is read. Rejects routes that declare no role, and invalid
// tokens everywhere, even on routes that need none.

import { timingSafeEqual } from 'node:crypto'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import { type Clock, systemClock, wallClock } from 'sluice'
import type { Metrics } from '../metrics/metrics.ts'
import { ProblemError, problem } from '../problems/problem.ts'
import { type Access, type Caller, type Role, roleAllows } from './roles.ts'
import { Throttle } from './throttle.ts'
import { tokenHash } from './token.ts'
import type { TokenRegistry } from './token-registry.ts'

declare module 'fastify' {
  interface FastifyContextConfig {
    /** Role that the route requires. */
    access?: Access
  }
  interface FastifyRequest {
    caller: Caller
  }
}

export type GuardDeps = {
  readonly tokens: TokenRegistry
  /** Admin token of the settings, which needs no database. */
  readonly adminToken: string | undefined
  /** Whether routes of the role `check` need no token. */
  readonly checksAreOpen: boolean
  readonly metrics: Metrics
  readonly clock?: Clock | undefined
}

const ANONYMOUS_CALLER: Caller = { id: 'anonymous', role: undefined }
const SETTINGS_ADMIN: Caller = { id: 'admin-token', role: 'admin' }

/** Call before any route is added. */
export function guardRoutes(app: FastifyInstance, deps: GuardDeps): void {
  const throttle = new Throttle(deps.clock ?? systemClock)
  const identify = identifier(deps, deps.clock ?? wallClock, throttle)
  app.decorateRequest('caller')
  app.addHook('onRoute', ({ method, url, config }) => {
    if (config?.access === undefined) throw new Error(`${method} ${url} declares no role: set config.access`)
  })
  app.addHook('onRequest', (request, _reply, done) => {
    const needed = request.is404 ? 'open' : (request.routeOptions.config.access ?? 'admin')
    request.caller = needed === 'proxy' ? ANONYMOUS_CALLER : identify(request)
    if (needed === 'open' || needed === 'proxy' || (needed === 'check' && deps.checksAreOpen)) return done()
    admit(request.caller, needed, deps)
    if (needed !== 'check') throttle.request(request.caller.id)
    done()
  })
}

function admit({ role }: Caller, needed: Role, { tokens, adminToken }: GuardDeps): void {
  if (role === undefined) {
    const hasNoTokens = tokens.size === 0 && adminToken === undefined
    const advice = hasNoTokens
      ? ' This node has no tokens: start it with --tokens-file or --admin-token, or with a database.'
      : ''
    throw unauthorized(`Send a token with the role ${needed}: "Authorization: Bearer <token>".${advice}`)
  }
  if (roleAllows(role, needed)) return
  throw new ProblemError(problem('FORBIDDEN', `This requires the role ${needed}; the token has the role ${role}.`))
}

function identifier({ tokens, adminToken, metrics }: GuardDeps, clock: Clock, throttle: Throttle) {
  const isAdminToken = adminToken === undefined ? () => false : hashMatcher(adminToken)
  return ({ headers: { authorization }, ip }: FastifyRequest): Caller => {
    const secret = authorization === undefined ? undefined : bearerOf(authorization)
    if (secret === undefined) return ANONYMOUS_CALLER
    const hash = tokenHash(secret)
    const token = tokens.find(hash)
    if (token === undefined) {
      // Compared before the throttle: invalid tokens from an address must not lock out an admin behind the same
      // address.
      if (isAdminToken(hash)) return SETTINGS_ADMIN
      metrics.tokenRejected()
      throttle.invalidToken(ip || '127.0.0.1') // a socket file has no address; its clients are local
      throw unauthorized('Unknown token.')
    }
    if (token.revokedAt !== null) throw invalidToken(metrics, `This token was revoked at ${token.revokedAt}.`)
    const nowMs = clock.nowUs() / 1000
    if (token.expiresAt !== null && Date.parse(token.expiresAt) <= nowMs)
      throw invalidToken(metrics, `This token expired at ${token.expiresAt}.`)
    tokens.used(token, nowMs)
    return { id: token.tokenId, role: token.role }
  }
}

/** Ignores other schemes: they belong to the service behind a proxy. */
function bearerOf(header: string): string | undefined {
  return /^bearer(?:\s|$)/i.test(header) ? header.slice('bearer'.length).trim() : undefined
}

/** Compares hashes in constant time, so that timing reveals neither length nor content of the token. */
function hashMatcher(token: string): (hash: string) => boolean {
  const wanted = Buffer.from(tokenHash(token))
  return (hash) => timingSafeEqual(Buffer.from(hash), wanted)
}

function invalidToken(metrics: Metrics, detail: string): ProblemError {
  metrics.tokenRejected()
  return unauthorized(detail)
}

function unauthorized(detail: string): ProblemError {
  return new ProblemError(problem('UNAUTHORIZED', detail), { 'www-authenticate': 'Bearer realm="sluice"' })
}
