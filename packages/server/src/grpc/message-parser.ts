// Splits the bytes of a stream into gRPC messages: a flag byte, a length of four bytes, and the message.

import { flagProblem } from './compression.ts'
import { messageTooLarge } from './method.ts'

const PREFIX_BYTES = 5

/** Feed it chunks, then take complete messages until there is none. */
export class MessageParser {
  readonly #bytesMax: number
  readonly #encoding: string | undefined
  /** Whether the last message is compressed. */
  isCompressed = false
  #chunks: Buffer[] = []
  #length = 0

  /** `encoding`: value of `grpc-encoding`. */
  constructor(bytesMax: number, encoding?: string) {
    this.#bytesMax = bytesMax
    this.#encoding = encoding
  }

  add(chunk: Buffer): void {
    this.#chunks.push(chunk)
    this.#length += chunk.length
  }

  /** Whether the bytes end inside a message. */
  get isPartial(): boolean {
    return this.#length > 0
  }

  /** The next complete message, as it was sent. Throws GrpcError for one that is refused. */
  next(): Buffer | undefined {
    if (this.#length < PREFIX_BYTES) return undefined
    const head = this.#head(PREFIX_BYTES)
    const length = head.readUInt32BE(1)
    if (length > this.#bytesMax) throw messageTooLarge(length, this.#bytesMax)
    const flag = head[0] ?? 0
    const problem = flagProblem(flag, this.#encoding)
    if (problem !== undefined) throw problem
    if (this.#length < PREFIX_BYTES + length) return undefined
    this.isCompressed = flag === 1
    const whole = this.#head(PREFIX_BYTES + length)
    const message = whole.subarray(PREFIX_BYTES, PREFIX_BYTES + length)
    this.#length -= PREFIX_BYTES + length
    this.#chunks = this.#length === 0 ? [] : [whole.subarray(PREFIX_BYTES + length), ...this.#chunks.slice(1)]
    return message
  }

  /** The first chunk, joined with others until it has so many bytes. */
  #head(bytes: number): Buffer {
    const [first] = this.#chunks
    if (first !== undefined && first.length >= bytes) return first
    const joined = Buffer.concat(this.#chunks)
    this.#chunks = [joined]
    return joined
  }
}

/** Adds the prefix of an uncompressed message. */
export function framed(message: Uint8Array): Buffer {
  const frame = Buffer.allocUnsafe(PREFIX_BYTES + message.length)
  frame[0] = 0
  frame.writeUInt32BE(message.length, 1)
  frame.set(message, PREFIX_BYTES)
  return frame
}
