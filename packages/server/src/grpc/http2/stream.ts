// One stream of HTTP/2: a call of gRPC, or a plain request, from its headers to END_STREAM of both sides. Delivers
// complete messages to the method, and its answer to the sender.

import { isPromise, type MaybePromise } from 'sluice'
import { flagProblem, wholeMessage } from '../compression.ts'
import {
  admitted,
  type Caller,
  GrpcError,
  messageTooLarge,
  type StreamInput,
  type StreamOutput,
  type UnaryMethod,
} from '../method.ts'
import type { BufferedBytes } from './buffered-bytes.ts'
import type { Expiring } from './deadlines.ts'
import { CODE, type Code, WINDOW_DEFAULT } from './frames.ts'
import { Inbox } from './inbox.ts'
import type { Request } from './request.ts'
import { failureBlock, HEAD_BLOCK, OK_BLOCK, plainBlock } from './response.ts'
import { NO_TRAILERS, type Outgoing, type Sender } from './sender.ts'

const PREFIX_BYTES = 5
/** Queued output above which `write` asks the handler to wait. */
const OUTPUT_BYTES_HIGH = 64 * 1024
/** Queued output above which a further `write` resets the stream. Below it, one message of any size is accepted. */
const OUTPUT_BYTES_MAX = 1024 * 1024

/** The connection, as a stream sees it. */
export type StreamHost = {
  readonly sender: Sender
  readonly messageBytesMax: number
  /** Incomplete messages of all its streams. */
  readonly inboxBytes: BufferedBytes
  /** A message was received or sent. */
  worked(): void
  reportError(error: unknown, path: string): void
  /** The stream takes no more frames. */
  closed(stream: ServerStream): void
  /** The handler has settled too: the stream no longer counts as open. */
  released(stream: ServerStream): void
}

export class ServerStream implements Outgoing, Expiring, StreamOutput {
  readonly id: number
  readonly request: Request
  sendWindow: number
  recvWindow: number = WINDOW_DEFAULT
  queue: Uint8Array[] = []
  queueBytes = 0
  trailers: Uint8Array | undefined
  deadlineTick = 0
  /** Sweep of the server in which the stream was opened. */
  readonly openedSweep: number
  /** The client has sent END_STREAM. */
  isRemoteClosed = false
  /** Both sides are closed, or the stream was reset. */
  isClosed = false
  readonly #host: StreamHost
  #inbox: Inbox | undefined
  #receivedBytes = 0
  #headersSent = false
  /** The handler has ended the call, or it failed. */
  #isAnswered = false
  /** A promise of the handler is pending. */
  #isBusy = false
  #input: StreamInput | undefined
  #inputEnded = false
  #drained: (() => void)[] | undefined

  constructor(id: number, request: Request, host: StreamHost, openedSweep: number) {
    this.id = id
    this.request = request
    this.#host = host
    this.openedSweep = openedSweep
    this.sendWindow = host.sender.initialWindow
  }

  /** Answers requests that need no message, and opens stream methods. */
  open(): void {
    const { kind, method, call, isTimeoutMalformed } = this.request
    if (kind === 'plain') return
    if (method === undefined) {
      const path = call.path.slice(0, 200)
      this.fail(new GrpcError('unimplemented', `unknown method ${path}: reflection lists all methods`))
    } else if (isTimeoutMalformed) {
      this.fail(new GrpcError('internal', 'grpc-timeout: send 1 to 8 digits and one of H, M, S, m, u, n'))
    } else if (method.kind === 'stream') {
      try {
        this.#input = method.open(call, this)
      } catch (error) {
        this.#failWith(error)
      }
    }
  }

  /** Takes the payload of a DATA frame. */
  receive(bytes: Buffer, start: number, end: number, isEnd: boolean): void {
    this.#receivedBytes += end - start
    this.isRemoteClosed = isEnd
    const { contentLength, kind, method } = this.request
    if (contentLength >= 0 && (isEnd ? this.#receivedBytes !== contentLength : this.#receivedBytes > contentLength)) {
      this.reset(CODE.protocol)
    } else if (kind === 'plain') {
      if (isEnd) this.#answerPlain()
    } else if (this.#isAnswered || method === undefined) {
      this.#closeIfDone()
    } else if (method.kind === 'unary') {
      if (isEnd && this.#inbox === undefined && isWholeMessage(bytes, start, end)) {
        const length = end - start - PREFIX_BYTES
        if (length > this.#host.messageBytesMax) this.stop(messageTooLarge(length, this.#host.messageBytesMax))
        else this.#call(method, bytes.subarray(start + PREFIX_BYTES, end), this.#admitted(method))
      } else {
        this.#collect(bytes, start, end)
        if (!this.#isRefused() && isEnd) this.#callCollected(method)
      }
    } else {
      this.#collect(bytes, start, end)
      if (!this.#isBusy || !this.#isRefused()) this.#deliver()
    }
  }

  /** Gives back the window of bytes that are consumed; waits while the handler is behind. */
  grantWindow(): void {
    const waiting = this.#isBusy && this.#inbox !== undefined ? this.#inbox.bytes : 0
    const grant = WINDOW_DEFAULT - this.recvWindow - waiting
    if (this.isRemoteClosed || this.isClosed || grant < WINDOW_DEFAULT / 2) return
    this.recvWindow += grant
    this.#host.sender.windowUpdate(this.id, grant)
  }

  /** The client, or the connection, is gone. */
  cancel(): void {
    if (this.isClosed) return
    const input = this.#isAnswered ? undefined : this.#input
    this.#isAnswered = true
    this.#close()
    this.#guard(() => input?.cancel())
  }

  reset(code: Code): void {
    if (this.isClosed) return
    this.#host.sender.reset(this.id, code)
    this.cancel()
  }

  /** The deadline has passed. */
  expire(): void {
    this.deadlineTick = 0
    this.stop(new GrpcError('deadline_exceeded', 'the deadline of the call has passed'))
  }

  /** Ends the call with a status that its handler did not choose. */
  stop(error: GrpcError): void {
    if (this.isClosed) return
    const input = this.#isAnswered ? undefined : this.#input
    this.#host.sender.drop(this)
    this.#isAnswered = false
    this.fail(error)
    this.#guard(() => input?.cancel())
  }

  // Outgoing

  progressed(): void {
    if (this.queueBytes < OUTPUT_BYTES_HIGH / 2) this.#resolveDrained()
  }

  ended(): void {
    this.#host.worked()
    // The client need not send the rest of its request.
    if (!this.isRemoteClosed) this.#host.sender.reset(this.id, CODE.noError)
    this.#close()
  }

  // StreamOutput

  write(message: Uint8Array): boolean {
    if (this.#isAnswered || this.#failIfUnread()) return true
    const unread = this.queueBytes
    this.#sendHeaders()
    this.#host.sender.message(this, message)
    this.#host.worked()
    if (unread > OUTPUT_BYTES_MAX) {
      this.#host.reportError(new Error('the handler writes although the client does not read'), this.request.call.path)
      this.reset(CODE.calm)
    }
    return this.queueBytes < OUTPUT_BYTES_HIGH
  }

  drained(): Promise<void> {
    if (this.isClosed || this.queueBytes < OUTPUT_BYTES_HIGH / 2) return Promise.resolve()
    return new Promise((resolve) => {
      this.#drained ??= []
      this.#drained.push(resolve)
    })
  }

  end(): void {
    if (this.#isAnswered) return
    this.#isAnswered = true
    this.#sendHeaders()
    this.#host.sender.end(this, OK_BLOCK)
  }

  fail({ status, message }: GrpcError): void {
    if (this.#isAnswered || this.isClosed) return
    this.#isAnswered = true
    const block = failureBlock(status, message)
    this.#host.sender.end(this, this.#headersSent ? block : Buffer.concat([HEAD_BLOCK, block]))
  }

  #sendHeaders(): void {
    if (this.#headersSent) return
    this.#headersSent = true
    this.#host.sender.headers(this.id, HEAD_BLOCK, false)
  }

  // Unary methods

  /** Undefined: the call has failed. */
  #admitted(method: UnaryMethod): Caller | undefined {
    this.#host.worked()
    if (this.#failIfUnread()) return undefined
    try {
      return admitted(method, this.request.call)
    } catch (error) {
      this.#failWith(error)
      return undefined
    }
  }

  #call(method: UnaryMethod, message: Uint8Array, caller: Caller | undefined): void {
    if (caller === undefined) return
    try {
      const answer = method.handle(message, this.request.call, caller)
      if (isPromise(answer)) this.#wait(answer)
      else this.#answer(answer)
    } catch (error) {
      this.#failWith(error)
    }
  }

  /** Separate method: synchronous answers allocate no closures. */
  #wait(answer: PromiseLike<Uint8Array>): void {
    this.#isBusy = true
    answer.then(
      (message) => {
        this.#settled()
        if (message instanceof Uint8Array) this.#answer(message)
        else this.#failWith(new TypeError('the handler resolved to a value that is not a Uint8Array'))
      },
      (error: unknown) => {
        this.#settled()
        this.#failWith(error)
      },
    )
  }

  #answer(message: Uint8Array): void {
    if (this.#isAnswered || this.#failIfUnread()) return
    this.#isAnswered = true
    this.#sendHeaders()
    this.#host.sender.message(this, message)
    this.#host.sender.end(this, OK_BLOCK)
  }

  #callCollected(method: UnaryMethod): void {
    const inbox = this.#inbox
    if (inbox === undefined || !inbox.hasMessage) {
      this.fail(new GrpcError('unimplemented', 'the request of a unary method is one complete message'))
      return
    }
    if (inbox.bytes > PREFIX_BYTES + inbox.messageBytes) {
      this.fail(new GrpcError('unimplemented', 'a unary method takes one message, not several'))
      return
    }
    const caller = this.#admitted(method)
    if (caller === undefined) return
    const message = this.#take(inbox)
    if (isPromise(message)) this.#callLater(method, message, caller)
    else if (message !== undefined) this.#call(method, message, caller)
  }

  #callLater(method: UnaryMethod, message: Promise<Uint8Array | undefined>, caller: Caller): void {
    this.#isBusy = true
    message.then((whole) => {
      this.#settled()
      if (whole !== undefined && !this.isClosed) this.#call(method, whole, caller)
    })
  }

  // Stream methods

  #deliver(): void {
    const inbox = this.#inbox
    // Every message is checked when it is the first of the inbox.
    while (!this.#isBusy && !this.#isAnswered && !this.#isRefused() && inbox?.hasMessage) {
      const message = this.#take(inbox)
      if (isPromise(message)) this.#waitForInput(message.then((whole) => this.#handled(whole)))
      else this.#deliverOne(message)
    }
    if (this.#isBusy || this.#isAnswered || !this.isRemoteClosed || this.#inputEnded) return
    this.#inputEnded = true
    if (inbox !== undefined && inbox.bytes > 0) this.stop(new GrpcError('internal', 'the last message is incomplete'))
    else this.#guard(() => this.#input?.end())
  }

  #deliverOne(message: Uint8Array | undefined): void {
    this.#guard(() => {
      const pending = this.#handled(message)
      if (pending !== undefined) this.#waitForInput(pending)
    })
  }

  #handled(message: Uint8Array | undefined): PromiseLike<void> | undefined {
    if (message === undefined || this.isClosed) return undefined
    this.#host.worked()
    return this.#input?.message(message) ?? undefined
  }

  #waitForInput(pending: PromiseLike<void>): void {
    this.#isBusy = true
    pending.then(
      () => {
        this.#settled()
        if (this.isClosed) return
        this.#deliver()
        this.grantWindow()
      },
      (error: unknown) => {
        this.#settled()
        this.#failWith(error)
      },
    )
  }

  #guard(work: () => void): void {
    try {
      work()
    } catch (error) {
      this.#failWith(error)
    }
  }

  // Both

  #collect(bytes: Buffer, start: number, end: number): void {
    if (end === start) return
    this.#inbox ??= new Inbox()
    this.#inbox.append(bytes, start, end)
    this.#host.inboxBytes.add(end - start)
  }

  /** Fails the call if the first message of the inbox is malformed or too large, or memory is short. */
  #isRefused(): boolean {
    const inbox = this.#inbox
    if (inbox === undefined) return false
    const problem = inbox.flag === 0 ? undefined : flagProblem(inbox.flag, this.request.call.metadata('grpc-encoding'))
    if (problem !== undefined) {
      this.stop(problem)
    } else if (inbox.messageBytes > this.#host.messageBytesMax) {
      this.stop(messageTooLarge(inbox.messageBytes, this.#host.messageBytesMax))
    } else if (this.#host.inboxBytes.isFull) {
      this.stop(new GrpcError('resource_exhausted', 'too many incomplete messages on this connection'))
    } else {
      return false
    }
    return true
  }

  /** Fails the call of a client that leaves too many answers unread. */
  #failIfUnread(): boolean {
    const { isFull } = this.#host.sender
    if (isFull) this.stop(new GrpcError('resource_exhausted', 'too many unread answers on this connection'))
    return isFull
  }

  /** The first message. Undefined: it cannot be decompressed, and the call has failed. */
  #take(inbox: Inbox): MaybePromise<Uint8Array | undefined> {
    const { flag } = inbox
    const message = inbox.take()
    const { inboxBytes, messageBytesMax } = this.#host
    const release = () => inboxBytes.add(-PREFIX_BYTES - message.length)
    const failed = (error: unknown) => {
      this.stop(error as GrpcError) // wholeMessage throws no other
      return undefined
    }
    try {
      const whole = wholeMessage(message, flag !== 0, messageBytesMax, this.request.call.peer)
      if (isPromise(whole)) return whole.finally(release).catch(failed)
      release()
      return whole
    } catch (error) {
      release()
      return failed(error)
    }
  }

  /** Errors that are not `GrpcError` are defects: their message stays on the server. */
  #failWith(error: unknown): void {
    if (!(error instanceof GrpcError)) this.#host.reportError(error, this.request.call.path)
    const input = this.#isAnswered ? undefined : this.#input
    this.fail(error instanceof GrpcError ? error : new GrpcError('internal', 'internal error'))
    if (!(error instanceof GrpcError)) this.#guard(() => input?.cancel())
  }

  #answerPlain(): void {
    const { httpStatus } = this.request
    const body = Buffer.from(`${httpStatus}: this port serves gRPC: POST with content-type application/grpc\n`)
    this.#isAnswered = true
    this.#host.sender.headers(this.id, plainBlock(httpStatus, body.length), false)
    this.trailers = NO_TRAILERS
    this.#host.sender.bytes(this, body)
  }

  #closeIfDone(): void {
    if (this.isRemoteClosed && this.trailers !== undefined && this.queueBytes === 0) this.#close()
  }

  #settled(): void {
    this.#isBusy = false
    if (this.isClosed) this.#host.released(this)
  }

  #close(): void {
    if (this.isClosed) return
    this.isClosed = true
    this.#host.sender.drop(this)
    this.#host.inboxBytes.add(-(this.#inbox?.bytes ?? 0))
    this.#inbox = undefined
    this.#host.closed(this)
    if (!this.#isBusy) this.#host.released(this)
    this.#resolveDrained()
  }

  #resolveDrained(): void {
    const waiting = this.#drained
    this.#drained = undefined
    if (waiting !== undefined) for (const resolve of waiting) resolve()
  }
}

/** Whether the bytes are one message that is not compressed. */
function isWholeMessage(bytes: Buffer, start: number, end: number): boolean {
  return (
    end - start >= PREFIX_BYTES && bytes[start] === 0 && bytes.readUInt32BE(start + 1) === end - start - PREFIX_BYTES
  )
}
