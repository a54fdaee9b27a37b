// Responses of the `node:http2` stack: headers, messages, and the trailers that carry the status.

import { constants, type ServerHttp2Stream } from 'node:http2'
import { encodedMessage } from './call-facts.ts'
import { ENCODINGS } from './compression.ts'
import { framed } from './message-parser.ts'
import { GRPC_STATUS, type GrpcError } from './method.ts'

const HEADERS = { ':status': 200, 'content-type': 'application/grpc', 'grpc-accept-encoding': ENCODINGS }
const OK_TRAILERS = { 'grpc-status': '0' }

/** Sends headers, unless they were sent. The trailers are read when all messages have been sent. */
export function startResponse(stream: ServerHttp2Stream, trailers: () => Readonly<Record<string, string>>): void {
  if (stream.headersSent || stream.destroyed) return
  stream.respond(HEADERS, { waitForTrailers: true })
  stream.on('wantTrailers', () => {
    stream.sendTrailers(trailers())
    stopUpload(stream)
  })
}

/** Answers a unary call. */
export function answerCall(stream: ServerHttp2Stream, message: Uint8Array): void {
  if (stream.destroyed || stream.headersSent) return
  startResponse(stream, () => OK_TRAILERS)
  stream.end(framed(message))
}

/** Ends a call whose headers were not sent with a status: one frame. */
export function failCall(stream: ServerHttp2Stream, error: GrpcError): void {
  if (stream.destroyed || stream.headersSent) return
  stream.respond({ ...HEADERS, ...failureTrailers(error) }, { endStream: true })
  stopUpload(stream)
}

export function failureTrailers({ status, message }: GrpcError): Record<string, string> {
  return { 'grpc-status': String(GRPC_STATUS[status]), 'grpc-message': encodedMessage(message) }
}

/** Discards what the client still sends, and resets the stream once the response has been handed to HTTP/2. */
function stopUpload(stream: ServerHttp2Stream): void {
  stream.resume()
  if (!stream.readableEnded) setImmediate(() => stream.close(constants.NGHTTP2_NO_ERROR))
}
