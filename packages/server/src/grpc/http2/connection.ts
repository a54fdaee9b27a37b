// One connection: frames, settings and receive windows. Every violation of the protocol by the client ends a stream
// (RST_STREAM) or the connection (GOAWAY), as RFC 9113 says; nothing that a client sends throws out of this file.

import type { Socket } from 'node:net'
import { type AddressUse, callsUsedUp } from '../../access/client-connections.ts'
import {
  type CallCap,
  MEASURE_MS,
  type Method,
  type Peer,
  roundTripMeasured,
  type StackLimits,
  type TimedOut,
} from '../method.ts'
import { BufferedBytes, type SharedBytes } from './buffered-bytes.ts'
import type { Deadlines } from './deadlines.ts'
import { FloodBudget } from './flood-budget.ts'
import { FrameReader } from './frame-reader.ts'
import { CODE, type Code, ConnectionError, FLAG, FRAME, readUint31, WINDOW_DEFAULT, WINDOW_MAX } from './frames.ts'
import { HEADER_LIST_BYTES_MAX, HeaderBlocks } from './header-blocks.ts'
import { Output } from './output.ts'
import type { Request } from './request.ts'
import { ResetIds } from './reset-ids.ts'
import { plainBlock } from './response.ts'
import { Sender } from './sender.ts'
import { initialWindowOf } from './settings.ts'
import { ServerStream, type StreamHost } from './stream.ts'

const RECEIVE_WINDOW = 1024 * 1024
/** DATA frames below this size, unless they end the stream, count as flood. */
const TINY_DATA_BYTES = 16
const DRAIN_PING: Buffer = Buffer.from('drained?')
const MEASURE_PING: Buffer = Buffer.from('measured')

/** State that all connections of a server share. */
export type ServerState = {
  readonly methods: ReadonlyMap<string, Method>
  readonly limits: StackLimits
  readonly deadlines: Deadlines
  /** Incomplete messages and unread answers of all connections. */
  readonly buffered: SharedBytes
  /** Number of the current sweep: a coarse clock. */
  sweep: number
  calls: number
  protocolErrors: number
  readonly timedOut: TimedOut
  readonly refusedCalls: Record<CallCap, number>
  onRefused(cap: CallCap): void
  onError(error: unknown, path: string): void
}

type Phase = 'serving' | 'draining' | 'final' | 'ended'

export class Connection implements StreamHost {
  readonly sender: Sender
  readonly messageBytesMax: number
  readonly inboxBytes: BufferedBytes
  /** Sweep in which the last frame arrived. */
  activeSweep: number
  /** Sweep in which the frame or header block began whose end is missing. Undefined: all are complete. */
  unfinishedSweep: number | undefined
  /** Whether the client has opened a call. */
  hasCalled = false
  phase: Phase = 'serving'
  readonly #socket: Socket
  readonly #peer: Peer
  readonly #server: ServerState
  readonly #use: AddressUse
  readonly #output: Output
  readonly #reader = new FrameReader()
  readonly #blocks: HeaderBlocks
  readonly #budget = new FloodBudget()
  readonly #streams = new Map<number, ServerStream>()
  readonly #resetIds = new ResetIds()
  /** Calls of the current read that have a deadline: most are answered before it needs a timer. */
  #timed: ServerStream[] = []
  /** When the last PING that measures the round trip was sent, and whether it is unanswered. */
  #measuredMs = -MEASURE_MS
  #isMeasuring = false
  #openStreams = 0
  #lastId = 0
  #recvWindow = RECEIVE_WINDOW
  #held: Buffer | undefined

  constructor(socket: Socket, peer: Peer, use: AddressUse, server: ServerState) {
    this.#socket = socket
    this.#peer = peer
    this.#use = use
    this.#server = server
    this.#blocks = new HeaderBlocks(peer, server.methods)
    this.#output = new Output(socket)
    this.messageBytesMax = server.limits.messageBytesMax
    this.inboxBytes = new BufferedBytes(Math.max(4 * this.messageBytesMax, RECEIVE_WINDOW), server.buffered)
    this.sender = new Sender(this.#output, server.buffered)
    this.activeSweep = server.sweep
    this.sender.settings(server.limits.streamsMax, HEADER_LIST_BYTES_MAX)
    this.sender.windowUpdate(0, RECEIVE_WINDOW - WINDOW_DEFAULT)
  }

  get isReady(): boolean {
    return this.#reader.isReady
  }

  get isBlocked(): boolean {
    return this.#output.isBlocked
  }

  get streams(): Iterable<ServerStream> {
    return this.#streams.values()
  }

  get isIdle(): boolean {
    return this.#streams.size === 0
  }

  /** Takes the bytes of one read; all answers leave in one write. */
  read(chunk: Buffer): void {
    if (this.phase === 'ended') return
    this.activeSweep = this.#server.sweep
    this.#output.cork()
    try {
      this.#readFrames(chunk)
    } catch (error) {
      this.#fail(error)
    }
    this.#reader.release()
    this.#blocks.release()
    this.#output.uncork()
    if (this.#timed.length > 0) this.#startTimers()
  }

  /** The socket accepts bytes again. */
  drained(): void {
    this.#output.isBlocked = false
    if (this.unfinishedSweep !== undefined) this.unfinishedSweep = this.#server.sweep // this end had stopped reading
    this.sender.pump()
    const held = this.#held
    this.#held = undefined
    if (held !== undefined) this.read(held)
    if (this.#held === undefined && this.#socket.isPaused()) this.#socket.resume()
  }

  /** Announces the end: calls in progress finish, then the connection closes. */
  drain(): void {
    if (this.phase !== 'serving') return
    this.phase = 'draining'
    this.sender.goaway(WINDOW_MAX, CODE.noError)
    // Calls that cross the GOAWAY are served: the final one follows the answer to this PING.
    this.sender.ping(0, DRAIN_PING)
  }

  /** Accepts no more calls. */
  refuseCalls(): void {
    if (this.phase !== 'draining') return
    this.phase = 'final'
    this.sender.goaway(this.#lastId, CODE.noError)
    this.#endIfDone()
  }

  /** Ends the connection at a time limit. */
  timeOut(text: string): void {
    this.#end(CODE.calm, text)
  }

  /** The socket is gone, or the connection failed. */
  cancelAll(): void {
    this.phase = 'ended'
    for (const stream of this.#streams.values()) stream.cancel()
  }

  // StreamHost

  worked(): void {
    this.#budget.earn()
  }

  reportError(error: unknown, path: string): void {
    this.#server.onError(error, path)
  }

  closed(stream: ServerStream): void {
    this.#streams.delete(stream.id)
    if (stream.deadlineTick !== 0) this.#server.deadlines.remove(stream)
    if (!stream.isRemoteClosed) this.#resetIds.add(stream.id)
    if (this.phase === 'final') this.#endIfDone()
  }

  released(_stream: ServerStream): void {
    this.#openStreams -= 1
    this.#use.calls -= 1
    this.#server.calls -= 1
  }

  #readFrames(chunk: Buffer): void {
    const reader = this.#reader
    let at = reader.skipPreface(chunk)
    while (at < chunk.length && this.phase !== 'ended') {
      at = reader.next(chunk, at)
      if (!reader.isComplete) continue
      this.#frame(reader.type, reader.flags, reader.id, reader.bytes, reader.start, reader.end)
      if (this.#blocks.openId === 0) this.unfinishedSweep = undefined
      if (this.#output.isBlocked && at < chunk.length) {
        this.#held = chunk.subarray(at)
        break
      }
    }
    if (reader.isPartial || this.#blocks.openId !== 0) this.unfinishedSweep ??= this.#server.sweep
    if (this.#output.isBlocked) this.#socket.pause()
  }

  #frame(type: number, flags: number, id: number, bytes: Buffer, start: number, end: number): void {
    const { openId } = this.#blocks
    if (openId !== 0 && (type !== FRAME.continuation || id !== openId)) throw violation('expected CONTINUATION')
    if (type === FRAME.data) this.#data(flags, id, bytes, start, end)
    else if (type === FRAME.headers) {
      if (this.#blocks.begin(flags, id, bytes, start, end)) this.#headers()
    } else {
      this.#budget.spendFrame(this.sender.sentBytes)
      this.#controlFrame(type, flags, id, bytes, start, end)
    }
  }

  #controlFrame(type: number, flags: number, id: number, bytes: Buffer, start: number, end: number): void {
    const length = end - start
    if (type === FRAME.continuation) {
      if (this.#blocks.append(flags, bytes, start, end)) this.#headers()
    } else if (type === FRAME.settings) {
      if (id !== 0) throw violation('SETTINGS on a stream')
      this.#settings(flags, bytes, start, end)
    } else if (type === FRAME.ping) {
      if (id !== 0) throw violation('PING on a stream')
      if (length !== 8) throw wrongSize('PING')
      this.#ping(flags, bytes.subarray(start, end))
    } else if (type === FRAME.goaway) {
      if (id !== 0) throw violation('GOAWAY on a stream')
      if (length < 8) throw wrongSize('GOAWAY')
    } else if (type === FRAME.windowUpdate) {
      if (length !== 4) throw wrongSize('WINDOW_UPDATE')
      this.#windowUpdate(id, readUint31(bytes, start))
    } else if (type === FRAME.priority) {
      if (id === 0) throw violation('PRIORITY without a stream')
      if (length !== 5) this.#resetId(id, CODE.frameSize)
      else if (readUint31(bytes, start) === id) this.#resetId(id, CODE.protocol)
    } else if (type === FRAME.rstStream) {
      if (id === 0) throw violation('RST_STREAM without a stream')
      if (length !== 4) throw wrongSize('RST_STREAM')
      this.#rstStream(id)
    } else if (type === FRAME.pushPromise) throw violation('PUSH_PROMISE from a client')
    // Unknown types are ignored.
  }

  #data(flags: number, id: number, bytes: Buffer, start: number, end: number): void {
    if (id === 0) throw violation('DATA without a stream')
    this.#checkNotIdle(id)
    const length = end - start
    this.#recvWindow -= length
    if (this.#recvWindow < 0) throw new ConnectionError(CODE.flowControl, 'window of the connection exceeded')
    if (this.#recvWindow < RECEIVE_WINDOW / 2) {
      this.sender.windowUpdate(0, RECEIVE_WINDOW - this.#recvWindow)
      this.#recvWindow = RECEIVE_WINDOW
    }
    const isEnd = (flags & FLAG.endStream) !== 0
    if (length < TINY_DATA_BYTES && !isEnd) this.#budget.spend(1)
    let from = start
    let to = end
    if ((flags & FLAG.padded) !== 0) {
      const padding = length === 0 ? 0 : (bytes[start] as number)
      if (padding >= length) throw violation('padding exceeds the frame')
      from += 1
      to -= padding
    }
    const stream = this.#streams.get(id)
    if (stream === undefined) this.#frameOnClosed(id)
    else this.#streamData(stream, length, bytes, from, to, isEnd)
  }

  #streamData(stream: ServerStream, length: number, bytes: Buffer, from: number, to: number, isEnd: boolean): void {
    stream.recvWindow -= length
    if (stream.isRemoteClosed) stream.reset(CODE.streamClosed)
    else if (stream.recvWindow < 0) stream.reset(CODE.flowControl)
    else stream.receive(bytes, from, to, isEnd)
    if (!stream.isClosed && !isEnd) stream.grantWindow()
  }

  /** A complete header block: opens a stream, or ends its request with trailers. */
  #headers(): void {
    const blocks = this.#blocks
    const { id, isEnd } = blocks
    if (id > this.#lastId) {
      const request = blocks.request()
      // Streams above the id of the final GOAWAY were never accepted: the client sends them elsewhere.
      if (this.phase === 'final') return
      this.#lastId = id
      if (request === undefined || blocks.isSelfDependent) this.#refuse(id, CODE.protocol, isEnd)
      else if (request === 'too-large') this.#refuseLongHeaders(id, isEnd)
      else this.#openOrRefuse(id, request, isEnd)
      return
    }
    const areValid = blocks.trailers()
    const stream = this.#streams.get(id)
    if (stream === undefined) {
      this.#budget.spend(1)
      if (this.#resetIds.has(id)) return
      const code = id === this.#lastId ? CODE.streamClosed : CODE.protocol
      throw new ConnectionError(code, 'HEADERS on a closed stream')
    }
    if (stream.isRemoteClosed) stream.reset(CODE.streamClosed)
    else if (areValid) stream.receive(NO_BYTES, 0, 0, true)
    else stream.reset(CODE.protocol)
  }

  #openOrRefuse(id: number, request: Request, isEnd: boolean): void {
    const { limits, calls, refusedCalls, onRefused } = this.#server
    const cap = this.#openStreams >= limits.streamsMax ? 'connection' : 'process'
    if (cap === 'process' && !callsUsedUp(calls, this.#use, limits.callsMax)) {
      this.#open(id, request, isEnd)
      return
    }
    refusedCalls[cap] += 1
    onRefused(cap)
    this.#refuse(id, CODE.refusedStream, isEnd)
  }

  #open(id: number, request: Request, isEnd: boolean): void {
    this.hasCalled = true
    const stream = new ServerStream(id, request, this, this.#server.sweep)
    this.#streams.set(id, stream)
    this.#openStreams += 1
    this.#use.calls += 1
    this.#server.calls += 1
    if (request.call.timeoutMs !== undefined) {
      this.#timed.push(stream)
      this.#measure()
    }
    stream.isRemoteClosed = isEnd
    stream.open()
    if (isEnd && !stream.isClosed) stream.receive(NO_BYTES, 0, 0, true)
  }

  #startTimers(): void {
    for (const stream of this.#timed) {
      if (!stream.isClosed) this.#server.deadlines.add(stream, stream.request.call.timeoutMs ?? 0)
    }
    this.#timed = []
  }

  /** For deadlines of later calls. */
  #measure(): void {
    const nowMs = performance.now()
    if (this.#isMeasuring || nowMs - this.#measuredMs < MEASURE_MS) return
    this.#measuredMs = nowMs
    this.#isMeasuring = true
    this.sender.ping(0, MEASURE_PING)
  }

  #rstStream(id: number): void {
    this.#checkNotIdle(id)
    const stream = this.#streams.get(id)
    if (stream === undefined) return
    stream.isRemoteClosed = true
    stream.cancel()
  }

  #settings(flags: number, bytes: Buffer, start: number, end: number): void {
    const isAck = (flags & FLAG.ack) !== 0
    if (isAck ? end > start : (end - start) % 6 !== 0) throw wrongSize('SETTINGS')
    if (isAck) return
    const window = initialWindowOf(bytes, start, end, this.sender.initialWindow)
    const change = window - this.sender.initialWindow
    this.sender.initialWindow = window
    this.sender.settingsAck()
    if (change === 0) return
    for (const stream of this.#streams.values()) {
      stream.sendWindow += change
      if (stream.sendWindow > WINDOW_MAX) throw new ConnectionError(CODE.flowControl, 'window of a stream')
    }
    this.sender.pump()
  }

  #ping(flags: number, payload: Buffer): void {
    if ((flags & FLAG.ack) === 0) this.sender.ping(FLAG.ack, payload)
    else if (DRAIN_PING.equals(payload)) this.refuseCalls()
    else if (this.#isMeasuring && MEASURE_PING.equals(payload)) {
      this.#isMeasuring = false
      roundTripMeasured(this.#peer, performance.now() - this.#measuredMs)
    }
  }

  #windowUpdate(id: number, increment: number): void {
    const { sender } = this
    if (id === 0) {
      if (increment === 0) throw violation('WINDOW_UPDATE of 0')
      sender.window += increment
      if (sender.window > WINDOW_MAX) throw new ConnectionError(CODE.flowControl, 'window of the connection')
      sender.pump()
      return
    }
    this.#checkNotIdle(id)
    const stream = this.#streams.get(id)
    if (stream === undefined) return
    stream.sendWindow += increment
    if (increment === 0) stream.reset(CODE.protocol)
    else if (stream.sendWindow > WINDOW_MAX) stream.reset(CODE.flowControl)
    else sender.pumpOne(stream)
  }

  #checkNotIdle(id: number): void {
    // After the final GOAWAY, the client may have opened streams that this end ignores.
    if ((id > this.#lastId && this.phase !== 'final') || id % 2 === 0) throw violation('frame on an idle stream')
  }

  #frameOnClosed(id: number): void {
    this.#budget.spend(1)
    if (!this.#resetIds.has(id) && id <= this.#lastId) this.sender.reset(id, CODE.streamClosed)
  }

  #resetId(id: number, code: Code): void {
    const stream = this.#streams.get(id)
    if (stream === undefined) this.sender.reset(id, code)
    else stream.reset(code)
  }

  #refuse(id: number, code: Code, isEnd: boolean): void {
    this.#budget.spend(1)
    this.sender.reset(id, code)
    if (!isEnd) this.#resetIds.add(id)
  }

  #refuseLongHeaders(id: number, isEnd: boolean): void {
    this.sender.headers(id, plainBlock(431, 0), true)
    if (isEnd) this.#budget.spend(1)
    else this.#refuse(id, CODE.noError, false)
  }

  #endIfDone(): void {
    if (this.#streams.size > 0) return
    this.phase = 'ended'
    this.#output.flush()
    this.#socket.end()
  }

  #fail(error: unknown): void {
    const isViolation = error instanceof ConnectionError
    this.#server.protocolErrors += 1
    if (!isViolation) this.#server.onError(error, 'connection')
    if (isViolation) this.#end(error.code, error.message)
    else this.#end(CODE.internal, '')
  }

  #end(code: Code, text: string): void {
    this.cancelAll()
    this.sender.goaway(this.#lastId, code, text)
    this.#output.flush()
    this.#socket.end()
  }
}

const NO_BYTES = Buffer.alloc(0)

function violation(text: string): ConnectionError {
  return new ConnectionError(CODE.protocol, text)
}

function wrongSize(frame: string): ConnectionError {
  return new ConnectionError(CODE.frameSize, `${frame} of an invalid size`)
}
