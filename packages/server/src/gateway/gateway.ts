// The way of a request through the gateway: head → route → subject → decision → the service behind, or a refusal.
// Whatever happens to it, it is counted once, and its permits are released when it is over.

import { constants } from 'node:http2'
import type { Socket } from 'node:net'
import type { TLSSocket } from 'node:tls'
import type { Clock, Decision, Limiter, Subject } from 'sluice'
import { type HeaderOptions, matchesAny, parseAddress, type Verdict, verdictOf } from 'sluice/http'
import type { Check } from '../checks/checking.ts'
import { leakyDelay } from '../checks/leaky-delay.ts'
import { createIdentify, identityHeadersOf } from '../clients/identity.ts'
import { createReadSubject, type ReadSubject } from '../clients/request-subject.ts'
import type { Log } from '../log.ts'
import { invalidRequest, type ProblemCode, ProblemError, problem } from '../problems/problem.ts'
import { problemOf } from '../problems/problem-of.ts'
import { headerOptions } from '../settings/header-settings.ts'
import { certificateOf } from './certificate.ts'
import type { GatewayMetrics, GatewayOutcome } from './gateway-metrics.ts'
import { type GatewayRequest, headersForUpstream, methodOf, type Target, targetOf } from './request-head.ts'
import { type GatewayResponse, send, sendProblem } from './response.ts'
import { createFindUpstream, type FindUpstream } from './routes.ts'
import type { GatewaySettings } from './settings.ts'
import { isWebSocket, join } from './upgrade.ts'
import { type Cancel, hasBody, Upstream } from './upstream.ts'

export type GatewayParts = {
  readonly limiter: Limiter
  readonly check: Check
  readonly metrics: GatewayMetrics
  readonly log: Log
  readonly clock?: Clock | undefined
}

/** The bare connection of a client that asks for another protocol, and what it has sent ahead. */
export type Upgrade = { readonly socket: Socket; readonly head: Buffer }

export class Gateway {
  /** Once true, clients are told not to use their connections again. */
  draining = false
  readonly #settings: GatewaySettings
  readonly #parts: GatewayParts
  readonly #upstreams: readonly Upstream[]
  readonly #findUpstream: FindUpstream<Upstream>
  readonly #readSubject: ReadSubject
  readonly #headers: HeaderOptions
  readonly #honoursMethod: boolean
  readonly #identityHeaders: readonly string[]
  readonly #webSockets = new Set<Socket>()
  /** Requests under way, by connection that speaks HTTP/1.1: several where a client sends ahead. */
  readonly #underWay = new Map<Socket, Set<Exchange>>()

  constructor(settings: GatewaySettings, parts: GatewayParts) {
    const { trustedProxies: trusted, proxyHeader: header, listenClientCa } = settings
    this.#settings = settings
    this.#parts = parts
    this.#headers = headerOptions(settings)
    const places = settings.routes.map((route) => ({ ...route, upstream: new Upstream(route.upstream, settings) }))
    const fallback = settings.upstream && new Upstream(settings.upstream, settings)
    this.#upstreams = [...places.map(({ upstream }) => upstream), ...(fallback === undefined ? [] : [fallback])]
    this.#findUpstream = createFindUpstream(places, fallback)
    const identify = createIdentify(settings, listenClientCa !== undefined)
    this.#honoursMethod = settings.methodOverride === 'honour'
    this.#identityHeaders = identityHeadersOf(settings)
    this.#readSubject = createReadSubject(parts.limiter, identify, { trusted, header })
  }

  /** Synchronous as far as the limiter is: most requests cost no promise. */
  handle(request: GatewayRequest, response: GatewayResponse, upgrade?: Upgrade): void {
    const exchange = new Exchange(request, response, upgrade)
    this.#begin(exchange)
    try {
      if (this.#parts.metrics.inFlight > this.#settings.maxInFlight) throw BUSY
      const subject = this.#subjectOf(exchange)
      if (subject instanceof Promise) this.#later(exchange, subject, (known) => this.#check(exchange, known))
      else this.#check(exchange, subject)
    } catch (error) {
      this.#fail(exchange, error)
    }
  }

  isBusy(socket: Socket): boolean {
    return (this.#underWay.get(socket)?.size ?? 0) > 0
  }

  /** WebSockets have no end of their own. */
  closeWebSockets(): void {
    for (const socket of this.#webSockets) socket.destroy()
  }

  async close(): Promise<void> {
    await Promise.all(this.#upstreams.map((upstream) => upstream.close()))
  }

  #begin(exchange: Exchange): void {
    const { response, upgrade, socket, isHttp2 } = exchange
    this.#parts.metrics.inFlight += 1
    if (isHttp2) this.#limitSilence(response)
    else this.#requestsOn(socket).add(exchange)
    if (upgrade === undefined) response.once('close', () => this.#end(exchange))
    if (this.draining) response.shouldKeepAlive = false
  }

  /** As for a connection of HTTP/1.1: other requests of the session do not keep this one alive. */
  #limitSilence({ stream }: GatewayResponse): void {
    const { clientTimeoutMs, upstreamTimeoutMs } = this.#settings
    stream?.setTimeout(clientTimeoutMs + upstreamTimeoutMs, () => stream.close(constants.NGHTTP2_CANCEL))
  }

  #requestsOn(socket: Socket): Set<Exchange> {
    const known = this.#underWay.get(socket)
    if (known !== undefined) return known
    const requests = new Set<Exchange>()
    this.#underWay.set(socket, requests)
    socket.once('close', () => {
      this.#underWay.delete(socket)
      // Node tells the response whose turn it is, and none that waits behind it.
      for (const exchange of [...requests]) this.#end(exchange)
    })
    return requests
  }

  #end(exchange: Exchange): void {
    if (exchange.isOver) return
    const { response, socket, upstream, outcome } = exchange
    const { metrics } = this.#parts
    exchange.isOver = true
    exchange.passing?.cancel()
    exchange.verdict?.done()
    metrics.inFlight -= 1
    this.#webSockets.delete(socket)
    if (outcome === 'passed' && response.headersSent && upstream?.isFailing) this.#answered(upstream)
    const cutOff = outcome === 'passed' && !response.writableEnded && response.statusCode !== 101
    metrics.ended(cutOff ? 'left' : outcome)
    this.#underWay.get(socket)?.delete(exchange)
    // The head of the answer may have promised to keep the connection, before the end was near.
    if (this.draining && !exchange.isHttp2 && !this.isBusy(socket)) socket.destroySoon()
  }

  #fail(exchange: Exchange, error: unknown): void {
    const { request, response } = exchange
    const found = problemOf(error)
    exchange.outcome = OUTCOME_OF[found.code] ?? 'failed'
    if (found.code === 'INTERNAL') this.#parts.log.error({ err: error }, found.detail)
    sendProblem(request, response, found)
  }

  #subjectOf(exchange: Exchange): Subject | Promise<Subject> {
    const { request, socket } = exchange
    exchange.target = targetOf(request)
    exchange.upstream = this.#findUpstream(exchange.target)
    if (exchange.upstream === undefined) throw NO_ROUTE
    refuseHiddenBody(exchange)
    const method = methodOf(request, this.#honoursMethod)
    const line = { method, url: exchange.target.path, peer: socket.remoteAddress }
    return this.#readSubject(line, { rawHeaders: request.rawHeaders, certificate: certificateOf(socket as TLSSocket) })
  }

  #check(exchange: Exchange, subject: Subject): void {
    const decision = this.#parts.check(subject)
    if (decision instanceof Promise) this.#later(exchange, decision, (known) => this.#decided(exchange, known))
    else this.#decided(exchange, decision)
  }

  #later<T>(exchange: Exchange, promise: Promise<T>, goOn: (value: T) => void): void {
    promise.then(goOn).catch((error: unknown) => this.#fail(exchange, error))
  }

  #decided(exchange: Exchange, decision: Decision): void {
    const { request, response } = exchange
    const { limiter, clock } = this.#parts
    const verdict = verdictOf(limiter, decision, { clock, headers: this.#headers }, request.headers.accept)
    exchange.verdict = verdict
    if (exchange.isOver) {
      verdict.done() // the client left before it could be decided
    } else if (verdict.body !== undefined) {
      exchange.outcome = 'refused'
      send(request, response, verdict.status, verdict.headers, verdict.body)
    } else if (decision.delayMs === 0) {
      this.#forward(exchange, verdict.headers)
    } else {
      const goOn = () => void (exchange.isOver || this.#forward(exchange, verdict.headers))
      leakyDelay(decision.delayMs, response)
        .then(goOn)
        .catch((error) => this.#fail(exchange, error))
    }
  }

  #forward(exchange: Exchange, ours: Verdict['headers']): void {
    const { request, response, upgrade, socket, target, upstream } = exchange
    if (target === undefined || upstream === undefined) return // never: #subjectOf has found both
    if (request.headers.expect !== undefined) response.writeContinue()
    const { remoteAddress: peer } = socket
    const isEncrypted = (socket as TLSSocket).encrypted === true
    const isTrusted = this.#isTrusted(peer)
    const [honoursMethod, identityHeaders] = [this.#honoursMethod, this.#identityHeaders]
    const forwarded = { peer, host: target.host, isEncrypted, isTrusted, honoursMethod, identityHeaders }
    const headers = headersForUpstream(request, forwarded)
    const joins = upgrade !== undefined && isWebSocket(request)
    exchange.passing = upstream.pass({
      request,
      response,
      path: target.path,
      headers,
      ours,
      onUpgrade: joins ? (list, behind) => this.#join(exchange, upgrade, list, behind) : undefined,
      onFailure: (kind, error) => {
        const isOfClient = kind === 'invalid' || kind === 'late'
        exchange.outcome = isOfClient ? 'invalid' : kind
        if (!isOfClient) this.#failed(upstream, FAILED[kind], error)
      },
    })
  }

  #join({ request, response }: Exchange, { socket, head }: Upgrade, list: readonly string[], behind: Socket): void {
    this.#webSockets.add(socket)
    join({ request, response, list }, socket, head, behind, this.#settings)
  }

  /** Told when it begins and when it ends, not once per request. */
  #failed(upstream: Upstream, what: string, { message: reason }: Error): void {
    if (upstream.isFailing) return
    upstream.isFailing = true
    this.#parts.log.error({ upstream: upstream.origin, reason }, what)
  }

  #answered(upstream: Upstream): void {
    upstream.isFailing = false
    this.#parts.log.info({ upstream: upstream.origin }, 'the service behind answers again')
  }

  #isTrusted(peer: string | undefined): boolean {
    const { trustedProxies } = this.#settings
    const address = trustedProxies.length === 0 || peer === undefined ? undefined : parseAddress(peer)
    return address !== undefined && matchesAny(trustedProxies, address)
  }
}

/** A request and where it stands. */
class Exchange {
  readonly request: GatewayRequest
  readonly response: GatewayResponse
  readonly upgrade: Upgrade | undefined
  /** undici takes it away from a request that it is done with. */
  readonly socket: Socket
  readonly isHttp2: boolean
  target: Target | undefined
  upstream: Upstream | undefined
  /** Undefined until it is decided. */
  verdict: Verdict | undefined
  passing: Cancel | undefined
  outcome: GatewayOutcome = 'passed'
  isOver = false

  constructor(request: GatewayRequest, response: GatewayResponse, upgrade: Upgrade | undefined) {
    this.request = request
    this.response = response
    this.upgrade = upgrade
    this.socket = request.socket
    this.isHttp2 = response.stream !== undefined
  }
}

const BUSY = new ProblemError(problem('GATEWAY_BUSY', 'Too many requests are in flight: try again in a moment.'))
const NO_ROUTE = new ProblemError(problem('ROUTE_UNKNOWN', 'No service behind this gateway is for this host and path.'))

const OUTCOME_OF: Readonly<Partial<Record<ProblemCode, GatewayOutcome>>> = {
  REQUEST_INVALID: 'invalid',
  ROUTE_UNKNOWN: 'no_route',
  GATEWAY_BUSY: 'busy',
}

const FAILED = { unreachable: 'the service behind cannot be reached', slow: 'the service behind does not answer' }

/**
 * Node reads no body of a request with an `Upgrade`: passed on, it would be taken for the next request. And it undoes
 * no coding but chunks: passed on without its name, the body would be taken for another one.
 */
function refuseHiddenBody({ request, upgrade }: Exchange): void {
  const { 'transfer-encoding': coding } = request.headers
  if (coding !== undefined && coding.toLowerCase() !== 'chunked') {
    const field = { field: 'Transfer-Encoding', value: coding, fix: 'send chunks that are not coded otherwise' }
    throw new ProblemError(invalidRequest([field]))
  }
  if (upgrade === undefined || !hasBody(request)) return
  const fix = 'leave it out: this gateway offers WebSockets only, and those begin without a body'
  throw new ProblemError(invalidRequest([{ field: 'Upgrade', value: request.headers.upgrade, fix }]))
}
