// A client that sends any bytes, and shows the frames that come back as text.

import { once } from 'node:events'
import { connect, type Socket } from 'node:net'

export const PREFACE: Buffer = Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n')

export const TYPES = [
  'DATA',
  'HEADERS',
  'PRIORITY',
  'RST_STREAM',
  'SETTINGS',
  'PUSH_PROMISE',
  'PING',
  'GOAWAY',
  'WINDOW_UPDATE',
  'CONTINUATION',
] as const
export type FrameType = (typeof TYPES)[number]

export const END_STREAM = 1
export const END_HEADERS = 4

export type Frame = { readonly type: string; readonly flags: number; readonly id: number; readonly payload: Buffer }

export function frame(type: FrameType | number, flags: number, id: number, payload: Buffer = Buffer.alloc(0)): Buffer {
  const head = Buffer.alloc(9)
  head.writeUIntBE(payload.length, 0, 3)
  head[3] = typeof type === 'number' ? type : TYPES.indexOf(type)
  head[4] = flags
  head.writeUInt32BE(id, 5)
  return Buffer.concat([head, payload])
}

export function uint32(value: number): Buffer {
  const bytes = Buffer.alloc(4)
  bytes.writeUInt32BE(value)
  return bytes
}

/** Literal fields without indexing, each string shorter than 127 bytes. */
export function block(fields: Readonly<Record<string, string>>): Buffer {
  const parts = Object.entries(fields).flatMap(([name, value]) => [
    Buffer.of(0, name.length),
    Buffer.from(name, 'latin1'),
    Buffer.of(value.length),
    Buffer.from(value, 'latin1'),
  ])
  return Buffer.concat(parts)
}

export function callBlock(path: string, more: Readonly<Record<string, string>> = {}): Buffer {
  const pseudo = { ':method': 'POST', ':scheme': 'http', ':path': path, ':authority': 'x' }
  return block({ ...pseudo, 'content-type': 'application/grpc', te: 'trailers', ...more })
}

/** A message with its gRPC prefix. */
export function message(body: Buffer | string): Buffer {
  const bytes = Buffer.from(body)
  return Buffer.concat([Buffer.of(0), uint32(bytes.length), bytes])
}

/** HEADERS and DATA of a unary call. */
export function unaryCall(id: number, path: string, body: Buffer | string = 'hello'): Buffer {
  return Buffer.concat([
    frame('HEADERS', END_HEADERS, id, callBlock(path)),
    frame('DATA', END_STREAM, id, message(body)),
  ])
}

export class RawClient {
  readonly socket: Socket
  readonly frames: Frame[] = []
  isClosed = false
  /** Answers SETTINGS of the server. */
  acknowledges = true
  #wakes: (() => void)[] = []
  #unread: Buffer = Buffer.alloc(0)

  private constructor(socket: Socket) {
    this.socket = socket
    socket.on('data', (chunk: Buffer) => this.#read(chunk))
    socket.on('error', () => {})
    socket.on('close', () => {
      this.isClosed = true
      this.#wake()
    })
  }

  static async connect(port: number): Promise<RawClient> {
    const socket = connect({ port, host: '127.0.0.1', noDelay: true })
    await once(socket, 'connect')
    return new RawClient(socket)
  }

  /** Connects, and sends preface and SETTINGS. */
  static async open(port: number, settings: Buffer = Buffer.alloc(0)): Promise<RawClient> {
    const client = await RawClient.connect(port)
    client.send(PREFACE, frame('SETTINGS', 0, 0, settings))
    return client
  }

  send(...parts: readonly Buffer[]): void {
    if (!this.socket.destroyed) this.socket.write(Buffer.concat(parts))
  }

  /** Waits for a frame that fits; undefined once the connection is closed without one. */
  async until(fits: (frame: Frame) => boolean): Promise<Frame | undefined> {
    for (;;) {
      const found = this.frames.find(fits)
      if (found !== undefined || this.isClosed) return found
      await new Promise<void>((wake) => this.#wakes.push(wake))
    }
  }

  /** Error code of the GOAWAY that ends the connection; undefined without one. */
  async goaway(): Promise<number | undefined> {
    return (await this.until(({ type }) => type === 'GOAWAY'))?.payload.readUInt32BE(4)
  }

  /** Frames of one stream as text, once it has ended: `HEADERS DATA HEADERS+END`, `RST_STREAM(7)`. */
  async stream(id: number): Promise<string> {
    const isLast = (one: Frame) => {
      return one.id === id && (one.type === 'RST_STREAM' || (isMessage(one) && (one.flags & END_STREAM) !== 0))
    }
    await this.until(isLast)
    return this.frames
      .filter((one) => one.id === id && one.type !== 'WINDOW_UPDATE')
      .map(textOf)
      .join(' ')
  }

  /** Grpc status of an ended stream, from its trailers. */
  status(id: number): string | undefined {
    const trailers = this.frames.findLast((one) => one.id === id && one.type === 'HEADERS')?.payload.toString('latin1')
    return /grpc-status.(\d+)/s.exec(trailers ?? '')?.[1]
  }

  close(): void {
    this.socket.destroy()
  }

  #read(chunk: Buffer): void {
    this.#unread = Buffer.concat([this.#unread, chunk])
    for (;;) {
      const bytes = this.#unread
      const end = bytes.length < 9 ? Number.POSITIVE_INFINITY : 9 + bytes.readUIntBE(0, 3)
      if (bytes.length < end) break
      const type = TYPES[bytes[3] ?? 0] ?? 'UNKNOWN'
      const one = { type, flags: bytes[4] ?? 0, id: bytes.readUInt32BE(5), payload: bytes.subarray(9, end) }
      this.frames.push(one)
      if (type === 'SETTINGS' && one.flags === 0 && this.acknowledges) this.send(frame('SETTINGS', 1, 0))
      this.#unread = bytes.subarray(end)
    }
    this.#wake()
  }

  #wake(): void {
    const wakes = this.#wakes
    this.#wakes = []
    for (const wake of wakes) wake()
  }
}

function isMessage({ type }: Frame): boolean {
  return type === 'DATA' || type === 'HEADERS'
}

function textOf(one: Frame): string {
  if (one.type === 'RST_STREAM') return `RST_STREAM(${one.payload.readUInt32BE(0)})`
  return (one.flags & END_STREAM) !== 0 && isMessage(one) ? `${one.type}+END` : one.type
}
