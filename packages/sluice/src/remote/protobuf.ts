// Protocol Buffers wire format: a writer and a reader of fields, without descriptors. All messages are encoded and
// decoded by hand-written code on top of these, so that a check allocates no intermediate objects. The message bounds
// reading: a length that exceeds it, a varint above 10 bytes or an unknown wire type is an error, never a loop. So is a
// message of more fields than any legitimate one has: reading it would hold the event loop.

import { isUtf8 } from 'node:buffer'

const VARINT = 0
const FIXED64 = 1
const BYTES = 2
const FIXED32 = 5

const VARINT_BYTES_MAX = 10
/**
 * Cap on the fields of a message, with those of the messages in it; items of a list have their own. Reading so many
 * takes up to 25 ms. The largest message that is read at once is a NodeState of 100,000 disabled rules.
 */
export const FIELDS_MAX = 120_000

export class ProtobufError extends Error {
  constructor(message: string) {
    super(message)
    this.name = 'ProtobufError'
  }
}

/** Reads the fields of one message in order. `next` returns the field number, or 0 at the end. */
export class ProtobufReader {
  readonly #buffer: Buffer
  readonly #end: number
  /** Counts the fields, also those of nested messages. */
  readonly #root: ProtobufReader
  #fields = 0
  #offset: number
  #wireType = 0

  constructor(message: Uint8Array, start = 0, end: number = message.length, root?: ProtobufReader) {
    this.#buffer = Buffer.isBuffer(message)
      ? message
      : Buffer.from(message.buffer, message.byteOffset, message.byteLength)
    this.#offset = start
    this.#end = end
    this.#root = root ?? this
  }

  /** Moves to the next field. Read its value with exactly one of the other methods. */
  next(): number {
    if (this.#offset >= this.#end) return 0
    this.#root.#fields += 1
    if (this.#root.#fields > FIELDS_MAX) throw new ProtobufError(`send at most ${FIELDS_MAX} fields in one message`)
    const tag = this.#varint()
    this.#wireType = tag & 7
    const field = Math.floor(tag / 8)
    if (field === 0 || tag > 0xffffffff) throw new ProtobufError('invalid field number')
    return field
  }

  skip(): void {
    if (this.#wireType === VARINT) this.#varint()
    else if (this.#wireType === FIXED64) this.#advance(8)
    else if (this.#wireType === BYTES) this.#advance(this.#varint())
    else if (this.#wireType === FIXED32) this.#advance(4)
    else throw new ProtobufError(`unsupported wire type ${this.#wireType}`)
  }

  /** An integer of up to 64 bits; above 2^53 it loses precision. Negative int32 and int64 need `int`. */
  uint(): number {
    this.#expect(VARINT)
    return this.#varint()
  }

  /** Larger values are truncated to their low 32 bits, as all implementations do. */
  uint32(): number {
    this.#expect(VARINT)
    const start = this.#offset
    const value = this.#varint()
    return value <= 0xffffffff ? value : Number(this.#bigVarint(start) & 0xffffffffn)
  }

  /** An integer of 64 bits without loss: a bigint above 2^53. */
  uint64(): number | bigint {
    this.#expect(VARINT)
    const start = this.#offset
    const value = this.#varint()
    return value <= Number.MAX_SAFE_INTEGER ? value : this.#bigVarint(start)
  }

  /** A signed 32- or 64-bit integer; outside of ±2^53 it loses precision. */
  int(): number {
    this.#expect(VARINT)
    const start = this.#offset
    const value = this.#varint()
    // Only a negative number takes 10 bytes.
    return this.#offset - start < VARINT_BYTES_MAX ? value : Number(BigInt.asIntN(64, this.#bigVarint(start)))
  }

  bool(): boolean {
    this.#expect(VARINT)
    return this.#varint() !== 0
  }

  double(): number {
    this.#expect(FIXED64)
    const start = this.#advance(8)
    return this.#buffer.readDoubleLE(start)
  }

  string(): string {
    this.#expect(BYTES)
    const length = this.#varint()
    const start = this.#advance(length)
    const text = this.#buffer.toString('utf8', start, start + length)
    // Invalid bytes become U+FFFD: two different keys could become one.
    if (text.includes('\ufffd') && !isUtf8(this.#buffer.subarray(start, start + length)))
      throw new ProtobufError('a string is not valid UTF-8')
    return text
  }

  /** As `string`, with U+FFFD for invalid bytes. */
  lenientString(): string {
    return this.bytes().toString('utf8')
  }

  /** A view of the message: copy it to keep it. */
  bytes(): Buffer {
    this.#expect(BYTES)
    const length = this.#varint()
    const start = this.#advance(length)
    return this.#buffer.subarray(start, start + length)
  }

  /** A reader of a nested message. */
  message(): ProtobufReader {
    return this.#nested(this.#root)
  }

  /** A reader of an item of a list that is read in slices: its fields are counted apart. */
  item(): ProtobufReader {
    return this.#nested(undefined)
  }

  #nested(root: ProtobufReader | undefined): ProtobufReader {
    this.#expect(BYTES)
    const length = this.#varint()
    const start = this.#advance(length)
    return new ProtobufReader(this.#buffer, start, start + length, root)
  }

  #expect(wireType: number): void {
    if (this.#wireType !== wireType) throw new ProtobufError(`wire type ${this.#wireType} instead of ${wireType}`)
  }

  #advance(length: number): number {
    const start = this.#offset
    if (length > this.#end - start) throw new ProtobufError('a field ends after its message')
    this.#offset = start + length
    return start
  }

  #varint(): number {
    let value = 0
    let scale = 1
    for (let count = 0; count < VARINT_BYTES_MAX; count += 1) {
      const byte = this.#byte()
      value += (byte & 127) * scale
      if (byte < 128) return value
      scale *= 128
    }
    throw new ProtobufError('a varint has more than 10 bytes')
  }

  /** Reads the varint at `start` again. */
  #bigVarint(start: number): bigint {
    this.#offset = start
    let value = 0n
    for (let shift = 0n; shift < 70n; shift += 7n) {
      const byte = this.#byte()
      value |= BigInt(byte & 127) << shift
      if (byte < 128) return BigInt.asUintN(64, value)
    }
    throw new ProtobufError('a varint has more than 10 bytes')
  }

  #byte(): number {
    if (this.#offset >= this.#end) throw new ProtobufError('the message ends inside a field')
    const byte = this.#buffer[this.#offset] ?? 0
    this.#offset += 1
    return byte
  }
}

const START_BYTES = 256

/**
 * Writes one message. Fields with default values (0, '', false) are omitted, as proto3 does; `optional` fields use
 * `force`.
 */
export class ProtobufWriter {
  #buffer: Buffer = Buffer.allocUnsafe(START_BYTES)
  #length = 0

  uint(field: number, value: number, force = false): this {
    if (value === 0 && !force) return this
    if (!Number.isSafeInteger(value) || value < 0) throw notUnsigned(field, value)
    this.#varint(field * 8 + VARINT)
    this.#varint(value)
    return this
  }

  /** An integer of 64 bits; a bigint if it is above 2^53. */
  uint64(field: number, value: number | bigint): this {
    if (typeof value === 'number') return this.uint(field, value)
    this.#varint(field * 8 + VARINT)
    this.#bigVarint(BigInt.asUintN(64, value))
    return this
  }

  /** A signed integer: negative values take 10 bytes. */
  int(field: number, value: number, force = false): this {
    if (value >= 0) return this.uint(field, value, force)
    this.#varint(field * 8 + VARINT)
    this.#bigVarint(BigInt.asUintN(64, BigInt(value)))
    return this
  }

  bool(field: number, value: boolean, force = false): this {
    return this.uint(field, value ? 1 : 0, force)
  }

  double(field: number, value: number, force = false): this {
    if (value === 0 && !force) return this
    this.#varint(field * 8 + FIXED64)
    this.#reserve(8)
    this.#buffer.writeDoubleLE(value, this.#length)
    this.#length += 8
    return this
  }

  string(field: number, value: string, force = false): this {
    if (value === '' && !force) return this
    this.#varint(field * 8 + BYTES)
    const length = Buffer.byteLength(value)
    this.#varint(length)
    this.#reserve(length)
    this.#buffer.write(value, this.#length)
    this.#length += length
    return this
  }

  bytes(field: number, value: Uint8Array, force = false): this {
    if (value.length === 0 && !force) return this
    this.#varint(field * 8 + BYTES)
    this.#varint(value.length)
    this.#reserve(value.length)
    this.#buffer.set(value, this.#length)
    this.#length += value.length
    return this
  }

  /** A nested message, also if it is empty. `write` writes its fields to this writer. */
  message(field: number, write: (nested: ProtobufWriter) => void): this {
    this.#varint(field * 8 + BYTES)
    this.#byte(0)
    const start = this.#length
    write(this)
    this.#setLength(start)
    return this
  }

  /** Bytes written so far. */
  get length(): number {
    return this.#length
  }

  /** Discards what was written after the first `length` bytes. */
  truncate(length: number): void {
    this.#length = Math.min(this.#length, length)
  }

  /** The message. The writer must not be used afterwards. */
  finish(): Buffer {
    return this.#buffer.subarray(0, this.#length)
  }

  /** Writes the length of the bytes since `start` before them; one byte is reserved for it. */
  #setLength(start: number): void {
    const length = this.#length - start
    if (length < 128) {
      this.#buffer[start - 1] = length
      return
    }
    const extra = length < 1 << 14 ? 1 : length < 1 << 21 ? 2 : length < 1 << 28 ? 3 : 4
    this.#reserve(extra)
    this.#buffer.copyWithin(start + extra, start, this.#length)
    const end = this.#length + extra
    this.#length = start - 1
    this.#varint(length)
    this.#length = end
  }

  #bigVarint(value: bigint): void {
    let rest = value
    while (rest > 127n) {
      this.#byte(Number(rest & 127n) | 128)
      rest >>= 7n
    }
    this.#byte(Number(rest))
  }

  #varint(value: number): void {
    let rest = value
    while (rest > 127) {
      this.#byte((rest % 128) | 128)
      rest = Math.floor(rest / 128)
    }
    this.#byte(rest)
  }

  #byte(value: number): void {
    this.#reserve(1)
    this.#buffer[this.#length] = value
    this.#length += 1
  }

  #reserve(length: number): void {
    if (this.#length + length <= this.#buffer.length) return
    const larger = Buffer.allocUnsafe(Math.max(this.#buffer.length * 2, this.#length + length))
    larger.set(this.#buffer.subarray(0, this.#length))
    this.#buffer = larger
  }
}

function notUnsigned(field: number, value: number): RangeError {
  return new RangeError(`field ${field}: ${value} is no unsigned integer`)
}
