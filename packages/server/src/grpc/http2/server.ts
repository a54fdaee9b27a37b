// The lean gRPC server: HTTP/2 directly on `node:net` and `node:tls`. Cleartext connections need prior knowledge (h2c);
// TLS connections must negotiate `h2`.

import { type AddressInfo, createServer as createNetServer, type Server, type Socket } from 'node:net'
import {
  createServer as createTlsServer,
  type TlsOptions as NodeTlsOptions,
  type SecureContextOptions,
  TLSSocket,
  type Server as TlsServer,
} from 'node:tls'
import { type ClientConnections, HANDSHAKE_MS_MAX } from '../../access/client-connections.ts'
import {
  type CreateGrpcServer,
  connectionAgeMs,
  GrpcError,
  type GrpcServer,
  type GrpcServerStats,
  noTimeouts,
  type StackOptions,
  type TlsOptions,
} from '../method.ts'
import { Connection, type ServerState } from './connection.ts'
import { Deadlines } from './deadlines.ts'
import { CODE } from './frames.ts'
import { peerOf } from './peer.ts'

/** TCP keep-alive finds clients that vanished while a stream was open. */
const SOCKETS = { noDelay: true, keepAlive: true, keepAliveInitialDelay: 60_000 }
const SWEEP_MS = 1000
// Times in sweeps, which take place once a second.
const PREFACE_SWEEPS_MAX = 10
/** From the first byte of a frame, or of a header block, to its last. */
const FRAME_SWEEPS_MAX = 10
/** From the connection to its first call. Clients that connect in advance reconnect when they need to. */
const FIRST_CALL_SWEEPS_MAX = 20
/** From the headers of a unary call to the end of its request. */
const REQUEST_SWEEPS_MAX = 30
/** A client whose socket accepts no bytes. */
const BLOCKED_SWEEPS_MAX = 60
/** A client whose exhausted flow control windows hold back queued DATA. */
const STALL_SWEEPS_MAX = 300
const IDLE_SWEEPS_MAX = 30 * 60
/** From the last frame of this end to the end of the connection. */
const CLOSING_SWEEPS_MAX = 2

export const createLeanServer: CreateGrpcServer = (options) => {
  const state: ServerState = {
    methods: new Map(options.methods.map((method) => [method.path, method])),
    limits: options.limits,
    deadlines: new Deadlines(),
    buffered: { bytes: 0 },
    sweep: 0,
    calls: 0,
    protocolErrors: 0,
    timedOut: noTimeouts(),
    refusedCalls: { connection: 0, process: 0 },
    onRefused: options.onRefused,
    onError: options.onError,
  }
  return new LeanServer(state, options)
}

class LeanServer implements GrpcServer {
  readonly #state: ServerState
  readonly #clients: ClientConnections
  readonly #server: Server | TlsServer
  readonly #connections = new Map<Socket, Watched>()
  #sweeper: NodeJS.Timeout | undefined
  #isClosing = false

  constructor(state: ServerState, { tls, clients }: StackOptions) {
    this.#state = state
    this.#clients = clients
    const accept = (socket: Socket) => this.#accept(socket)
    this.#server = tls === undefined ? createNetServer(SOCKETS, accept) : createTls(tls, accept)
    this.#server.maxConnections = state.limits.connectionsMax
    clients.watch(this.#server)
  }

  async listen(address: { host: string; port: number } | { path: string }): Promise<{ port: number }> {
    await new Promise<void>((resolve, reject) => {
      this.#server.once('error', reject)
      this.#server.listen(address, () => {
        this.#server.off('error', reject)
        resolve()
      })
    })
    this.#scheduleSweep()
    const bound = this.#server.address() as AddressInfo | string | null
    return { port: typeof bound === 'object' && bound !== null ? bound.port : 0 }
  }

  replaceTls(tls: TlsOptions): void {
    if ('setSecureContext' in this.#server) this.#server.setSecureContext(contextOf(tls))
  }

  stats(): GrpcServerStats {
    const { calls, protocolErrors, timedOut, refusedCalls } = this.#state
    return { connections: this.#connections.size, calls, protocolErrors, timedOut, refusedCalls }
  }

  async close(drainMs: number): Promise<void> {
    this.#isClosing = true
    const stopped = new Promise<void>((resolve) => this.#server.close(() => resolve()))
    for (const { connection } of this.#connections.values()) connection.drain()
    await this.#clients.endWithin(drainMs, stopped)
    clearTimeout(this.#sweeper)
    this.#state.deadlines.clear()
  }

  #accept(socket: Socket): void {
    if (socket instanceof TLSSocket) {
      if (socket.alpnProtocol !== 'h2') {
        this.#state.protocolErrors += 1
        socket.destroy()
        return
      }
      socket.disableRenegotiation() // RFC 9113, section 9.2.1
    }
    const connection = new Connection(socket, peerOf(socket), this.#clients.useOf(socket.remoteAddress), this.#state)
    this.#connections.set(socket, new Watched(socket, connection, this.#state))
    socket.on('data', (chunk: Buffer) => connection.read(chunk))
    socket.on('drain', () => connection.drained())
    socket.on('error', () => {}) // `close` follows
    socket.on('close', () => this.#closed(socket, connection))
    if (this.#isClosing) connection.drain()
  }

  #closed(socket: Socket, connection: Connection): void {
    this.#connections.delete(socket)
    connection.cancelAll()
  }

  #scheduleSweep(): void {
    this.#sweeper = setTimeout(() => {
      this.#state.sweep += 1
      for (const watched of this.#connections.values()) watched.sweep()
      this.#scheduleSweep()
    }, SWEEP_MS).unref()
  }
}

type SecureOptions = SecureContextOptions & NodeTlsOptions

/** Time limits of a connection, checked once a second. */
class Watched {
  readonly connection: Connection
  readonly #socket: Socket
  readonly #state: ServerState
  readonly #openedSweep: number
  /** Sweeps spent in a bad state (not ready, stalled, closing). */
  #badSweeps = 0
  #sentBytes = 0
  #drainSweeps = 0
  /** Sweeps from the start of the connection to the GOAWAY, and to its end. */
  readonly #ageSweepsMax: number
  readonly #endSweepsMax: number

  constructor(socket: Socket, connection: Connection, state: ServerState) {
    this.#socket = socket
    this.connection = connection
    this.#state = state
    this.#openedSweep = state.sweep
    const { connectionAge } = state.limits
    const ageMs = connectionAge && connectionAgeMs(connectionAge)
    this.#ageSweepsMax = (ageMs ?? Number.POSITIVE_INFINITY) / SWEEP_MS
    this.#endSweepsMax = this.#ageSweepsMax + (connectionAge?.graceMs ?? 0) / SWEEP_MS
  }

  sweep(): void {
    const { connection } = this
    this.#badSweeps = this.#isInBadState() ? this.#badSweeps + 1 : 0
    if (this.#badSweeps > this.#badSweepsMax()) {
      if (connection.phase !== 'ended') this.#state.timedOut[connection.isReady ? 'unread' : 'preface'] += 1
      this.#socket.destroy()
      return
    }
    if (connection.phase === 'ended') return
    const ageSweeps = this.#state.sweep - this.#openedSweep
    if (ageSweeps > this.#endSweepsMax) {
      this.#socket.destroy()
      return
    }
    const { unfinishedSweep, isBlocked } = connection
    if (unfinishedSweep !== undefined && !isBlocked && this.#state.sweep - unfinishedSweep > FRAME_SWEEPS_MAX) {
      this.#state.timedOut.frame += 1
      connection.timeOut(`a frame or header block is incomplete after ${FRAME_SWEEPS_MAX} s`)
      return
    }
    if (connection.phase === 'draining') {
      this.#drainSweeps += 1
      if (this.#drainSweeps > 1) connection.refuseCalls() // the client has not answered the PING
    }
    const isUncalled = !connection.hasCalled && ageSweeps > FIRST_CALL_SWEEPS_MAX
    const isIdle = connection.isIdle && this.#state.sweep - connection.activeSweep > IDLE_SWEEPS_MAX
    const isOld = ageSweeps > this.#ageSweepsMax
    if (connection.phase === 'serving' && (isUncalled || isIdle || isOld)) {
      this.#state.timedOut[isUncalled ? 'no_call' : isIdle ? 'idle' : 'age'] += 1
      connection.drain()
    }
    for (const stream of connection.streams) {
      const { kind, method } = stream.request
      if (stream.isRemoteClosed || method?.kind === 'stream') continue
      if (this.#state.sweep - stream.openedSweep <= REQUEST_SWEEPS_MAX) continue
      if (kind === 'plain') stream.reset(CODE.cancel)
      else stream.stop(new GrpcError('deadline_exceeded', 'the request is incomplete'))
    }
  }

  #isInBadState(): boolean {
    const { connection } = this
    const { sentBytes, isWaiting } = connection.sender
    const isStalled = (connection.isBlocked || isWaiting) && sentBytes === this.#sentBytes
    this.#sentBytes = sentBytes
    return isStalled || !connection.isReady || connection.phase === 'ended'
  }

  #badSweepsMax(): number {
    if (this.connection.phase === 'ended') return CLOSING_SWEEPS_MAX
    if (!this.connection.isReady) return PREFACE_SWEEPS_MAX
    return this.connection.isBlocked ? BLOCKED_SWEEPS_MAX : STALL_SWEEPS_MAX
  }
}

function createTls(tls: TlsOptions, accept: (socket: Socket) => void): TlsServer {
  const options = { ...contextOf(tls), ALPNProtocols: ['h2'], handshakeTimeout: HANDSHAKE_MS_MAX, ...SOCKETS }
  const server = createTlsServer(options, accept)
  server.on('tlsClientError', (_error, socket) => socket.destroy())
  return server
}

function contextOf({ key, cert, clientCa }: TlsOptions): SecureOptions {
  const context = { key, cert, minVersion: 'TLSv1.2' as const }
  return clientCa === undefined ? context : { ...context, ca: clientCa, requestCert: true, rejectUnauthorized: true }
}
