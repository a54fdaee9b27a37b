// Calls of the `node:http2` stack: reads the messages of one stream, calls its method and writes the answers.

import type { ServerHttp2Stream } from 'node:http2'
import { andThen, isPromise } from 'sluice'
import { wholeMessage } from './compression.ts'
import { framed, MessageParser } from './message-parser.ts'
import {
  admitted,
  type Call,
  GrpcError,
  type StreamInput,
  type StreamMethod,
  type StreamOutput,
  type UnaryMethod,
} from './method.ts'
import { answerCall, failCall, failureTrailers, startResponse } from './node-response.ts'

/** A unary call must be sent completely within this time. */
const UPLOAD_MS_MAX = 10_000

export type CallContext = {
  readonly stream: ServerHttp2Stream
  readonly call: Call
  readonly bytesMax: number
  onError(error: unknown, path: string): void
}

export function serveUnary({ stream, call, bytesMax, onError }: CallContext, method: UnaryMethod): void {
  const parser = new MessageParser(bytesMax, call.metadata('grpc-encoding'))
  let message: Buffer | undefined
  const fail = (error: unknown) => failCall(stream, grpcErrorOf(error, method.path, onError))
  stream.setTimeout(UPLOAD_MS_MAX, () => {
    fail(new GrpcError('deadline_exceeded', `the message did not arrive within ${UPLOAD_MS_MAX} ms`))
  })
  stream.on('data', (chunk: Buffer) => {
    if (stream.headersSent) return
    try {
      parser.add(chunk)
      const next = parser.next()
      if (next === undefined) return
      if (message !== undefined || parser.isPartial) throw notOne()
      message = next
    } catch (error) {
      fail(error)
    }
  })
  stream.on('end', () => {
    stream.setTimeout(0)
    if (stream.headersSent || stream.destroyed) return
    if (message === undefined) return fail(notOne())
    try {
      const caller = admitted(method, call)
      const whole = wholeMessage(message, parser.isCompressed, bytesMax, call.peer)
      const answer = andThen(whole, (bytes) => method.handle(bytes, call, caller))
      if (isPromise(answer)) answer.then((known) => answerCall(stream, known), fail)
      else answerCall(stream, answer)
    } catch (error) {
      fail(error)
    }
  })
}

function notOne(): GrpcError {
  return new GrpcError('unimplemented', 'this method takes exactly one message')
}

export function serveStream({ stream, call, bytesMax, onError }: CallContext, method: StreamMethod): void {
  const parser = new MessageParser(bytesMax, call.metadata('grpc-encoding'))
  const output = new NodeOutput(stream)
  let input: StreamInput
  try {
    input = method.open(call, output)
  } catch (error) {
    output.fail(grpcErrorOf(error, method.path, onError))
    return
  }
  const fail = (error: unknown) => {
    output.fail(grpcErrorOf(error, method.path, onError))
    input.cancel()
  }
  let isEnded = false
  let isBusy = false
  const deliver = (): void => {
    if (isBusy || output.isEnded) return
    try {
      for (let message = parser.next(); message !== undefined; message = parser.next()) {
        const whole = wholeMessage(message, parser.isCompressed, bytesMax, call.peer)
        const pending = andThen(whole, (bytes) => (output.isEnded ? undefined : input.message(bytes)))
        if (output.isEnded) return
        if (!isPromise(pending)) continue
        isBusy = true
        stream.pause()
        pending.then(() => {
          isBusy = false
          stream.resume()
          deliver()
        }, fail)
        return
      }
      if (isEnded) input.end()
    } catch (error) {
      fail(error)
    }
  }
  stream.on('data', (chunk: Buffer) => {
    if (output.isEnded) return
    parser.add(chunk)
    deliver()
  })
  stream.on('end', () => {
    isEnded = true
    deliver()
  })
  stream.once('close', () => {
    if (output.isEnded) return
    output.abandon()
    input.cancel()
  })
}

class NodeOutput implements StreamOutput {
  readonly #stream: ServerHttp2Stream
  isEnded = false
  #trailers: Readonly<Record<string, string>> = { 'grpc-status': '0' }

  constructor(stream: ServerHttp2Stream) {
    this.#stream = stream
  }

  write(message: Uint8Array): boolean {
    if (this.isEnded || this.#stream.destroyed) return true
    startResponse(this.#stream, () => this.#trailers)
    return this.#stream.write(framed(message))
  }

  drained(): Promise<void> {
    const stream = this.#stream
    if (this.isEnded || stream.destroyed || !stream.writableNeedDrain) return Promise.resolve()
    return new Promise((resolve) => {
      const done = () => {
        stream.off('drain', done)
        stream.off('close', done)
        resolve()
      }
      stream.on('drain', done)
      stream.on('close', done)
    })
  }

  end(): void {
    this.#finish({ 'grpc-status': '0' })
  }

  fail(error: GrpcError): void {
    this.#finish(failureTrailers(error))
  }

  /** The client is gone. */
  abandon(): void {
    this.isEnded = true
  }

  #finish(trailers: Readonly<Record<string, string>>): void {
    if (this.isEnded) return
    this.isEnded = true
    this.#trailers = trailers
    const stream = this.#stream
    if (stream.destroyed) return
    startResponse(stream, () => this.#trailers)
    stream.end()
  }
}

function grpcErrorOf(error: unknown, path: string, onError: CallContext['onError']): GrpcError {
  if (error instanceof GrpcError) return error
  onError(error, path)
  return new GrpcError('internal', 'internal error; see the log of this node')
}
