// Request path of the gateway: head → route → subject → decision → upstream, or a refusal. Every request is counted
// exactly once, and its permits are released when it ends.

import { constants } from 'node:http2'
import type { Socket } from 'node:net'
import type { TLSSocket } from 'node:tls'
import { type Clock, type Decision, isPromise, type Limiter, type MaybePromise, type Subject } from 'sluice'
import { type DecisionResponse, type HeaderOptions, matchesAny, parseAddress, responseFromDecision } from 'sluice/http'
import type { Check } from '../checks/check-controller.ts'
import { leakyDelay } from '../checks/leaky-delay.ts'
import { createIdentify, identityHeadersOf } from '../clients/identity.ts'
import { createReadSubject, type ReadSubject } from '../clients/request-subject.ts'
import type { Log } from '../log.ts'
import { invalidRequest, type ProblemCode, ProblemError, problem } from '../problems/problem.ts'
import { problemOf } from '../problems/problem-of.ts'
import { headerOptions } from '../settings/header-settings.ts'
import type { RequestSpan } from '../telemetry/request-span.ts'
import type { Telemetry } from '../telemetry/telemetry.ts'
import { certificateOf } from './certificate.ts'
import type { GatewayMetrics, GatewayOutcome } from './gateway-metrics.ts'
import { type GatewayRequest, headersForUpstream, methodOf, type RequestTarget, targetOf } from './request-head.ts'
import { type GatewayResponse, send, sendProblem } from './response.ts'
import { createFindUpstream, type FindUpstream } from './routes.ts'
import type { GatewaySettings } from './settings.ts'
import { isWebSocket, tunnel } from './upgrade.ts'
import { type Cancel, hasBody, Upstream } from './upstream.ts'

export type GatewayDeps = {
  readonly limiter: Limiter
  readonly check: Check
  readonly metrics: GatewayMetrics
  readonly log: Log
  /** Default: requests are not traced. */
  readonly telemetry?: Telemetry | undefined
  readonly clock?: Clock | undefined
}

/** Raw connection of an upgrade request, and the bytes received after its head. */
export type Upgrade = { readonly socket: Socket; readonly head: Buffer }

export class Gateway {
  /** While true, responses close their connections. */
  draining = false
  readonly #settings: GatewaySettings
  readonly #deps: GatewayDeps
  readonly #upstreams: readonly Upstream[]
  readonly #findUpstream: FindUpstream<Upstream>
  readonly #readSubject: ReadSubject
  readonly #headers: HeaderOptions
  readonly #honoursMethod: boolean
  readonly #identityHeaders: readonly string[]
  readonly #webSockets = new Set<Socket>()
  /** Requests in flight per HTTP/1.1 connection; several with pipelining. */
  readonly #inFlight = new Map<Socket, Set<Exchange>>()

  constructor(settings: GatewaySettings, deps: GatewayDeps) {
    const { trustedProxies: trusted, proxyHeader: header, bypassHeader, listenClientCa } = settings
    this.#settings = settings
    this.#deps = deps
    this.#headers = headerOptions(settings)
    const routes = settings.routes.map((route) => {
      const { host = '', prefix, upstream } = route
      return { ...route, upstream: new Upstream(upstream, settings, host + prefix) }
    })
    const fallback = settings.upstream && new Upstream(settings.upstream, settings)
    this.#upstreams = [...routes.map(({ upstream }) => upstream), ...(fallback === undefined ? [] : [fallback])]
    this.#findUpstream = createFindUpstream(routes, fallback)
    const identify = createIdentify(settings, listenClientCa !== undefined)
    this.#honoursMethod = settings.methodOverride === 'honour'
    this.#identityHeaders = identityHeadersOf(settings)
    this.#readSubject = createReadSubject(deps.limiter, identify, { trusted, header }, bypassHeader)
  }

  /** Synchronous if the limiter decides synchronously, so that most requests allocate no promise. */
  handle(request: GatewayRequest, response: GatewayResponse, upgrade?: Upgrade): void {
    const exchange = new Exchange(request, response, upgrade)
    this.#begin(exchange)
    try {
      if (this.#deps.metrics.inFlight > this.#settings.maxInFlight) throw BUSY
      const subject = this.#subjectOf(exchange)
      if (isPromise(subject)) this.#later(exchange, subject, (known) => this.#check(exchange, known))
      else this.#check(exchange, subject)
    } catch (error) {
      this.#fail(exchange, error)
    }
  }

  isBusy(socket: Socket): boolean {
    return (this.#inFlight.get(socket)?.size ?? 0) > 0
  }

  /** Ends WebSockets, which would otherwise stay open indefinitely. */
  closeWebSockets(): void {
    for (const socket of this.#webSockets) socket.destroy()
  }

  async close(): Promise<void> {
    await Promise.all(this.#upstreams.map((upstream) => upstream.close()))
  }

  #begin(exchange: Exchange): void {
    const { request, response, upgrade, socket, isHttp2 } = exchange
    this.#deps.metrics.inFlight += 1
    if (isHttp2) this.#setStreamTimeout(response)
    else this.#requestsOn(socket).add(exchange)
    if (upgrade === undefined) response.once('close', () => this.#end(exchange))
    if (this.draining) response.shouldKeepAlive = false
    const { telemetry } = this.#deps
    if (telemetry !== undefined) exchange.span = telemetry.start(request.method ?? '', request.headers)
  }

  /** Same timeout as an HTTP/1.1 connection: other streams of the session do not keep this one alive. */
  #setStreamTimeout({ stream }: GatewayResponse): void {
    const { clientTimeoutMs, upstreamTimeoutMs } = this.#settings
    stream?.setTimeout(clientTimeoutMs + upstreamTimeoutMs, () => stream.close(constants.NGHTTP2_CANCEL))
  }

  #requestsOn(socket: Socket): Set<Exchange> {
    const known = this.#inFlight.get(socket)
    if (known !== undefined) return known
    const requests = new Set<Exchange>()
    this.#inFlight.set(socket, requests)
    socket.once('close', () => {
      this.#inFlight.delete(socket)
      // Node.js emits `close` only on the current response, not on pipelined ones behind it.
      for (const exchange of [...requests]) this.#end(exchange)
    })
    return requests
  }

  #end(exchange: Exchange): void {
    if (exchange.isOver) return
    const { response, socket, upstream, outcome } = exchange
    const { metrics } = this.#deps
    exchange.isOver = true
    exchange.forwarding?.cancel()
    exchange.result?.done()
    exchange.span?.end(response.headersSent ? response.statusCode : undefined)
    metrics.inFlight -= 1
    this.#webSockets.delete(socket)
    if (outcome === 'passed' && response.headersSent && upstream?.isFailing) this.#answered(upstream)
    const isAborted = outcome === 'passed' && !response.writableEnded && response.statusCode !== 101
    metrics.ended[isAborted ? 'aborted' : outcome] += 1
    this.#inFlight.get(socket)?.delete(exchange)
    // The response head may have promised keep-alive before draining began.
    if (this.draining && !exchange.isHttp2 && !this.isBusy(socket)) socket.destroySoon()
  }

  #fail(exchange: Exchange, error: unknown): void {
    const { request, response } = exchange
    const found = problemOf(error)
    exchange.outcome = OUTCOME_OF[found.code] ?? 'failed'
    if (found.code === 'INTERNAL') this.#deps.log.event('internal_error', { err: error, route: 'gateway' })
    sendProblem(request, response, found)
  }

  #subjectOf(exchange: Exchange): MaybePromise<Subject> {
    const { request, socket } = exchange
    exchange.target = targetOf(request)
    exchange.upstream = this.#findUpstream(exchange.target)
    if (exchange.upstream === undefined) throw NO_ROUTE
    exchange.span?.setRoute(exchange.upstream.route)
    rejectHiddenBody(exchange)
    const method = methodOf(request, this.#honoursMethod)
    const line = { method, url: exchange.target.path, peer: socket.remoteAddress }
    return this.#readSubject(line, { rawHeaders: request.rawHeaders, certificate: certificateOf(socket as TLSSocket) })
  }

  #check(exchange: Exchange, subject: Subject): void {
    const decision = this.#deps.check(subject, undefined, undefined, exchange.span)
    if (isPromise(decision)) this.#later(exchange, decision, (known) => this.#decided(exchange, known))
    else this.#decided(exchange, decision)
  }

  #later<T>(exchange: Exchange, promise: Promise<T>, next: (value: T) => void): void {
    promise.then(next).catch((error: unknown) => this.#fail(exchange, error))
  }

  #decided(exchange: Exchange, decision: Decision): void {
    const { request, response } = exchange
    const { limiter, clock } = this.#deps
    const result = responseFromDecision(limiter, decision, { clock, headers: this.#headers }, request.headers.accept)
    exchange.result = result
    if (exchange.isOver) {
      result.done() // the client disconnected before the decision
    } else if (result.body !== undefined) {
      exchange.outcome = 'refused'
      send(request, response, result.status, result.headers, result.body)
    } else if (decision.delayMs === 0) {
      this.#forward(exchange, result.headers)
    } else {
      const forward = () => void (exchange.isOver || this.#forward(exchange, result.headers))
      leakyDelay(decision.delayMs, response)
        .then(forward)
        .catch((error) => this.#fail(exchange, error))
    }
  }

  #forward(exchange: Exchange, ours: DecisionResponse['headers']): void {
    const { request, response, upgrade, socket, target, upstream, span } = exchange
    if (target === undefined || upstream === undefined) return // never: #subjectOf sets both
    if (request.headers.expect !== undefined) response.writeContinue()
    const { remoteAddress: peer } = socket
    const isEncrypted = (socket as TLSSocket).encrypted === true
    const isTrusted = this.#isTrusted(peer)
    const [honoursMethod, identityHeaders] = [this.#honoursMethod, this.#identityHeaders]
    const { bypassHeader } = this.#settings
    const forwarded = { peer, host: target.host, isEncrypted, isTrusted, honoursMethod, identityHeaders, bypassHeader }
    const received = headersForUpstream(request, forwarded)
    const { telemetry } = this.#deps
    const headers = telemetry === undefined ? received : telemetry.propagate(received, request.headers, span)
    const opensTunnel = upgrade !== undefined && isWebSocket(request)
    exchange.forwarding = upstream.forward({
      request,
      response,
      path: target.path,
      headers,
      ours,
      onUpgrade: opensTunnel ? (list, toUpstream) => this.#tunnel(exchange, upgrade, list, toUpstream) : undefined,
      onFailure: (kind, error) => {
        const isClientFault = kind === 'invalid' || kind === 'slow_upload'
        exchange.outcome = isClientFault ? 'invalid' : kind
        if (!isClientFault) this.#failed(upstream, kind, error)
      },
    })
  }

  #tunnel(
    { request, response, span }: Exchange,
    { socket, head }: Upgrade,
    list: readonly string[],
    toUpstream: Socket,
  ): void {
    this.#webSockets.add(socket)
    tunnel({ request, response, list }, socket, head, toUpstream, this.#settings)
    span?.end(101) // a WebSocket may stay open for days
  }

  /** Logs the start and the end of an outage, not each request. */
  #failed(upstream: Upstream, kind: 'unreachable' | 'slow', { message: reason }: Error): void {
    if (upstream.isFailing) return
    upstream.isFailing = true
    this.#deps.log.event(`upstream_${kind}`, { upstream: upstream.origin, reason })
  }

  #answered(upstream: Upstream): void {
    upstream.isFailing = false
    this.#deps.log.event('upstream_recovered', { upstream: upstream.origin })
  }

  #isTrusted(peer: string | undefined): boolean {
    const { trustedProxies } = this.#settings
    const address = trustedProxies.length === 0 || peer === undefined ? undefined : parseAddress(peer)
    return address !== undefined && matchesAny(trustedProxies, address)
  }
}

/** State of one request. */
class Exchange {
  readonly request: GatewayRequest
  readonly response: GatewayResponse
  readonly upgrade: Upgrade | undefined
  /** Kept here because undici removes it from a finished request. */
  readonly socket: Socket
  readonly isHttp2: boolean
  target: RequestTarget | undefined
  upstream: Upstream | undefined
  /** Undefined before the decision. */
  result: DecisionResponse | undefined
  forwarding: Cancel | undefined
  /** Undefined if the request is not traced. */
  span: RequestSpan | undefined
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

const BUSY = new ProblemError(problem('GATEWAY_BUSY', 'Too many requests are in flight: retry later.'))
const NO_ROUTE = new ProblemError(problem('ROUTE_UNKNOWN', 'No upstream is configured for this host and path.'))

const OUTCOME_OF: Readonly<Partial<Record<ProblemCode, GatewayOutcome>>> = {
  REQUEST_INVALID: 'invalid',
  ROUTE_UNKNOWN: 'no_route',
  GATEWAY_BUSY: 'busy',
}

/**
 * Prevents request smuggling. Node.js does not read the body of an `Upgrade` request, so a forwarded body would be
 * parsed as the next request. It decodes only chunked, so a body with another Transfer-Encoding would be corrupted.
 */
function rejectHiddenBody({ request, upgrade }: Exchange): void {
  const { 'transfer-encoding': coding } = request.headers
  if (coding !== undefined && coding.toLowerCase() !== 'chunked') {
    const field = { field: 'Transfer-Encoding', value: coding, fix: 'use chunked only' }
    throw new ProblemError(invalidRequest([field]))
  }
  if (upgrade === undefined || !hasBody(request)) return
  const fix = 'remove it or the body: the gateway only upgrades to WebSocket, whose requests have no body'
  throw new ProblemError(invalidRequest([{ field: 'Upgrade', value: request.headers.upgrade, fix }]))
}
