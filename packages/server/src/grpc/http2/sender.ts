// Frames of one connection to the client. DATA respects both flow control windows and waits while the client reads too
// slowly; streams with queued bytes take turns, a frame each.

import { BufferedBytes, type SharedBytes } from './buffered-bytes.ts'
import { type Code, FLAG, FRAME, FRAME_BYTES_MAX, SETTING, WINDOW_DEFAULT } from './frames.ts'
import type { Output } from './output.ts'

const PREFIX_BYTES = 5
/** Answers of a connection that wait for the windows of the client. */
const QUEUED_BYTES_MAX = 16 * 1024 * 1024

/** Sending side of a stream. */
export type Outgoing = {
  readonly id: number
  sendWindow: number
  /** Bytes that wait for a window. Empty until then. */
  queue: Uint8Array[]
  queueBytes: number
  /** Block that ends the stream once the queue is empty. */
  trailers: Uint8Array | undefined
  /** Called when queued bytes were sent. */
  progressed(): void
  /** Called once END_STREAM is sent. */
  ended(): void
}

export class Sender {
  /** Window of the connection. */
  window: number = WINDOW_DEFAULT
  /** Window of new streams. */
  initialWindow: number = WINDOW_DEFAULT
  /** DATA bytes sent, to detect stalls. */
  sentBytes = 0
  /** Queued bytes of all streams. */
  readonly #queued: BufferedBytes
  readonly #output: Output
  readonly #waiting = new Set<Outgoing>()

  constructor(output: Output, shared: SharedBytes) {
    this.#output = output
    this.#queued = new BufferedBytes(QUEUED_BYTES_MAX, shared)
  }

  get isWaiting(): boolean {
    return this.#waiting.size > 0
  }

  /** The client leaves too many answers unread. */
  get isFull(): boolean {
    return this.#queued.isFull
  }

  settings(concurrentStreamsMax: number, headerListBytesMax: number): void {
    const output = this.#output
    output.frame(FRAME.settings, 0, 0, 12)
    output.byte(0)
    output.byte(SETTING.concurrentStreamsMax)
    output.uint32(concurrentStreamsMax)
    output.byte(0)
    output.byte(SETTING.headerListBytesMax)
    output.uint32(headerListBytesMax)
  }

  settingsAck(): void {
    this.#output.frame(FRAME.settings, FLAG.ack, 0, 0)
  }

  ping(flags: number, payload: Uint8Array): void {
    this.#output.frame(FRAME.ping, flags, 0, payload.length)
    this.#output.bytes(payload)
  }

  windowUpdate(id: number, increment: number): void {
    this.#output.frame(FRAME.windowUpdate, 0, id, 4)
    this.#output.uint32(increment)
  }

  reset(id: number, code: Code): void {
    this.#output.frame(FRAME.rstStream, 0, id, 4)
    this.#output.uint32(code)
  }

  goaway(lastId: number, code: Code, text = ''): void {
    const debug = Buffer.from(text)
    this.#output.frame(FRAME.goaway, 0, 0, 8 + debug.length)
    this.#output.uint32(lastId)
    this.#output.uint32(code)
    this.#output.bytes(debug)
  }

  headers(id: number, block: Uint8Array, isEnd: boolean): void {
    const flags = isEnd ? FLAG.endHeaders | FLAG.endStream : FLAG.endHeaders
    this.#output.frame(FRAME.headers, flags, id, block.length)
    this.#output.bytes(block)
  }

  /** Sends a message with its gRPC prefix, or queues a copy of it. */
  message(to: Outgoing, message: Uint8Array): void {
    const length = PREFIX_BYTES + message.length
    if (to.queueBytes === 0 && length <= FRAME_BYTES_MAX && length <= this.#allowance(to)) {
      const output = this.#output
      output.frame(FRAME.data, 0, to.id, length)
      output.byte(0)
      output.uint32(message.length)
      output.bytes(message)
      this.#spend(to, length)
      return
    }
    const copy = Buffer.allocUnsafe(length)
    copy[0] = 0
    copy.writeUInt32BE(message.length, 1)
    copy.set(message, PREFIX_BYTES)
    this.bytes(to, copy)
  }

  /** Sends or queues DATA. The bytes must not change afterwards. */
  bytes(to: Outgoing, bytes: Uint8Array): void {
    to.queue.push(bytes)
    to.queueBytes += bytes.length
    this.#queued.add(bytes.length)
    this.#waiting.add(to)
    this.pumpOne(to)
  }

  /** Ends the stream after its queued bytes. */
  end(to: Outgoing, trailers: Uint8Array): void {
    to.trailers = trailers
    if (to.queueBytes === 0) this.#finish(to)
  }

  /** Drops the queued bytes of a stream. */
  drop(to: Outgoing): void {
    this.#queued.add(-to.queueBytes)
    to.queue = []
    to.queueBytes = 0
    this.#waiting.delete(to)
  }

  /** As `pump`, for a stream whose own window or queue has grown. */
  pumpOne(to: Outgoing): void {
    while (to.queueBytes > 0 && this.#allowance(to) > 0) this.#sendFrame(to)
  }

  /** Sends queued bytes as far as the windows allow. */
  pump(): void {
    for (let isProgress = true; isProgress && this.#waiting.size > 0; ) {
      isProgress = false
      for (const stream of this.#waiting) {
        if (this.#allowance(stream) > 0) {
          this.#sendFrame(stream)
          isProgress = true
        }
      }
    }
  }

  #allowance(to: Outgoing): number {
    return this.#output.isBlocked ? 0 : Math.min(this.window, to.sendWindow)
  }

  #sendFrame(to: Outgoing): void {
    const first = to.queue[0] as Uint8Array
    const length = Math.min(first.length, FRAME_BYTES_MAX, this.#allowance(to))
    this.#output.frame(FRAME.data, 0, to.id, length)
    this.#output.bytes(length === first.length ? first : first.subarray(0, length))
    if (length === first.length) to.queue.shift()
    else to.queue[0] = first.subarray(length)
    to.queueBytes -= length
    this.#queued.add(-length)
    this.#spend(to, length)
    if (to.queueBytes === 0) {
      this.#waiting.delete(to)
      if (to.trailers !== undefined) this.#finish(to)
    }
    to.progressed()
  }

  #spend(to: Outgoing, length: number): void {
    to.sendWindow -= length
    this.window -= length
    this.sentBytes += length
  }

  /** An empty block ends a plain response, with an empty DATA frame. */
  #finish(to: Outgoing): void {
    const { trailers } = to
    if (trailers === undefined) return
    if (trailers.length === 0) this.#output.frame(FRAME.data, FLAG.endStream, to.id, 0)
    else this.headers(to.id, trailers, true)
    to.ended()
  }
}

export const NO_TRAILERS: Uint8Array = new Uint8Array(0)
