// Contract between the gRPC stacks and the handlers: a stack frames messages, statuses and metadata; a handler sees
// complete messages only. Both stacks (http2/ and node:http2) serve the same methods.

import { randomInt } from 'node:crypto'
import type { MaybePromise } from 'sluice'
import { ANONYMOUS_CALLER } from '../access/authenticator.ts'
import type { ClientConnections } from '../access/client-connections.ts'
import type { Caller } from '../access/roles.ts'

export type { Caller }

/** Statuses of gRPC that this server sends. */
export type GrpcStatus =
  | 'ok'
  | 'cancelled'
  | 'invalid_argument'
  | 'deadline_exceeded'
  | 'not_found'
  | 'permission_denied'
  | 'resource_exhausted'
  | 'failed_precondition'
  | 'unimplemented'
  | 'internal'
  | 'unavailable'
  | 'unauthenticated'

/** Their codes on the wire. */
export const GRPC_STATUS: Readonly<Record<GrpcStatus, number>> = {
  ok: 0,
  cancelled: 1,
  invalid_argument: 3,
  deadline_exceeded: 4,
  not_found: 5,
  permission_denied: 7,
  resource_exhausted: 8,
  failed_precondition: 9,
  unimplemented: 12,
  internal: 13,
  unavailable: 14,
  unauthenticated: 16,
}

/** Ends a call with a status other than `ok`. Any other error becomes `internal` without its message. */
export class GrpcError extends Error {
  readonly status: GrpcStatus

  constructor(status: GrpcStatus, message: string) {
    super(message)
    this.name = 'GrpcError'
    this.status = status
  }
}

export function messageTooLarge(bytes: number, bytesMax: number): GrpcError {
  return new GrpcError('resource_exhausted', `message of ${bytes} bytes is too large: at most ${bytesMax} are accepted`)
}

/** Facts of one call. Calls of one connection with the same headers may share the object. */
export type Call = {
  /** Such as `/sluice.v1.RateLimiter/Check`. */
  readonly path: string
  /** Value of a metadata entry by its lower-case name; several values are joined with a comma. */
  metadata(name: string): string | undefined
  /** Time until the client gives up, from `grpc-timeout`, when the call arrived. Undefined: no deadline. */
  readonly timeoutMs: number | undefined
  readonly peer: Peer
}

/** The other end of a connection: the same object for all its calls, so handlers can cache by it. */
export type Peer = {
  /** Address without port; `unix` for a socket file. */
  readonly address: string
  /** Subject of a client certificate that the configured CA signed. Undefined: no such certificate. */
  readonly certificateSubject: string | undefined
  /** Round trip to it, as `roundTripMeasured` estimates it. Undefined: not measured yet. */
  roundTripMs?: number
}

/** Time between two measurements of a round trip, which calls with deadlines cause. */
export const MEASURE_MS = 1000
const ROUND_TRIP_MS_MIN = 0.1

/** Follows the shortest measurements: one that is longer, because an end stalled, adds at most half. */
export function roundTripMeasured(peer: Peer, ms: number): void {
  const { roundTripMs = ms } = peer
  peer.roundTripMs = Math.min(ms, Math.max(ROUND_TRIP_MS_MIN, roundTripMs) * 1.5)
}

/** One message in, one message out. Throws or rejects with `GrpcError`. */
export type UnaryMethod = {
  readonly kind: 'unary'
  readonly path: string
  /** Throws unless the caller may make the call: before its message is decompressed or read. Absent: anybody may. */
  admit?(call: Call): Caller
  /** The message is valid only until the handler returns: it may be a view of the socket's buffer. */
  handle(message: Uint8Array, call: Call, caller: Caller): MaybePromise<Uint8Array>
}

export function admitted(method: UnaryMethod, call: Call): Caller {
  return method.admit === undefined ? ANONYMOUS_CALLER : method.admit(call)
}

/** Messages in both directions, until both ends are closed. */
export type StreamMethod = {
  readonly kind: 'stream'
  readonly path: string
  open(call: Call, output: StreamOutput): StreamInput
}

export type Method = UnaryMethod | StreamMethod

/** Messages to the client. After `end` or `fail`, all calls are no-ops. */
export type StreamOutput = {
  /** Returns false if the client reads too slowly: wait for `drained` before the next message. */
  write(message: Uint8Array): boolean
  /** Resolves when the client has read enough, or is gone. */
  drained(): Promise<void>
  end(): void
  fail(error: GrpcError): void
}

/** Messages from the client. */
export type StreamInput = {
  /** The next message is delivered when the promise settles: back-pressure. A message is valid until this returns. */
  message(message: Uint8Array): MaybePromise<void>
  /** The client has closed its end. */
  end(): void
  /**
   * The call has ended, and not by the handler: the client or connection is gone, the deadline has passed, a message
   * was refused, or the handler threw an error that is not `GrpcError`. Called at most once.
   */
  cancel(): void
}

export type StackLimits = {
  /** Messages above this size end their call with `resource_exhausted`. */
  readonly messageBytesMax: number
  /** Concurrent calls of one connection. */
  readonly streamsMax: number
  /** Concurrent calls of the process; a tenth is kept for addresses that hold few. */
  readonly callsMax: number
  /** Connections of the process. */
  readonly connectionsMax: number
  /** Undefined: a connection may have any age. */
  readonly connectionAge?: ConnectionAge | undefined
}

/** Age at which a connection gets GOAWAY, ±10 %, and the time after which it is closed with its calls. */
export type ConnectionAge = { readonly maxMs: number; readonly graceMs: number }

/** The age of one connection: connections that were opened together end apart. `random`: from 0 to 1. */
export function connectionAgeMs({ maxMs }: ConnectionAge, random: number = randomInt(1001) / 1000): number {
  return maxMs * (0.9 + random * 0.2)
}

export type TlsOptions = {
  readonly key: string | Buffer
  readonly cert: string | Buffer
  /** Clients need a certificate that this CA signed. Undefined: client certificates are not requested. */
  readonly clientCa?: string | Buffer | undefined
}

/** Options of a stack. */
export type StackOptions = {
  readonly methods: readonly Method[]
  readonly limits: StackLimits
  readonly tls?: TlsOptions | undefined
  /** Caps what one client address holds. */
  readonly clients: ClientConnections
  /** Called with the cap at which a call got REFUSED_STREAM. */
  onRefused(cap: CallCap): void
  /** Called with errors that are not `GrpcError`: defects of a handler. */
  onError(error: unknown, path: string): void
}

/** A listening stack. */
export type GrpcServer = {
  listen(
    address: { readonly host: string; readonly port: number } | { readonly path: string },
  ): Promise<{ port: number }>
  /** Replaces certificate and key for new connections. */
  replaceTls(tls: TlsOptions): void
  /** Calls in progress, connections, and counters of refused input, for metrics. */
  stats(): GrpcServerStats
  /** Stops accepting, sends GOAWAY, waits for calls in progress up to the time, then destroys connections. */
  close(drainMs: number): Promise<void>
}

export type GrpcServerStats = {
  readonly connections: number
  readonly calls: number
  /** Connections that were closed because of protocol errors or floods. */
  readonly protocolErrors: number
  /** Connections that were closed at a time limit. */
  readonly timedOut: TimedOut
  readonly refusedCalls: Readonly<Record<CallCap, number>>
}

/** Cap at which a call is refused: that of its connection, or that of the process. */
export type CallCap = 'connection' | 'process'

/**
 * Connections closed at a time limit: no preface, an incomplete frame or header block, no call since the connection
 * opened, idle after calls, a client that does not read, or the maximum age.
 */
export type TimedOut = Record<'preface' | 'frame' | 'no_call' | 'idle' | 'unread' | 'age', number>

export function noTimeouts(): TimedOut {
  return { preface: 0, frame: 0, no_call: 0, idle: 0, unread: 0, age: 0 }
}

export type CreateGrpcServer = (options: StackOptions) => GrpcServer
