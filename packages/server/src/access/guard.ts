// Authenticates and authorises every request before its body is read. Rejects routes that declare no role, and invalid
// tokens everywhere, even on routes that need none. Writes of a dashboard session need its CSRF token.

import type { IncomingHttpHeaders } from 'node:http'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { type Clock, systemClock, wallClock } from 'sluice'
import type { Metrics } from '../metrics/metrics.ts'
import { ProblemError, problem } from '../problems/problem.ts'
import { isClassified } from '../rules/write-paths.ts'
import type { AllowedHosts } from './allowed-hosts.ts'
import { ANONYMOUS_CALLER, Authenticator, unauthorized } from './authenticator.ts'
import { type Access, type Caller, type Role, roleAllows } from './roles.ts'
import { Throttle } from './throttle.ts'
import type { TokenRegistry } from './token-registry.ts'

declare module 'fastify' {
  interface FastifyContextConfig {
    /** Role that the route requires. */
    access?: Access
    /** The route starts sessions, and checks the origin itself: a CSRF token may not exist yet. */
    signsIn?: true
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
  /** Hosts of the dashboard; undefined: no sessions. */
  readonly hosts?: AllowedHosts | undefined
  readonly clock?: Clock | undefined
}

const CSRF_HEADER = 'x-sluice-csrf'
const READS = ['GET', 'HEAD', 'OPTIONS']

/** Call before any route is added. */
export function guardRoutes(app: FastifyInstance, deps: GuardDeps): Authenticator {
  const { tokens, adminToken, metrics, hosts, clock } = deps
  const throttle = new Throttle(clock ?? systemClock)
  const authenticator = new Authenticator({ tokens, adminToken, metrics, hosts, throttle, clock: clock ?? wallClock })
  app.decorateRequest('caller')
  app.addHook('onRoute', ({ method, url, config }) => {
    if (config?.access === undefined) throw new Error(`${method} ${url} declares no role: set config.access`)
    if (config.access === 'proxy') return // checks of proxies, with the method of their client
    const unknown = [method].flat().find((one) => !isClassified(one, url))
    if (unknown !== undefined) throw new Error(`${unknown} ${url} is in no row of rules/write-paths.ts: add it`)
  })
  app.addHook('onRequest', (request, reply, done) => {
    const needed = request.is404 ? 'open' : (request.routeOptions.config.access ?? 'admin')
    request.caller = needed === 'proxy' ? ANONYMOUS_CALLER : authenticator.identify(request)
    if (request.caller.session !== undefined) guardSession(request, reply, hosts)
    if (needed === 'open' || needed === 'proxy' || (needed === 'check' && deps.checksAreOpen)) return done()
    admit(request.caller, needed, deps)
    if (needed !== 'check') throttle.request(request.caller.id)
    done()
  })
  return authenticator
}

/** Refuses writes that another site could have caused. Answers to a session are not stored by caches. */
function guardSession(request: FastifyRequest, reply: FastifyReply, hosts: AllowedHosts | undefined): void {
  reply.header('cache-control', 'no-store')
  const { headers, caller } = request
  if (request.routeOptions.config.signsIn === true) return
  if (READS.includes(request.method)) {
    guardRead(headers)
    return
  }
  if (headers[CSRF_HEADER] === caller.session?.csrf && hosts?.isSameOrigin(request.raw) === true) return
  throw new ProblemError(
    problem('FORBIDDEN', `Writes of a session need its CSRF token in ${CSRF_HEADER}, and must not be cross-site.`),
  )
}

/**
 * Pages of other ports on this host are same-site, so the browser adds the cookie. They cannot read the answers, but
 * would hold event streams. Links from them are navigations.
 */
function guardRead({ 'sec-fetch-site': site, 'sec-fetch-mode': mode }: IncomingHttpHeaders): void {
  if (site === undefined || site === 'same-origin' || site === 'none' || mode === 'navigate') return
  throw new ProblemError(problem('FORBIDDEN', 'A session may be used by pages of its dashboard only.'))
}

function admit({ role, session }: Caller, needed: Role, { tokens, adminToken }: GuardDeps): void {
  if (role === undefined) {
    const hasNoTokens = tokens.size === 0 && adminToken === undefined
    const advice = hasNoTokens
      ? ' This node has no tokens: start it with --tokens-file or --admin-token, or with a database.'
      : ''
    throw unauthorized(`Send a token with the role ${needed}: "Authorization: Bearer <token>".${advice}`)
  }
  if (roleAllows(role, needed)) return
  const who = session === undefined ? 'the token' : 'the token of your session'
  throw new ProblemError(problem('FORBIDDEN', `This requires the role ${needed}; ${who} has the role ${role}.`))
}
