// The way of a request through the gateway: head → route → subject → decision → the service behind, or a refusal.
// Whatever happens to it, it is counted once, and its permits are released when it is over.

import type { Socket } from 'node:net'
import type { TLSSocket } from 'node:tls'
import { type Clock, type Limiter, systemClock } from 'sluice'
import { canonicalPath, matchesAny, parseAddress, type Verdict, verdictOf } from 'sluice/http'
import type { Pool } from 'undici'
import type { Check } from '../checking.ts'
import { invalidRequest, type ProblemCode, ProblemError, problem } from '../http/problem.ts'
import { problemOf } from '../http/trouble.ts'
import { createIdentify } from '../identity.ts'
import { leakyDelay } from '../leaky-delay.ts'
import type { Log } from '../log.ts'
import { createReadSubject, type ReadSubject } from '../request-subject.ts'
import { certificateOf } from './certificate.ts'
import type { GatewayMetrics, GatewayOutcome } from './gateway-metrics.ts'
import { type GatewayRequest, headersForUpstream, type Target, targetOf } from './request-head.ts'
import { type GatewayResponse, send, sendProblem } from './response.ts'
import { createFindUpstream, type FindUpstream } from './routes.ts'
import type { GatewaySettings } from './settings.ts'
import { isWebSocket, join } from './upgrade.ts'
import { hasBody, openPool, passOn } from './upstream.ts'

export type GatewayParts = {
  readonly limiter: Limiter
  readonly check: Check
  readonly metrics: GatewayMetrics
  readonly log: Log
  readonly clock?: Clock | undefined
}

/** The bare connection of a client that asks for another protocol, and what it has sent ahead. */
export type Upgrade = { readonly socket: Socket; readonly head: Buffer }

/** A request and where it stands. */
type Exchange = {
  readonly request: GatewayRequest
  readonly response: GatewayResponse
  readonly upgrade: Upgrade | undefined
  upstream: URL | undefined
  outcome: GatewayOutcome
  isOver: boolean
  /** Undefined until it is decided. */
  verdict: Verdict | undefined
}

export class Gateway {
  /** Once true, clients are told not to use their connections again. */
  draining = false
  readonly #settings: GatewaySettings
  readonly #parts: GatewayParts
  readonly #findUpstream: FindUpstream
  readonly #readSubject: ReadSubject
  readonly #pools = new Map<URL, Pool>()
  readonly #webSockets = new Set<Socket>()
  /** Connections that speak HTTP/1.1 and have a request under way. */
  readonly #busy = new Set<Socket>()
  /** Upstreams whose last answer was none. */
  readonly #failing = new Set<URL>()

  constructor(settings: GatewaySettings, parts: GatewayParts) {
    const { routes, upstream, trustedProxies: trusted, proxyHeader: header, clientCa } = settings
    this.#settings = settings
    this.#parts = parts
    this.#findUpstream = createFindUpstream(routes, upstream)
    const identify = createIdentify(settings, clientCa !== undefined)
    this.#readSubject = createReadSubject(parts.limiter, identify, { trusted, header })
    const upstreams = [...routes.map((route) => route.upstream), ...(upstream === undefined ? [] : [upstream])]
    for (const one of upstreams) this.#pools.set(one, openPool(one, settings))
  }

  async handle(request: GatewayRequest, response: GatewayResponse, upgrade?: Upgrade): Promise<void> {
    const exchange = this.#begin(request, response, upgrade)
    try {
      if (this.#parts.metrics.inFlight > this.#settings.maxInFlight) throw BUSY
      await this.#pass(exchange)
    } catch (error) {
      const found = problemOf(error)
      exchange.outcome = OUTCOME_OF[found.code] ?? 'failed'
      if (found.code === 'INTERNAL') this.#parts.log.error({ err: error }, found.detail)
      sendProblem(request, response, found)
    }
  }

  isBusy(socket: Socket): boolean {
    return this.#busy.has(socket)
  }

  /** WebSockets have no end of their own. */
  closeWebSockets(): void {
    for (const socket of this.#webSockets) socket.destroy()
  }

  async close(): Promise<void> {
    await Promise.all([...this.#pools.values()].map((pool) => pool.destroy()))
  }

  #begin(request: GatewayRequest, response: GatewayResponse, upgrade: Upgrade | undefined): Exchange {
    const { metrics } = this.#parts
    const { socket } = request // undici takes it away from a request that it is done with
    const exchange: Exchange = { ...{ request, response, upgrade }, ...FRESH }
    metrics.inFlight += 1
    if (response.stream === undefined) this.#busy.add(socket)
    const end = () => {
      exchange.isOver = true
      exchange.verdict?.done()
      metrics.inFlight -= 1
      if (upgrade !== undefined) this.#webSockets.delete(upgrade.socket)
      if (exchange.outcome === 'passed' && response.headersSent) this.#answered(exchange.upstream)
      const cutOff = exchange.outcome === 'passed' && !response.writableEnded && response.statusCode !== 101
      metrics.ended(cutOff ? 'left' : exchange.outcome)
      // The head of the answer may have promised to keep the connection, before the end was near.
      if (this.#busy.delete(socket) && this.draining) socket.destroySoon()
    }
    if (upgrade === undefined) response.once('close', end)
    else upgrade.socket.once('close', end)
    if (this.draining) response.shouldKeepAlive = false
    return exchange
  }

  async #pass(exchange: Exchange): Promise<void> {
    const { request, response } = exchange
    const { check, limiter, clock = systemClock } = this.#parts
    const target = targetOf(request)
    const upstream = this.#findUpstream(target.host, canonicalPath(target.path))
    if (upstream === undefined) throw NO_ROUTE
    exchange.upstream = upstream
    refuseHiddenBody(exchange)
    const socket = request.socket as TLSSocket // or a plain one, which has no certificate
    const line = { method: request.method ?? '', url: target.path, peer: socket.remoteAddress }
    const credentials = { rawHeaders: request.rawHeaders, certificate: certificateOf(socket) }
    const decision = await check(await this.#readSubject(line, credentials))
    const verdict = verdictOf(limiter, decision, { clock }, request.headers.accept)
    exchange.verdict = verdict
    if (exchange.isOver) return verdict.done() // the client left before it could be decided
    if (verdict.body !== undefined) {
      exchange.outcome = 'refused'
      return send(request, response, verdict.status, verdict.headers, verdict.body)
    }
    if (decision.delayMs > 0) await leakyDelay(decision.delayMs, response)
    if (!exchange.isOver) this.#forward(exchange, upstream, target, verdict.headers)
  }

  #forward(exchange: Exchange, upstream: URL, target: Target, ours: Verdict['headers']): void {
    const { request, response, upgrade } = exchange
    if (request.headers.expect !== undefined) response.writeContinue()
    const { remoteAddress: peer } = request.socket
    const isEncrypted = 'encrypted' in request.socket && request.socket.encrypted === true
    const forwarded = { peer, host: target.host, isEncrypted, isTrusted: this.#isTrusted(peer) }
    const headers = headersForUpstream(request, forwarded)
    // One for each upstream of the settings, and it is one of them.
    const pool = this.#pools.get(upstream) as Pool
    passOn(pool, upstream, {
      ...{ request, response, path: target.path, headers, ours },
      onUpgrade:
        upgrade && isWebSocket(request) ? (list, behind) => this.#join(exchange, upgrade, list, behind) : undefined,
      onFailure: (kind, error) => {
        exchange.outcome = kind
        if (kind !== 'invalid') this.#failed(upstream, FAILED[kind], error)
      },
    })
  }

  #join({ request, response }: Exchange, { socket, head }: Upgrade, list: readonly string[], behind: Socket): void {
    this.#webSockets.add(socket)
    join({ request, response, list }, socket, head, behind)
  }

  /** Told when it begins and when it ends, not once per request. */
  #failed(upstream: URL, what: string, { message: reason }: Error): void {
    if (this.#failing.has(upstream)) return
    this.#failing.add(upstream)
    this.#parts.log.error({ upstream: upstream.origin, reason }, what)
  }

  #answered(upstream: URL | undefined): void {
    if (upstream === undefined || !this.#failing.delete(upstream)) return
    this.#parts.log.info({ upstream: upstream.origin }, 'the service behind answers again')
  }

  #isTrusted(peer: string | undefined): boolean {
    const { trustedProxies } = this.#settings
    const address = trustedProxies.length === 0 || peer === undefined ? undefined : parseAddress(peer)
    return address !== undefined && matchesAny(trustedProxies, address)
  }
}

const FRESH = { upstream: undefined, outcome: 'passed' as GatewayOutcome, isOver: false, verdict: undefined }

const BUSY = new ProblemError(problem('GATEWAY_BUSY', 'Too many requests are in flight: try again in a moment.'))
const NO_ROUTE = new ProblemError(problem('ROUTE_UNKNOWN', 'No service behind this gateway is for this host and path.'))

const OUTCOME_OF: Readonly<Partial<Record<ProblemCode, GatewayOutcome>>> = {
  REQUEST_INVALID: 'invalid',
  ROUTE_UNKNOWN: 'no_route',
  GATEWAY_BUSY: 'busy',
}

const FAILED = { unreachable: 'the service behind cannot be reached', slow: 'the service behind does not answer' }

/** Node reads no body of a request with an `Upgrade`: passed on, it would be taken for the next request. */
function refuseHiddenBody({ request, upgrade }: Exchange): void {
  if (upgrade === undefined || !hasBody(request)) return
  const fix = 'leave it out: this gateway offers WebSockets only, and those begin without a body'
  throw new ProblemError(invalidRequest([{ field: 'Upgrade', value: request.headers.upgrade, fix }]))
}
