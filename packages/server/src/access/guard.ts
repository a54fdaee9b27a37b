// Stands before every route. A route that does not say whom it is for is not accepted; a wrong token is refused
// everywhere, also where none is needed; and strangers are turned away before their body is read.

import { timingSafeEqual } from 'node:crypto'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import { type Clock, systemClock, wallClock } from 'sluice'
import type { Metrics } from '../metrics/metrics.ts'
import { ProblemError, problem } from '../problems/problem.ts'
import { type Access, type Role, roleAllows } from './roles.ts'
import { Throttle } from './throttle.ts'
import { tokenHash } from './token.ts'
import type { TokenBook } from './token-book.ts'

/** Who sent a request. */
export type Caller = {
  /** `anonymous`, or which token: for logs and the audit. */
  readonly id: string
  readonly role: Role | undefined
}

declare module 'fastify' {
  interface FastifyContextConfig {
    /** The role that callers of a route need. */
    access?: Access
  }
  interface FastifyRequest {
    caller: Caller
  }
}

export type GuardParts = {
  readonly tokens: TokenBook
  /** The token of the settings: an admin who needs no database. */
  readonly adminToken: string | undefined
  /** Whether routes of the role `check` are for everybody. */
  readonly checksAreOpen: boolean
  readonly metrics: Metrics
  readonly clock?: Clock | undefined
}

const ANYBODY: Caller = { id: 'anonymous', role: undefined }
const SETTINGS_ADMIN: Caller = { id: 'admin-token', role: 'admin' }

/** Before any route is added. */
export function guardRoutes(app: FastifyInstance, parts: GuardParts): void {
  const throttle = new Throttle(parts.clock ?? systemClock)
  const identify = identifier(parts, parts.clock ?? wallClock, throttle)
  app.decorateRequest('caller')
  app.addHook('onRoute', ({ method, url, config }) => {
    if (config?.access === undefined) throw new Error(`${method} ${url} does not say who may call it: config.access`)
  })
  app.addHook('onRequest', (request, _reply, done) => {
    const needed = request.is404 ? 'open' : (request.routeOptions.config.access ?? 'admin')
    request.caller = needed === 'proxy' ? ANYBODY : identify(request)
    if (needed === 'open' || needed === 'proxy' || (needed === 'check' && parts.checksAreOpen)) return done()
    admit(request.caller, needed, parts)
    if (needed !== 'check') throttle.request(request.caller.id)
    done()
  })
}

function admit({ role }: Caller, needed: Role, { tokens, adminToken }: GuardParts): void {
  if (role === undefined) {
    const none = tokens.size === 0 && adminToken === undefined
    const advice = none
      ? ' This node knows no tokens: start it with --tokens-file or --admin-token, or with a database.'
      : ''
    throw unauthorized(`Send a token of the role ${needed}: "Authorization: Bearer <token>".${advice}`)
  }
  if (roleAllows(role, needed)) return
  throw new ProblemError(problem('FORBIDDEN', `This needs the role ${needed}, and the token has the role ${role}.`))
}

function identifier({ tokens, adminToken, metrics }: GuardParts, clock: Clock, throttle: Throttle) {
  const isAdminToken = adminToken === undefined ? () => false : sameAs(adminToken)
  return ({ headers: { authorization }, ip }: FastifyRequest): Caller => {
    const secret = authorization === undefined ? undefined : bearerOf(authorization)
    if (secret === undefined) return ANYBODY
    const hash = tokenHash(secret)
    const token = tokens.find(hash)
    if (token === undefined) {
      // Compared before the throttle: wrong tokens from an address must not lock out the admin who shares it.
      if (isAdminToken(hash)) return SETTINGS_ADMIN
      metrics.tokensRefused += 1
      throttle.wrongToken(ip || '127.0.0.1') // a socket file has no address; its users are on this machine
      throw unauthorized('This token is not known here.')
    }
    if (token.revokedAt !== null) throw wrongToken(metrics, `This token was revoked at ${token.revokedAt}.`)
    const nowMs = clock.nowUs() / 1000
    if (token.expiresAt !== null && Date.parse(token.expiresAt) <= nowMs)
      throw wrongToken(metrics, `This token ended at ${token.expiresAt}.`)
    tokens.used(token, nowMs)
    return { id: token.tokenId, role: token.role }
  }
}

/** Other schemes are none of ours: whatever they prove, they prove it to somebody else. */
function bearerOf(header: string): string | undefined {
  return /^bearer(?:\s|$)/i.test(header) ? header.slice('bearer'.length).trim() : undefined
}

/** Compares hashes in constant time: neither the length nor the content of the token shows in the time it takes. */
function sameAs(token: string): (hash: string) => boolean {
  const wanted = Buffer.from(tokenHash(token))
  return (hash) => timingSafeEqual(Buffer.from(hash), wanted)
}

function wrongToken(metrics: Metrics, detail: string): ProblemError {
  metrics.tokensRefused += 1
  return unauthorized(detail)
}

function unauthorized(detail: string): ProblemError {
  return new ProblemError(problem('UNAUTHORIZED', detail), { 'www-authenticate': 'Bearer realm="sluice"' })
}
