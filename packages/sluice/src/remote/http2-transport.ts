// gRPC calls over one HTTP/2 connection (node:http2). A broken connection is replaced by the next call; a call whose
// reply is lost is an error and is not repeated.

import {
  type ClientHttp2Session,
  type ClientHttp2Stream,
  connect,
  constants,
  type SecureClientSessionOptions,
} from 'node:http2'
import { systemTimers } from '../clock.ts'
import { LimiterError } from '../errors.ts'
import { warn } from '../warning.ts'

export type TransportOptions = {
  readonly url: string
  readonly token: string | undefined
  /** CA, and certificate and key of this node for mutual TLS. */
  readonly tls: Pick<SecureClientSessionOptions, 'ca' | 'cert' | 'key'> | undefined
  /** Default: 5000. */
  readonly pingMs?: number
}

/** A stream of messages from the service, and to it. */
export type Subscription = { send(message: Uint8Array): void; close(): void }

const PREFIX_BYTES = 5
/** A connection that is not established, or whose peer does not answer pings, after this time is replaced. */
const PING_MS = 5000
const MESSAGE_BYTES_MAX = 64 * 1024 * 1024
const UNAUTHENTICATED = '16'
const PERMISSION_DENIED = '7'

export class Http2Transport {
  readonly #options: TransportOptions
  #session: ClientHttp2Session | undefined
  #closed = false
  /** `unknown` until the token is first accepted. `refused`: accepted before, refused now. */
  #token: 'unknown' | 'accepted' | 'refused' = 'unknown'

  constructor(options: TransportOptions) {
    this.#options = options
  }

  /** Unary call: one message in, one out. */
  call(path: string, message: Uint8Array): Promise<Uint8Array> {
    return new Promise((resolve, reject) => {
      let reply: Uint8Array | undefined
      this.#open(
        path,
        message,
        (received) => (reply ??= received),
        (error) => {
          if (reply !== undefined && error === undefined) resolve(reply)
          else reject(error ?? unavailable('the service sent no reply'))
        },
      )
    })
  }

  /** Server stream. `onEnd` is called once, also after an error. */
  subscribe(
    path: string,
    message: Uint8Array,
    onMessage: (message: Uint8Array) => void,
    onEnd: (error: LimiterError | undefined) => void,
  ): Subscription {
    const stream = this.#open(path, message, onMessage, onEnd, false)
    return {
      send: (more) => void (stream?.writable && stream.write(framed(more))),
      close: () => stream?.close(constants.NGHTTP2_CANCEL),
    }
  }

  /** From now on, a refused token is an outage with a warning, and not an invalid option. */
  accepted(): void {
    this.#token = 'accepted'
  }

  close(): void {
    this.#closed = true
    this.#session?.close()
  }

  destroy(): void {
    this.#closed = true
    this.#session?.destroy()
  }

  #open(
    path: string,
    message: Uint8Array,
    onMessage: (message: Uint8Array) => void,
    onEnd: (error: LimiterError | undefined) => void,
    endStream = true,
  ): ClientHttp2Stream | undefined {
    let stream: ClientHttp2Stream
    try {
      stream = this.#connected().request(this.#headers(path), { endStream: false })
    } catch (error) {
      queueMicrotask(() => onEnd(unavailable(connectionReason((error as Error).message))))
      return undefined
    }
    followCall(stream, onMessage, (error) => onEnd(error === undefined ? undefined : this.#errorOf(error)))
    if (endStream) stream.end(framed(message))
    else stream.write(framed(message))
    return stream
  }

  #headers(path: string): Record<string, string> {
    const { token } = this.#options
    return {
      ':method': 'POST',
      ':path': path,
      'content-type': 'application/grpc',
      te: 'trailers',
      ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
    }
  }

  #connected(): ClientHttp2Session {
    if (this.#closed) throw new Error('the connection was closed')
    const current = this.#session
    if (current !== undefined && !current.closed && !current.destroyed) return current
    const { url, tls, pingMs = PING_MS } = this.#options
    const session = connect(url, { ...tls })
    session.on('error', () => {}) // every call gets the error
    session.on(
      'close',
      systemTimers.every(pingMs, () => pingOrDestroy(session, pingMs)),
    )
    session.on('goaway', () => {
      if (this.#session === session) this.#session = undefined // calls in progress complete on the old one
    })
    this.#session = session
    return session
  }

  #errorOf(error: LimiterError | RefusedToken): LimiterError {
    if (error instanceof LimiterError) return error
    const reason = `the service refused it (${error.reason})`
    if (this.#token === 'unknown') {
      return new LimiterError('OPTION_INVALID', `token: ${reason}: use a token with the role check`)
    }
    if (this.#token === 'accepted') warn('SLUICE_REMOTE_TOKEN', error.reason)
    this.#token = 'refused'
    return unavailable(`token: ${reason}`)
  }
}

/** The service refused the token of a call. */
type RefusedToken = { readonly reason: string }

function pingOrDestroy(session: ClientHttp2Session, pingMs: number): void {
  if (session.closed || session.destroyed) return
  if (session.connecting) {
    session.destroy(new Error(`no connection within ${pingMs} ms`))
    return
  }
  const timer = setTimeout(() => session.destroy(), pingMs).unref()
  session.ping(() => clearTimeout(timer))
}

function framed(message: Uint8Array): Buffer {
  const frame = Buffer.allocUnsafe(PREFIX_BYTES + message.length)
  frame.writeUInt8(0, 0)
  frame.writeUInt32BE(message.length, 1)
  frame.set(message, PREFIX_BYTES)
  return frame
}

/** Parses messages and the status of a call. */
function followCall(
  stream: ClientHttp2Stream,
  onMessage: (message: Uint8Array) => void,
  onEnd: (error: LimiterError | RefusedToken | undefined) => void,
): void {
  let chunks: Buffer[] = []
  let bytes = 0
  let bytesNeeded = PREFIX_BYTES
  let ended = false
  let status: Record<string, unknown> = {}
  const end = (error: LimiterError | RefusedToken | undefined) => {
    if (ended) return
    ended = true
    onEnd(error)
  }
  stream.on('response', (headers) => {
    status = headers
  })
  stream.on('trailers', (trailers) => {
    status = trailers
  })
  stream.on('data', (chunk: Buffer) => {
    chunks.push(chunk)
    bytes += chunk.length
    if (bytes < bytesNeeded) return
    let rest = chunks.length === 1 ? chunk : Buffer.concat(chunks)
    bytesNeeded = PREFIX_BYTES
    while (rest.length >= PREFIX_BYTES) {
      const length = rest.readUInt32BE(1)
      if (length > MESSAGE_BYTES_MAX) {
        end(unavailable(`a message of ${length} bytes: at most ${MESSAGE_BYTES_MAX} are accepted`))
        stream.destroy()
        return
      }
      bytesNeeded = PREFIX_BYTES + length
      if (rest.length < bytesNeeded) break
      onMessage(rest.subarray(PREFIX_BYTES, bytesNeeded))
      rest = rest.subarray(bytesNeeded)
      bytesNeeded = PREFIX_BYTES
    }
    chunks = rest.length === 0 ? [] : [rest]
    bytes = rest.length
  })
  stream.on('error', (error) => end(unavailable(connectionReason(error.message))))
  stream.on('close', () => end(errorOf(status)))
}

function errorOf(status: Record<string, unknown>): LimiterError | RefusedToken | undefined {
  const code = status['grpc-status']
  if (code === '0') return undefined
  if (code === undefined) return unavailable('the connection to the service closed')
  const text = decodeURIComponent(String(status['grpc-message'] ?? ''))
  if (code === UNAUTHENTICATED || code === PERMISSION_DENIED) return { reason: text }
  return unavailable(`gRPC status ${code}: ${text}`)
}

/** Names the likely mistake if the port speaks another protocol. */
function connectionReason(message: string): string {
  if (message.includes('wrong version number')) return 'the port has no TLS: use http:// in url'
  if (message === 'Protocol error') return 'the port does not speak HTTP/2: use the port of --grpc-port in url'
  return message
}

function unavailable(reason: string): LimiterError {
  return new LimiterError('STORE_UNAVAILABLE', `service: ${reason}`)
}
