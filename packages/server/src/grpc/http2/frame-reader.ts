// Splits the bytes of a connection into frames. Frames that lie in one read are views of it; others are copied once,
// whatever the size of the reads.

import {
  CODE,
  ConnectionError,
  FRAME,
  FRAME_BYTES_MAX,
  FRAME_HEADER_BYTES,
  PREFACE,
  readUint24,
  readUint31,
} from './frames.ts'

export class FrameReader {
  /** Whether the fields below hold a frame. */
  isComplete = false
  type = 0
  flags = 0
  id = 0
  /** The payload. */
  bytes: Buffer = PREFACE
  start = 0
  end = 0
  /** Preface and first SETTINGS have arrived. */
  isReady = false
  #prefaceBytes = 0
  #partial: Buffer | undefined
  #partialBytes = 0

  /** Whether a frame has begun and its end is missing. */
  get isPartial(): boolean {
    return this.#partial !== undefined
  }

  /** Returns the offset of the first byte behind the preface. */
  skipPreface(chunk: Buffer): number {
    let at = 0
    for (; this.#prefaceBytes < PREFACE.length && at < chunk.length; at += 1) {
      if (chunk[at] !== PREFACE[this.#prefaceBytes]) throw new ConnectionError(CODE.protocol, 'this port serves HTTP/2')
      this.#prefaceBytes += 1
    }
    return at
  }

  /** Reads at most one frame from an offset, and returns the offset behind it. */
  next(chunk: Buffer, at: number): number {
    this.isComplete = false
    if (this.#partial !== undefined) return this.#complete(chunk, at)
    const payload = at + FRAME_HEADER_BYTES
    const end = payload <= chunk.length ? payload + lengthAt(chunk, at) : Number.POSITIVE_INFINITY
    if (end <= chunk.length) {
      this.#emit(chunk, at, end)
      return end
    }
    this.#partial = Buffer.allocUnsafe(FRAME_HEADER_BYTES)
    this.#partialBytes = 0
    return this.#complete(chunk, at)
  }

  /** Drops the view of the last read: idle connections hold no buffers. */
  release(): void {
    this.bytes = PREFACE
  }

  #complete(chunk: Buffer, from: number): number {
    let at = this.#fill(chunk, from, FRAME_HEADER_BYTES)
    if (this.#partialBytes < FRAME_HEADER_BYTES) return at
    const length = FRAME_HEADER_BYTES + lengthAt(this.#partial as Buffer, 0)
    at = this.#fill(chunk, at, length)
    if (this.#partialBytes < length) return at
    this.#emit(this.#partial as Buffer, 0, length)
    this.#partial = undefined
    return at
  }

  /** Copies until the partial frame has `length` bytes, or the chunk ends. */
  #fill(chunk: Buffer, at: number, length: number): number {
    let partial = this.#partial as Buffer
    if (partial.length < length) {
      const larger = Buffer.allocUnsafe(length)
      partial.copy(larger, 0, 0, this.#partialBytes)
      partial = larger
      this.#partial = larger
    }
    const copied = Math.min(Math.max(0, length - this.#partialBytes), chunk.length - at)
    chunk.copy(partial, this.#partialBytes, at, at + copied)
    this.#partialBytes += copied
    return at + copied
  }

  #emit(bytes: Buffer, at: number, end: number): void {
    this.type = bytes[at + 3] as number
    this.flags = bytes[at + 4] as number
    this.id = readUint31(bytes, at + 5)
    this.bytes = bytes
    this.start = at + FRAME_HEADER_BYTES
    this.end = end
    this.isComplete = true
    if (this.isReady) return
    if (this.type !== FRAME.settings) throw new ConnectionError(CODE.protocol, 'the first frame must be SETTINGS')
    this.isReady = true
  }
}

function lengthAt(bytes: Buffer, at: number): number {
  const length = readUint24(bytes, at)
  if (length > FRAME_BYTES_MAX) throw new ConnectionError(CODE.frameSize, `frame of ${length} bytes`)
  return length
}
