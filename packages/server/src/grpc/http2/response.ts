// Header blocks of responses, without a dynamic table: blocks are constants or literals, and need no state.

import { ENCODINGS } from '../compression.ts'
import { GRPC_STATUS, type GrpcStatus } from '../method.ts'

/** Longer texts are cut, so that trailers fit into one frame. */
const MESSAGE_CHARACTERS_MAX = 1024

/** `:status: 200` and `content-type: application/grpc`. */
export const HEAD_BLOCK: Buffer = Buffer.concat([Buffer.of(0x88), field('content-type', 'application/grpc')])
export const OK_BLOCK: Buffer = field('grpc-status', '0')
const ACCEPT_ENCODING = field('grpc-accept-encoding', ENCODINGS)

/** Trailers of a call that failed. */
export function failureBlock(status: GrpcStatus, message: string): Buffer {
  const fields = [field('grpc-status', String(GRPC_STATUS[status]))]
  if (message !== '') fields.push(field('grpc-message', encodeMessage(message.slice(0, MESSAGE_CHARACTERS_MAX))))
  if (status === 'unimplemented') fields.push(ACCEPT_ENCODING)
  return Buffer.concat(fields)
}

/** Headers of a response to a request that is not gRPC. */
export function plainBlock(httpStatus: number, bodyBytes: number): Buffer {
  return Buffer.concat([
    field(':status', String(httpStatus)),
    field('content-type', 'text/plain'),
    field('content-length', String(bodyBytes)),
  ])
}

/** Percent-encodes all but printable ASCII, as UTF-8; lone surrogates become U+FFFD. */
export function encodeMessage(text: string): string {
  return text.replace(/[^\x20-\x24\x26-\x7e]+/g, (part) =>
    Array.from(Buffer.from(part), (byte) => `%${byte.toString(16).toUpperCase().padStart(2, '0')}`).join(''),
  )
}

/** Literal header without indexing, with a literal name. */
function field(name: string, value: string): Buffer {
  return Buffer.concat([Buffer.of(0), literal(name), literal(value)])
}

/** String without Huffman coding: its length as an integer with a prefix of 7 bits, then its bytes. */
function literal(text: string): Buffer {
  const { length } = text
  if (length < 127) return Buffer.concat([Buffer.of(length), Buffer.from(text, 'latin1')])
  const prefix = [127]
  let rest = length - 127
  for (; rest >= 128; rest >>= 7) prefix.push((rest & 127) | 128)
  return Buffer.concat([Buffer.from([...prefix, rest]), Buffer.from(text, 'latin1')])
}
