// Bytes to one socket, gathered so that all frames of one read, or of one turn of the event loop, leave in one write.
// Writers append to a slab from a pool of the process: idle connections hold none.

import type { Socket } from 'node:net'
import { TLSSocket } from 'node:tls'
import { FRAME_HEADER_BYTES } from './frames.ts'

const SLAB_BYTES = 64 * 1024
const POOLED_SLABS_MAX = 16
/** Unsent bytes of a connection above which the server stops reading from it and sends no more DATA. */
const BLOCKED_BYTES = 512 * 1024
/** Below this length, a loop copies faster than `set`. */
const LOOP_COPY_BYTES_MAX = 40

const pool: Buffer[] = []

export class Output {
  /** The peer reads too slowly. */
  isBlocked = false
  readonly #socket: Socket
  /** TLS holds bytes until it has encrypted and sent them. */
  readonly #isTls: boolean
  #slab: Buffer | undefined
  #at = 0
  #isCorked = false
  #isScheduled = false

  constructor(socket: Socket) {
    this.#socket = socket
    this.#isTls = socket instanceof TLSSocket
  }

  /** Appends the header of a frame. Its payload follows, `length` bytes, by `bytes` and `byte`. */
  frame(type: number, flags: number, id: number, length: number): void {
    const slab = this.#reserve(FRAME_HEADER_BYTES + length)
    const at = this.#at
    slab[at] = length >> 16
    slab[at + 1] = length >> 8
    slab[at + 2] = length
    slab[at + 3] = type
    slab[at + 4] = flags
    slab[at + 5] = id >> 24
    slab[at + 6] = id >> 16
    slab[at + 7] = id >> 8
    slab[at + 8] = id
    this.#at = at + FRAME_HEADER_BYTES
  }

  uint32(value: number): void {
    const slab = this.#reserve(4)
    slab.writeUInt32BE(value, this.#at)
    this.#at += 4
  }

  byte(value: number): void {
    this.#reserve(1)[this.#at] = value
    this.#at += 1
  }

  bytes(bytes: Uint8Array): void {
    const { length } = bytes
    const slab = this.#reserve(length)
    const at = this.#at
    if (length > LOOP_COPY_BYTES_MAX) slab.set(bytes, at)
    else for (let index = 0; index < length; index += 1) slab[at + index] = bytes[index] as number
    this.#at = at + length
  }

  /** Delays writes until `uncork`. */
  cork(): void {
    this.#isCorked = true
  }

  uncork(): void {
    this.#isCorked = false
    this.flush()
  }

  flush(): void {
    const slab = this.#slab
    if (slab === undefined) return
    const socket = this.#socket
    const bytes = slab.subarray(0, this.#at)
    this.#slab = undefined
    this.#at = 0
    if (socket.destroyed || socket.writableEnded) {
      release(slab)
    } else if (socket.writableLength > 0 || this.#isTls) {
      socket.write(Buffer.from(bytes)) // a copy of its size: a slow reader holds no slabs
      release(slab)
    } else {
      socket.write(bytes)
      if (socket.writableLength === 0) release(slab) // the kernel has all of it
    }
    this.isBlocked = socket.writableLength > BLOCKED_BYTES
  }

  /** Returns a slab with room for more bytes, which are at most a frame of 16 KiB. */
  #reserve(length: number): Buffer {
    if (this.#slab !== undefined && this.#at + length > SLAB_BYTES) this.flush()
    if (this.#slab === undefined) {
      this.#slab = pool.pop() ?? Buffer.allocUnsafeSlow(SLAB_BYTES)
      this.#schedule()
    }
    return this.#slab
  }

  /** Bytes written by promises leave when the microtasks of this turn are done. */
  #schedule(): void {
    if (this.#isCorked || this.#isScheduled) return
    this.#isScheduled = true
    process.nextTick(() => {
      this.#isScheduled = false
      if (!this.#isCorked) this.flush()
    })
  }
}

function release(slab: Buffer): void {
  if (pool.length < POOLED_SLABS_MAX) pool.push(slab)
}
