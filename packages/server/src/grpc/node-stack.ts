// The gRPC stack on `node:http2`: cleartext HTTP/2 (h2c), TLS and mTLS. Frames, flow control and flood defences are
// those of Node.js; this file adds limits, deadlines of uploads, back-pressure of streams and the drain. Node.js does
// not tell when a frame is incomplete: its connection ends after 20 s if it never had a call, and is idle otherwise.

import {
  constants,
  createSecureServer,
  createServer,
  type Http2SecureServer,
  type Http2Server,
  type Http2Session,
  type IncomingHttpHeaders,
  type ServerHttp2Stream,
} from 'node:http2'
import type { AddressInfo } from 'node:net'
import { callsUsedUp, HANDSHAKE_MS_MAX } from '../access/client-connections.ts'
import { peerOf, timeoutMsOf } from './call-facts.ts'
import {
  type Call,
  type CallCap,
  type CreateGrpcServer,
  connectionAgeMs,
  GrpcError,
  type GrpcServer,
  type GrpcServerStats,
  MEASURE_MS,
  type Method,
  noTimeouts,
  type Peer,
  roundTripMeasured,
  type StackOptions,
  type TlsOptions,
} from './method.ts'
import { serveStream, serveUnary } from './node-calls.ts'
import { failCall } from './node-response.ts'

const HEADER_BYTES_MAX = 16 * 1024
/** From the connection to its first call. */
const FIRST_CALL_MS_MAX = 20_000
/** From GOAWAY to the end of a connection without calls: an incomplete frame would keep it open. */
const CLOSING_MS_MAX = 2000
/** Connections without any frame for this long are closed. */
const IDLE_MS_MAX = 30 * 60_000

export const createNodeServer: CreateGrpcServer = (options) => new NodeServer(options)

class NodeServer implements GrpcServer {
  readonly #options: StackOptions
  readonly #server: Http2Server | Http2SecureServer
  readonly #methods: ReadonlyMap<string, Method>
  readonly #sessions = new Set<Http2Session>()
  readonly #peers = new WeakMap<Http2Session, Peer>()
  /** When the round trip of a connection was measured last. */
  readonly #measuredMs = new WeakMap<Http2Session, number>()
  readonly #timedOut = noTimeouts()
  readonly #refusedCalls: Record<CallCap, number> = { connection: 0, process: 0 }
  #calls = 0
  #protocolErrors = 0
  #isClosing = false

  constructor(options: StackOptions) {
    this.#options = options
    this.#methods = new Map(options.methods.map((method) => [method.path, method]))
    this.#server = createHttp2(options)
    this.#server.maxConnections = options.limits.connectionsMax
    options.clients.watch(this.#server)
    this.#server.on('session', (session) => this.#opened(session))
    this.#server.on('sessionError', () => {
      this.#protocolErrors += 1
    })
    this.#server.on('stream', (stream, headers) => this.#called(stream, headers))
    this.#server.on('tlsClientError', (_error, socket) => socket.destroy())
  }

  async listen(address: { host: string; port: number } | { path: string }): Promise<{ port: number }> {
    await new Promise<void>((resolve, reject) => {
      this.#server.once('error', reject)
      this.#server.listen(address, () => {
        this.#server.off('error', reject)
        resolve()
      })
    })
    const bound = this.#server.address() as AddressInfo | string | null
    return { port: typeof bound === 'object' && bound !== null ? bound.port : 0 }
  }

  replaceTls(tls: TlsOptions): void {
    if ('setSecureContext' in this.#server) this.#server.setSecureContext(contextOf(tls))
  }

  stats(): GrpcServerStats {
    return {
      connections: this.#sessions.size,
      calls: this.#calls,
      protocolErrors: this.#protocolErrors,
      timedOut: this.#timedOut,
      refusedCalls: this.#refusedCalls,
    }
  }

  async close(drainMs: number): Promise<void> {
    this.#isClosing = true
    const closed = new Promise<void>((resolve) => {
      this.#server.close(() => resolve())
    })
    for (const session of this.#sessions) session.close() // sends GOAWAY and waits for its streams
    await this.#options.clients.endWithin(drainMs, closed)
  }

  #opened(session: Http2Session): void {
    this.#sessions.add(session)
    session.on('close', () => this.#sessions.delete(session))
    session.on('error', () => {}) // counted by sessionError of the server
    session.setTimeout(IDLE_MS_MAX, () => this.#timeOut(session, 'idle'))
    const timer = setTimeout(() => this.#timeOut(session, 'no_call'), FIRST_CALL_MS_MAX)
    session.once('stream', () => clearTimeout(timer))
    session.once('close', () => clearTimeout(timer))
    this.#limitAge(session)
    if (this.#isClosing) session.close()
  }

  #limitAge(session: Http2Session): void {
    const { connectionAge } = this.#options.limits
    if (connectionAge === undefined) return
    const ageMs = connectionAgeMs(connectionAge)
    let timer = setTimeout(() => {
      this.#timeOut(session, 'age')
      timer = setTimeout(() => session.destroy(), connectionAge.graceMs).unref()
    }, ageMs).unref()
    session.once('close', () => clearTimeout(timer))
  }

  #timeOut(session: Http2Session, limit: 'idle' | 'no_call' | 'age'): void {
    this.#timedOut[limit] += 1
    session.close()
    if (limit === 'no_call') setTimeout(() => session.destroy(), CLOSING_MS_MAX).unref()
  }

  #called(stream: ServerHttp2Stream, headers: IncomingHttpHeaders): void {
    stream.on('error', () => {}) // the client resets streams as it likes; `close` follows
    const { ':method': verb, 'content-type': type = '', ':path': path = '' } = headers
    if (verb !== 'POST' || !type.startsWith('application/grpc')) {
      stream.respond({ ':status': verb === 'POST' ? 415 : 405 }, { endStream: true })
      return
    }
    const method = this.#methods.get(path)
    if (method === undefined) {
      failCall(
        stream,
        new GrpcError('unimplemented', `unknown method ${path.slice(0, 200)}: grpc reflection lists all`),
      )
      return
    }
    const use = this.#options.clients.useOf(stream.session?.socket.remoteAddress)
    if (callsUsedUp(this.#calls, use, this.#options.limits.callsMax)) {
      this.#refusedCalls.process += 1
      this.#options.onRefused('process')
      stream.close(constants.NGHTTP2_REFUSED_STREAM)
      return
    }
    this.#calls += 1
    use.calls += 1
    stream.once('close', () => {
      this.#calls -= 1
      use.calls -= 1
    })
    this.#serve(stream, headers, method)
  }

  #serve(stream: ServerHttp2Stream, headers: IncomingHttpHeaders, method: Method): void {
    const { limits, onError } = this.#options
    const peer = this.#peer(stream)
    const call = callOf(headers, method.path, peer)
    if (call === undefined) {
      failCall(stream, new GrpcError('internal', 'grpc-timeout: send 1 to 8 digits and one of H, M, S, m, u, n'))
      return
    }
    if (call.timeoutMs !== undefined) this.#measure(stream.session, peer)
    const context = { stream, call, bytesMax: limits.messageBytesMax, onError }
    if (method.kind === 'unary') serveUnary(context, method)
    else serveStream(context, method)
  }

  #measure(session: Http2Session | undefined, peer: Peer): void {
    const nowMs = performance.now()
    if (session === undefined || nowMs - (this.#measuredMs.get(session) ?? -MEASURE_MS) < MEASURE_MS) return
    this.#measuredMs.set(session, nowMs)
    session.ping((error, ms) => {
      if (error === null) roundTripMeasured(peer, ms)
    })
  }

  #peer(stream: ServerHttp2Stream): Peer {
    const { session } = stream
    if (session === undefined) return { address: 'unix', certificateSubject: undefined } // already closed
    const known = this.#peers.get(session)
    if (known !== undefined) return known
    const peer = peerOf(session.socket)
    this.#peers.set(session, peer)
    return peer
  }
}

function callOf(headers: IncomingHttpHeaders, path: string, peer: Peer): Call | undefined {
  try {
    const timeoutMs = timeoutMsOf(headers['grpc-timeout'] as string | undefined)
    return { path, timeoutMs, peer, metadata: (name) => headers[name]?.toString() }
  } catch {
    return undefined
  }
}

function createHttp2({ limits, tls }: StackOptions): Http2Server | Http2SecureServer {
  const settings = {
    maxConcurrentStreams: limits.streamsMax,
    maxHeaderListSize: HEADER_BYTES_MAX,
    enablePush: false,
    initialWindowSize: 1 << 20,
  }
  const caps = { maxOutstandingPings: 10, maxSettings: 32, settings }
  if (tls === undefined) return createServer(caps)
  return createSecureServer({
    ...caps,
    ...contextOf(tls),
    allowHTTP1: false,
    handshakeTimeout: HANDSHAKE_MS_MAX,
    requestCert: tls.clientCa !== undefined,
    rejectUnauthorized: tls.clientCa !== undefined,
  })
}

function contextOf({ key, cert, clientCa }: TlsOptions) {
  return { key, cert, ...(clientCa === undefined ? {} : { ca: clientCa }), minVersion: 'TLSv1.2' as const }
}
