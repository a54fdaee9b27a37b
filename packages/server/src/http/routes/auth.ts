// GET|POST /api/v1/rate-limit/auth: forward auth. A proxy asks about a request of its client and gets 204 or a refusal,
// with headers to copy. Only trusted proxies are answered, and only one that says everything in one dialect: a header
// that its client may have slipped in never decides. A proxy that is set up wrongly gets an answer that no proxy takes
// for a refusal, and the log says how to mend it.

import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { type Clock, type Decision, type Fault, type Limiter, wallClock } from 'sluice'
import {
  type Cidr,
  formatAddress,
  type HeaderOptions,
  matchesAny,
  parseAddress,
  type Verdict,
  verdictOf,
} from 'sluice/http'
import type { Check } from '../../checks/checking.ts'
import { leakyDelay } from '../../checks/leaky-delay.ts'
import { createIdentify, headerLines, soleHeader } from '../../clients/identity.ts'
import { createReadSubject, type RequestLine } from '../../clients/request-subject.ts'
import type { Log } from '../../log.ts'
import type { Metrics } from '../../metrics/metrics.ts'
import { invalidRequest, type Problem, type ProblemCode, ProblemError, problem } from '../../problems/problem.ts'
import type { ClientSettings } from '../../settings/client-settings.ts'
import { problemAnswers } from '../bodies/schemas.ts'

export const AUTH_PATH = '/api/v1/rate-limit/auth'

export type AuthParts = {
  readonly limiter: Limiter
  readonly check: Check
  readonly clients: ClientSettings
  readonly headers: HeaderOptions
  readonly log: Log
  readonly metrics: Metrics
  readonly clock?: Clock | undefined
}

type Query = { readonly refused?: '403' | '429' }

/** How proxies tell what their client asked for: nginx by convention, ingress-nginx, then Traefik and Caddy. */
const DIALECTS = [
  { target: 'x-original-uri', method: 'x-original-method' },
  { target: 'x-original-url', method: 'x-original-method' },
  { target: 'x-forwarded-uri', method: 'x-forwarded-method' },
] as const
const NAMES = [...new Set(DIALECTS.flatMap(({ target, method }) => [target, method]))]

/** Names the problem to proxies that see headers only. */
const PROBLEM_HEADER = 'sluice-problem'
/** A proxy that is set up wrongly asks as often as its clients do: one line a minute will do. */
const LOG_EVERY_US = 60_000_000

/** A proxy that waits longer may take the service for away and let the request pass: half of what the examples wait. */
const DELAY_MS_MAX = 500

const SCHEMA = {
  summary: 'May the request pass that a proxy has received?',
  description:
    'For auth_request of nginx, forward auth of Traefik and Caddy, and HAProxy. Only trusted proxies may ask.',
  tags: ['checks'],
  querystring: {
    type: 'object',
    additionalProperties: false,
    properties: {
      refused: {
        type: 'string',
        enum: ['403', '429'],
        'x-fix': 'use 429, or 403 for a proxy that passes nothing else on',
        description: 'The status of a refusal: 429 unless told otherwise.',
      },
    },
  },
  response: {
    204: { type: 'null', description: 'It may pass. The headers are those of the response to the client.' },
    ...problemAnswers(400, 403, 429, 500, 503),
  },
}

export async function authRoutes(app: FastifyInstance, parts: AuthParts): Promise<void> {
  const { limiter, check, clients, headers, log, clock = wallClock } = parts
  const { trustedProxies: trusted, proxyHeader } = clients
  const readSubject = createReadSubject(limiter, createIdentify(clients), { trusted, header: proxyHeader })
  const report = createReport(parts)
  const requestLine = (rawHeaders: readonly string[], remoteAddress: string | undefined): RequestLine => {
    try {
      const peer = requireTrusted(remoteAddress, trusted)
      requireAddress(rawHeaders, proxyHeader)
      return { ...originalRequest(rawHeaders), peer }
    } catch (error) {
      if (error instanceof ProblemError) report(error.problem, remoteAddress)
      throw error
    }
  }
  let warned = false
  /** No proxy tells when the response has ended, and a permit held until it expires would keep others out for long. */
  const letGo = (verdict: Verdict) => {
    verdict.done()
    if (!warned)
      log.warn({ rule_id: verdict.decision.ruleId }, 'concurrency rules are looked at and not held by forward auth')
    warned = true
  }
  const handler = async (request: FastifyRequest<{ Querystring: Query }>, reply: FastifyReply) => {
    const { rawHeaders, socket } = request.raw
    const line = requestLine(rawHeaders, socket.remoteAddress)
    let late: Decision | undefined
    const decision = await check(await readSubject(line, { rawHeaders }), undefined, (decided) => {
      if (decided.delayMs <= DELAY_MS_MAX) return decided
      late = decided
      return refusedForDelay(decided)
    })
    // A kindness: what the store does not confirm flows back by itself.
    if (late !== undefined) await limiter.give(late).catch(() => {})
    else if (decision.delayMs > 0) await leakyDelay(decision.delayMs, reply.raw)
    const verdict = verdictOf(limiter, decision, { clock, headers }, headerLines(rawHeaders, 'accept').join(', '))
    if (verdict.settles) letGo(verdict)
    reply.headers(verdict.headers)
    if (verdict.body === undefined) return reply.code(204).send()
    return reply.code(Number(request.query.refused ?? 429)).send(verdict.body)
  }
  await app.register(async (scope) => {
    ignoreBodies(scope)
    const config = { access: 'proxy' as const } // who that is, the handler knows
    scope.get(AUTH_PATH, { schema: { ...SCHEMA, operationId: 'auth' }, config }, handler)
    scope.post(AUTH_PATH, { schema: { ...SCHEMA, operationId: 'authByPost' }, config }, handler)
  })
}

/** As by the limit that imposes the longest delay. */
function refusedForDelay({ outcomes, delayMs, source, version, requestId }: Decision): Decision {
  const refused = outcomes.map((one) =>
    one.delayMs < delayMs ? one : { ...one, allowed: false, retryAfterMs: delayMs },
  )
  const {
    ruleId = null,
    limit = null,
    remaining = null,
    resetAfterMs = null,
  } = refused.find((one) => !one.allowed) ?? {}
  const numbers = { ruleId, limit, remaining, resetAfterMs, resetAtMs: null, retryAfterMs: delayMs, delayMs: 0 }
  return { allowed: false, ...numbers, source, version, requestId, outcomes: refused }
}

/** A proxy may send the body of its client along: it is of no interest, whatever it is. */
function ignoreBodies(scope: FastifyInstance): void {
  scope.removeAllContentTypeParsers()
  scope.addContentTypeParser('*', (_request, payload, done) => {
    payload.resume()
    done(null)
  })
}

/** Counts requests of proxies that are set up wrongly, and logs the fix: once, then at most once a minute. */
function createReport({ metrics, log, clock = wallClock }: AuthParts) {
  const loggedAt = new Map<ProblemCode, number>()
  return ({ code, detail }: Problem, remoteAddress: string | undefined): void => {
    const count = metrics.forwardAuthFailed(code)
    const nowUs = clock.nowUs()
    if (nowUs - (loggedAt.get(code) ?? Number.NEGATIVE_INFINITY) < LOG_EVERY_US) return
    loggedAt.set(code, nowUs)
    const peer = addressText(remoteAddress)
    log.warn(
      { code, peer, count, fix: detail },
      'forward auth cannot decide: a proxy or --trusted-proxies is set up wrongly',
    )
  }
}

/** 500, because proxies take a 403 for a refusal and may pass requests on after a 503. */
function requireTrusted(peer: string | undefined, trusted: readonly Cidr[]): string {
  const address = peer === undefined ? undefined : parseAddress(peer)
  if (peer !== undefined && address !== undefined && matchesAny(trusted, address)) return peer
  const name = addressText(peer)
  const detail =
    name === undefined
      ? 'The proxy uses a socket file and has no address to trust: use --host and --port instead of --socket.'
      : `${name} is not a trusted proxy of this node. If it is your proxy, add it to --trusted-proxies \
(SLUICE_TRUSTED_PROXIES): --trusted-proxies ${name}`
  throw new ProblemError(problem('PEER_UNTRUSTED', detail), { [PROBLEM_HEADER]: 'PEER_UNTRUSTED' })
}

/** Without the IPv6 prefix that a dual-stack socket puts before an IPv4 address. */
function addressText(peer: string | undefined): string | undefined {
  const address = peer === undefined ? undefined : parseAddress(peer)
  return address === undefined ? peer : formatAddress(address)
}

/** Exactly one dialect: with two, one of them came from the client. */
function originalRequest(rawHeaders: readonly string[]): { method: string; url: string } {
  const sent = new Map(NAMES.map((name) => [name, soleHeader(rawHeaders, name)]))
  const given = NAMES.filter((name) => sent.get(name))
  const dialect = DIALECTS.find(({ target, method }) => sent.get(target) && sent.get(method))
  if (dialect !== undefined && given.length === 2) {
    return { method: sent.get(dialect.method) ?? '', url: sent.get(dialect.target) ?? '' } // both are there
  }
  const fix =
    'have the proxy set one pair, X-Original-URI and X-Original-Method or X-Forwarded-Uri and -Method, and \
drop the headers of the other that a client may send'
  throw new ProblemError(invalidRequest([{ field: 'headers', value: given.join(', '), fix }]))
}

/** Without it all clients would be counted as the proxy. */
function requireAddress(rawHeaders: readonly string[], name: ClientSettings['proxyHeader']): void {
  if (headerLines(rawHeaders, name).length > 0) return
  const fault: Fault = { field: name, value: undefined, fix: 'have the proxy send it: it tells who the client is' }
  throw new ProblemError(invalidRequest([fault]))
}
