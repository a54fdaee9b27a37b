// GET|POST /api/v1/rate-limit/auth: forward auth. A proxy describes a request of its client and gets 204 or a refusal,
// with headers to copy. Only trusted proxies get an answer, and only if they use exactly one header convention, so that
// a header injected by a client never decides. A misconfigured proxy gets a status that no proxy mistakes for a
// refusal, and the log names the fix.

import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { type Clock, type Decision, type FieldError, type Limiter, wallClock } from 'sluice'
import {
  type Cidr,
  type DecisionResponse,
  formatAddress,
  type HeaderOptions,
  matchesAny,
  parseAddress,
  responseFromDecision,
} from 'sluice/http'
import type { Check } from '../../checks/check-controller.ts'
import { leakyDelay } from '../../checks/leaky-delay.ts'
import { createIdentify, headerLines, singleHeader } from '../../clients/identity.ts'
import { createReadSubject, type RequestLine } from '../../clients/request-subject.ts'
import type { Log } from '../../log.ts'
import type { Metrics } from '../../metrics/metrics.ts'
import { invalidRequest, type Problem, type ProblemCode, ProblemError, problem } from '../../problems/problem.ts'
import type { ClientSettings } from '../../settings/client-settings.ts'
import { problemAnswers } from '../bodies/schemas.ts'

export const AUTH_PATH = '/api/v1/rate-limit/auth'

export type AuthDeps = {
  readonly limiter: Limiter
  readonly check: Check
  readonly clients: ClientSettings
  readonly headers: HeaderOptions
  readonly log: Log
  readonly metrics: Metrics
  readonly clock?: Clock | undefined
}

type Query = { readonly refused?: '403' | '429' }

/** Headers that describe the original request: nginx by convention, ingress-nginx, then Traefik and Caddy. */
const CONVENTIONS = [
  { target: 'x-original-uri', method: 'x-original-method' },
  { target: 'x-original-url', method: 'x-original-method' },
  { target: 'x-forwarded-uri', method: 'x-forwarded-method' },
] as const
const NAMES = [...new Set(CONVENTIONS.flatMap(({ target, method }) => [target, method]))]

/** Names the problem for proxies that read headers only. */
const PROBLEM_HEADER = 'sluice-problem'
/** The problem document, with `?refused=403`: proxies that forward no other status drop the body. */
const REFUSAL_HEADER = 'sluice-refusal'
/** A misconfigured proxy fails for every request of its clients: log one line a minute. */
const LOG_EVERY_US = 60_000_000

/** Half of the timeout of the example proxies: after a timeout a proxy may admit the request. */
const DELAY_MS_MAX = 500

const SCHEMA = {
  summary: 'Check a request for a proxy',
  description: 'For auth_request of nginx, forward auth of Traefik and Caddy, and HAProxy. For trusted proxies only.',
  tags: ['checks'],
  querystring: {
    type: 'object',
    additionalProperties: false,
    properties: {
      refused: {
        type: 'string',
        enum: ['403', '429'],
        'x-fix': 'use 429, or 403 for a proxy that forwards no other status',
        description: 'Status of every refusal; default 429, or 403 for a ban with that status.',
      },
    },
  },
  response: {
    204: { type: 'null', description: 'Admitted. The headers are for the response to the client.' },
    ...problemAnswers(400, 403, 429, 500, 503),
  },
}

export async function authRoutes(app: FastifyInstance, deps: AuthDeps): Promise<void> {
  const { limiter, check, clients, headers, log, clock = wallClock } = deps
  const { trustedProxies: trusted, proxyHeader, bypassHeader } = clients
  const proxies = { trusted, header: proxyHeader }
  const readSubject = createReadSubject(limiter, createIdentify(clients), proxies, bypassHeader)
  const report = createReport(deps)
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
  /** No proxy reports the end of a response, and a permit held until it expires would block others. */
  const release = (result: DecisionResponse) => {
    result.done()
    if (!warned) log.event('forward_auth_permit_not_held', { rule_id: result.decision.ruleId })
    warned = true
  }
  const handler = async (request: FastifyRequest<{ Querystring: Query }>, reply: FastifyReply) => {
    const { rawHeaders, socket } = request.raw
    const line = requestLine(rawHeaders, socket.remoteAddress)
    let late: Decision | undefined
    const replace = (decided: Decision) => {
      if (decided.delayMs <= DELAY_MS_MAX) return decided
      late = decided
      return refusedForDelay(decided)
    }
    const decision = await check(await readSubject(line, { rawHeaders }), undefined, replace, request.span)
    // Best effort: without confirmation from the store, the units refill over time.
    if (late !== undefined) await limiter.give(late).catch(() => {})
    else if (decision.delayMs > 0) await leakyDelay(decision.delayMs, reply.raw)
    const result = responseFromDecision(
      limiter,
      decision,
      { clock, headers },
      headerLines(rawHeaders, 'accept').join(', '),
    )
    if (result.settles) release(result)
    reply.headers(result.headers)
    if (result.body === undefined) return reply.code(204).send()
    const { refused = result.status } = request.query
    if (refused === '403') reply.header(REFUSAL_HEADER, asciiJson(result.problem))
    return reply.code(Number(refused)).send(result.body)
  }
  await app.register(async (scope) => {
    ignoreBodies(scope)
    const config = { access: 'proxy' as const } // the handler checks the proxy
    scope.get(AUTH_PATH, { schema: { ...SCHEMA, operationId: 'auth' }, config }, handler)
    scope.post(AUTH_PATH, { schema: { ...SCHEMA, operationId: 'authByPost' }, config }, handler)
  })
}

/** JSON that a header can carry. */
function asciiJson(value: unknown): string {
  return JSON.stringify(value).replace(/[^ -~]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`)
}

/** Turns an admission with a long delay into a refusal by the limit that imposes it. */
function refusedForDelay({ outcomes, delayMs, source, version, requestId, exceptions }: Decision): Decision {
  const waits = { resetAfterMs: delayMs, retryAfterMs: delayMs }
  const refused = outcomes.map((one) => (one.delayMs < delayMs ? one : { ...one, ...waits, allowed: false }))
  const {
    ruleId = null,
    limit = null,
    remaining = null,
    fullAfterMs = null,
  } = refused.find((one) => !one.allowed) ?? {}
  const numbers = { ruleId, limit, remaining, ...waits, resetAtMs: null, fullAfterMs, fullAtMs: null, delayMs: 0 }
  return { allowed: false, ...numbers, source, version, requestId, outcomes: refused, exceptions }
}

/** Proxies may forward the body of their client: it is discarded. */
function ignoreBodies(scope: FastifyInstance): void {
  scope.removeAllContentTypeParsers()
  scope.addContentTypeParser('*', (_request, payload, done) => {
    payload.resume()
    done(null)
  })
}

/** Counts requests of misconfigured proxies, and logs the fix at most once a minute per problem. */
function createReport({ metrics, log, clock = wallClock }: AuthDeps) {
  const loggedAt = new Map<ProblemCode, number>()
  return ({ code, detail }: Problem, remoteAddress: string | undefined): void => {
    const count = metrics.forwardAuthFailed(code)
    const nowUs = clock.nowUs()
    if (nowUs - (loggedAt.get(code) ?? Number.NEGATIVE_INFINITY) < LOG_EVERY_US) return
    loggedAt.set(code, nowUs)
    const peer = addressText(remoteAddress)
    log.event('forward_auth_misconfigured', { code, peer, count, fix: detail })
  }
}

/** 500, because proxies treat a 403 as a refusal and may admit requests after a 503. */
function requireTrusted(peer: string | undefined, trusted: readonly Cidr[]): string {
  const address = peer === undefined ? undefined : parseAddress(peer)
  if (peer !== undefined && address !== undefined && matchesAny(trusted, address)) return peer
  const name = addressText(peer)
  const detail =
    name === undefined
      ? 'The proxy uses a socket file and has no address to trust: use --host and --port instead of --socket \
(gateway: --api-host and --api-port).'
      : `${name} is not a trusted proxy of this node. If it is your proxy, add it to --trusted-proxies \
(SLUICE_TRUSTED_PROXIES): --trusted-proxies ${name}`
  throw new ProblemError(problem('PEER_UNTRUSTED', detail), { [PROBLEM_HEADER]: 'PEER_UNTRUSTED' })
}

/** Strips the IPv6 prefix that a dual-stack socket puts before an IPv4 address. */
function addressText(peer: string | undefined): string | undefined {
  const address = peer === undefined ? undefined : parseAddress(peer)
  return address === undefined ? peer : formatAddress(address)
}

/** Exactly one convention: with two, one of them came from the client. */
function originalRequest(rawHeaders: readonly string[]): { method: string; url: string } {
  const sent = new Map(NAMES.map((name) => [name, singleHeader(rawHeaders, name)]))
  const given = NAMES.filter((name) => sent.get(name))
  const convention = CONVENTIONS.find(({ target, method }) => sent.get(target) && sent.get(method))
  if (convention !== undefined && given.length === 2) {
    return { method: sent.get(convention.method) ?? '', url: sent.get(convention.target) ?? '' } // both were found
  }
  const fix =
    'make the proxy set one pair, X-Original-URI and X-Original-Method or X-Forwarded-Uri and X-Forwarded-Method, and \
remove the other pair, which a client may send'
  throw new ProblemError(invalidRequest([{ field: 'headers', value: given.join(', '), fix }]))
}

/** Without this header all clients would count as the proxy. */
function requireAddress(rawHeaders: readonly string[], name: ClientSettings['proxyHeader']): void {
  if (headerLines(rawHeaders, name).length > 0) return
  const fieldError: FieldError = {
    field: name,
    value: undefined,
    fix: 'make the proxy send it: it identifies the client',
  }
  throw new ProblemError(invalidRequest([fieldError]))
}
