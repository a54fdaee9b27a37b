// Closed-loop and open-loop load for the gRPC scenarios. Writes HTTP/2 frames as bytes and reads answers minimally,
// because the client shares the machine with the server under test. Header blocks are those of Envoy: the first call of
// a connection adds its headers to the dynamic table, later ones refer to it.

import { connect, type Socket } from 'node:net'
import { setTimeout as delay } from 'node:timers/promises'
import { isAdmitted } from './rate-limit-messages.ts'

export const GRPC_PATH = '/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit'

const PREFACE = Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n')
const DATA = 0
const HEADERS = 1
const SETTINGS = 4
const PING = 6
const WINDOW_UPDATE = 8
const END_STREAM = 1
const END_HEADERS = 4
const FIELDS = [
  [':path', GRPC_PATH],
  [':authority', 'ratelimit'],
  ['te', 'trailers'],
  ['grpc-timeout', '10S'], // a busy machine must not turn calls into errors
  ['content-type', 'application/grpc'],
] as const
/** Static indexes of `:method: POST` and `:scheme: http`. */
const STATIC = Buffer.of(0x83, 0x86)
const FIRST_BLOCK = Buffer.concat([STATIC, ...FIELDS.map(([name, value]) => indexedLiteral(name, value))])
/** Dynamic indexes start at 62 with the newest entry, which is the last field. */
const NEXT_BLOCK = Buffer.concat([STATIC, Buffer.from(FIELDS.map((_, index) => 0x80 | (61 + FIELDS.length - index)))])

/** HTTP/2 frame header, and the prefix of a gRPC message. */
const [FRAME_HEADER, MESSAGE_PREFIX] = [9, 5]

export type GrpcLoad = {
  /** Sends each message once, as fast as calls are answered; returns how many were admitted. */
  send(messages: readonly Buffer[]): Promise<number>
  /**
   * Sends so many messages per second whether or not calls are answered. Returns the latencies in ms, each from the
   * time at which the call was due.
   */
  sendAt(perSecond: number, messages: readonly Buffer[]): Promise<number[]>
  close(): void
}

/** Opens connections that each keep so many calls outstanding. All methods reject unless every call succeeds. */
export function grpcLoad(port: number, connections: number, outstanding: number): GrpcLoad {
  const open = Array.from({ length: connections }, () => new Connection(port))
  const share = (messages: readonly Buffer[], index: number) => messages.filter((_, at) => at % connections === index)
  return {
    async send(messages) {
      const admitted = open.map((one, index) => one.send(share(messages, index), outstanding))
      return (await Promise.all(admitted)).reduce((sum, count) => sum + count, 0)
    },
    async sendAt(perSecond, messages) {
      const startMs = performance.now()
      const latencies = open.map((one, index) => {
        const dueMs = (at: number) => startMs + ((at * connections + index) * 1000) / perSecond
        return one.sendAt(share(messages, index), dueMs)
      })
      return (await Promise.all(latencies)).flat()
    },
    close: () => {
      for (const connection of open) connection.close()
    },
  }
}

class Connection {
  readonly #socket: Socket
  #nextId = 1
  #messages: readonly Buffer[] = []
  #outstanding = 0
  #sent = 0
  #answers = 0
  #ended = 0
  #admitted = 0
  #onEnd: (call: number) => void = () => {}
  #unread: Buffer = Buffer.alloc(0)
  #resolve: () => void = () => {}
  #reject: (error: Error) => void = () => {}

  constructor(port: number) {
    this.#socket = connect(port, '127.0.0.1').setNoDelay(true)
    this.#socket.on('data', (chunk: Buffer) => this.#read(chunk))
    this.#socket.on('error', (error) => this.#reject(error))
    this.#socket.on('close', () => this.#reject(new Error('the server closed the connection')))
    const window = frame(WINDOW_UPDATE, 0, 0, uint32(2 ** 31 - 1 - 65_535))
    this.#socket.write(Buffer.concat([PREFACE, frame(SETTINGS, 0, 0, Buffer.alloc(0)), window]))
  }

  async send(messages: readonly Buffer[], outstanding: number): Promise<number> {
    const finished = this.#begin(messages, outstanding, () => {})
    this.#refill([])
    await finished
    return this.#admitted
  }

  async sendAt(messages: readonly Buffer[], dueMs: (index: number) => number): Promise<number[]> {
    const firstId = this.#nextId
    const latencies: number[] = []
    const finished = this.#begin(messages, 0, (id) => {
      latencies.push(performance.now() - dueMs((id - firstId) / 2))
    })
    finished.catch(() => {}) // awaited below
    while (this.#sent < messages.length) {
      const frames: Buffer[] = []
      while (this.#sent < messages.length && dueMs(this.#sent) <= performance.now()) this.#call(frames)
      if (frames.length > 0) this.#socket.write(Buffer.concat(frames))
      await delay(1)
    }
    await finished
    return latencies
  }

  close(): void {
    this.#socket.destroy()
  }

  #begin(messages: readonly Buffer[], outstanding: number, onEnd: (id: number) => void): Promise<void> {
    this.#messages = messages
    this.#outstanding = outstanding
    this.#onEnd = onEnd
    this.#sent = this.#answers = this.#ended = this.#admitted = 0
    return new Promise((resolve, reject) => {
      this.#resolve = resolve
      this.#reject = reject
    })
  }

  /** Writes calls until enough are outstanding. */
  #refill(frames: Buffer[]): void {
    while (this.#sent < this.#messages.length && this.#sent - this.#ended < this.#outstanding) this.#call(frames)
    if (frames.length > 0) this.#socket.write(Buffer.concat(frames))
    if (this.#ended < this.#messages.length) return
    if (this.#answers === this.#ended) this.#resolve()
    else this.#fail(`errors for ${this.#ended - this.#answers} calls`)
  }

  #call(frames: Buffer[]): void {
    const id = this.#nextId
    const message = this.#messages[this.#sent] as Buffer // the callers check that there is one
    frames.push(frame(HEADERS, END_HEADERS, id, id === 1 ? FIRST_BLOCK : NEXT_BLOCK))
    frames.push(frame(DATA, END_STREAM, id, Buffer.concat([Buffer.of(0), uint32(message.length), message])))
    this.#nextId += 2
    this.#sent += 1
  }

  #read(chunk: Buffer): void {
    const bytes = this.#unread.length === 0 ? chunk : Buffer.concat([this.#unread, chunk])
    const replies: Buffer[] = []
    let at = 0
    while (at + FRAME_HEADER <= bytes.length) {
      const end = at + FRAME_HEADER + bytes.readUIntBE(at, 3)
      if (end > bytes.length) break
      this.#take(bytes.subarray(at, end), replies)
      at = end
    }
    this.#unread = Buffer.from(bytes.subarray(at))
    this.#refill(replies)
  }

  #take(bytes: Buffer, replies: Buffer[]): void {
    const [type, flags] = [bytes[3], bytes[4] ?? 0]
    if (type === SETTINGS && flags === 0) replies.push(frame(SETTINGS, 1, 0, Buffer.alloc(0)))
    else if (type === PING && flags === 0) replies.push(frame(PING, 1, 0, bytes.subarray(FRAME_HEADER)))
    else if (type === DATA) this.#answer(bytes.subarray(FRAME_HEADER))
    else if (type === HEADERS && (flags & END_STREAM) !== 0) {
      this.#ended += 1
      this.#onEnd(bytes.readUInt32BE(5))
    } else if (type !== HEADERS && type !== SETTINGS && type !== PING && type !== WINDOW_UPDATE)
      this.#fail(`frame ${type}`)
  }

  /** All servers send one message per frame; `node:http2` adds an empty frame. */
  #answer(payload: Buffer): void {
    if (payload.length === 0) return
    try {
      if (isAdmitted(payload.subarray(MESSAGE_PREFIX))) this.#admitted += 1
      this.#answers += 1
    } catch (error) {
      this.#reject(error as Error)
    }
  }

  #fail(what: string): void {
    this.#reject(new Error(`the server sent ${what}`))
    this.#socket.destroy()
  }
}

function frame(type: number, flags: number, id: number, payload: Buffer): Buffer {
  const bytes = Buffer.allocUnsafe(9 + payload.length)
  bytes.writeUIntBE(payload.length, 0, 3)
  bytes[3] = type
  bytes[4] = flags
  bytes.writeUInt32BE(id, 5)
  payload.copy(bytes, 9)
  return bytes
}

function uint32(value: number): Buffer {
  const bytes = Buffer.alloc(4)
  bytes.writeUInt32BE(value)
  return bytes
}

/** Literal that the decoder adds to its table. */
function indexedLiteral(name: string, value: string): Buffer {
  return Buffer.concat([Buffer.of(0x40, name.length), Buffer.from(name), Buffer.of(value.length), Buffer.from(value)])
}
