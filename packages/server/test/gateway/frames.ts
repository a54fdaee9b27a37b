// An HTTP/2 client that shows the frames of an answer as they were sent: Node's own client hides how a stream ended.

import { once } from 'node:events'
import { connect, type TLSSocket } from 'node:tls'
import { onTestFinished } from 'vitest'

const TYPES = [
  'DATA',
  'HEADERS',
  'PRIORITY',
  'RST_STREAM',
  'SETTINGS',
  'PUSH_PROMISE',
  'PING',
  'GOAWAY',
  'WINDOW_UPDATE',
]
const PREFACE = 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'
const END_STREAM = 1
const ACK = 1
const END_HEADERS = 4
const HEAD_LENGTH = 9

export type FrameRequest = {
  readonly method?: string
  readonly path?: string
  readonly headers?: Readonly<Record<string, string>>
  readonly body?: string
  /** Keeps the stream open: more of the body is to come. */
  readonly isUnfinished?: boolean
}

export class FrameClient {
  readonly #socket: TLSSocket
  /** Frames of each stream, as `HEADERS`, `DATA+END_STREAM`, `RST_STREAM(0)`; a row of DATA is one. */
  readonly #frames = new Map<number, string[]>()
  #lastStream = -1
  #unread: Buffer = Buffer.alloc(0)

  private constructor(socket: TLSSocket) {
    this.#socket = socket
    socket.on('data', (chunk: Buffer) => this.#read(chunk)).on('error', () => {})
  }

  /** `window` is how many bytes of an answer may be on their way. */
  static async connect(address: string, window = 65_535): Promise<FrameClient> {
    const { hostname, port } = new URL(address)
    const socket = connect({ host: hostname, port: Number(port), ALPNProtocols: ['h2'], rejectUnauthorized: false })
    onTestFinished(() => void socket.destroy())
    await once(socket, 'secureConnect')
    const setting = Buffer.from([0, 4, 0, 0, window >> 8, window & 255]) // SETTINGS_INITIAL_WINDOW_SIZE
    socket.write(Buffer.concat([Buffer.from(PREFACE), frame('SETTINGS', 0, 0, setting)]))
    return new FrameClient(socket)
  }

  /** Returns the id of the stream. */
  send({ method = 'GET', path = '/', headers = {}, body, isUnfinished = false }: FrameRequest): number {
    this.#lastStream += 2
    const id = this.#lastStream
    this.#frames.set(id, [])
    const fields = { ':method': method, ':scheme': 'https', ':authority': 'x', ':path': path, ...headers }
    const block = Buffer.concat(Object.entries(fields).map(([name, value]) => literal(name, value)))
    const last = isUnfinished ? 0 : END_STREAM
    this.#socket.write(frame('HEADERS', END_HEADERS | (body === undefined ? last : 0), id, block))
    if (body !== undefined) this.#socket.write(frame('DATA', last, id, Buffer.from(body)))
    return id
  }

  /** Lets so many bytes more of an answer come. */
  grow(id: number, bytes: number): void {
    this.#socket.write(frame('WINDOW_UPDATE', 0, id, uint32(bytes)))
  }

  cancel(id: number): void {
    this.#socket.write(frame('RST_STREAM', 0, id, uint32(8))) // CANCEL
  }

  framesOf(id: number): readonly string[] {
    return this.#frames.get(id) ?? []
  }

  /** Frames of a stream, once one of them is like `last`. */
  async until(id: number, last: RegExp = /END_STREAM|RST_STREAM/): Promise<readonly string[]> {
    while (!this.framesOf(id).some((name) => last.test(name))) await once(this.#socket, 'data')
    return this.framesOf(id)
  }

  #read(chunk: Buffer): void {
    this.#unread = Buffer.concat([this.#unread, chunk])
    while (this.#unread.length >= HEAD_LENGTH) {
      const end = HEAD_LENGTH + this.#unread.readUIntBE(0, 3)
      if (this.#unread.length < end) return
      this.#got(this.#unread.subarray(0, end))
      this.#unread = this.#unread.subarray(end)
    }
  }

  #got(bytes: Buffer): void {
    const [type, flags, id] = [TYPES[bytes[3] ?? 0] ?? '', bytes[4] ?? 0, bytes.readUInt32BE(5)]
    if (type === 'SETTINGS' && (flags & ACK) === 0) this.#socket.write(frame('SETTINGS', ACK, 0, Buffer.alloc(0)))
    const endsStream = (type === 'DATA' || type === 'HEADERS') && (flags & END_STREAM) !== 0
    const code = type === 'RST_STREAM' ? `(${bytes.readUInt32BE(HEAD_LENGTH)})` : ''
    const frames = this.#frames.get(id)
    if (frames === undefined || type === 'WINDOW_UPDATE') return
    if (type === 'DATA' && frames.at(-1) === 'DATA') frames.pop()
    frames.push(`${type}${code}${endsStream ? '+END_STREAM' : ''}`)
  }
}

function frame(type: string, flags: number, id: number, payload: Buffer): Buffer {
  const length = uint32(payload.length).subarray(1)
  return Buffer.concat([length, Buffer.from([TYPES.indexOf(type), flags]), uint32(id), payload])
}

function uint32(value: number): Buffer {
  const bytes = Buffer.alloc(4)
  bytes.writeUInt32BE(value)
  return bytes
}

/** HPACK: a literal field that is not indexed, in plain ASCII of fewer than 127 characters. */
function literal(name: string, value: string): Buffer {
  return Buffer.concat(
    [0, name.length, name, value.length, value].map((part) => {
      return typeof part === 'string' ? Buffer.from(part) : Buffer.from([part])
    }),
  )
}
