// Bytes of a stream that are not a complete message yet, or that wait for the handler. Grows by doubling with the
// bytes received, never with the length that a prefix announces.

const PREFIX_BYTES = 5
const BYTES_MIN = 256

export class Inbox {
  #buffer: Buffer | undefined
  #start = 0
  #end = 0

  get bytes(): number {
    return this.#end - this.#start
  }

  /** Length of the first message; -1 until its prefix is complete. */
  get messageBytes(): number {
    const { bytes } = this
    return bytes < PREFIX_BYTES || this.#buffer === undefined ? -1 : this.#buffer.readUInt32BE(this.#start + 1)
  }

  /** First byte of the first message: 1 if it is compressed. */
  get flag(): number {
    return this.bytes > 0 ? (this.#buffer?.[this.#start] ?? 0) : 0
  }

  get hasMessage(): boolean {
    const length = this.messageBytes
    return length >= 0 && this.bytes >= PREFIX_BYTES + length
  }

  append(source: Buffer, from: number, to: number): void {
    const buffer = this.#roomFor(to - from)
    source.copy(buffer, this.#end, from, to)
    this.#end += to - from
  }

  /** Removes the first message, which must be complete. The view stays as it is: `append` never overwrites. */
  take(): Buffer {
    const start = this.#start + PREFIX_BYTES
    const end = start + this.messageBytes
    const message = (this.#buffer as Buffer).subarray(start, end)
    this.#start = end
    if (end === this.#end) {
      this.#start = 0
      this.#end = 0
      this.#buffer = undefined // idle streams hold no memory
    }
    return message
  }

  #roomFor(length: number): Buffer {
    const { bytes } = this
    const buffer = this.#buffer
    if (buffer !== undefined && this.#end + length <= buffer.length) return buffer
    const larger = Buffer.allocUnsafe(Math.max(BYTES_MIN, (bytes + length) * 2))
    buffer?.copy(larger, 0, this.#start, this.#end)
    this.#buffer = larger
    this.#start = 0
    this.#end = bytes
    return larger
  }
}
