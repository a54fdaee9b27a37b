// Numbers of the HTTP/2 wire format (RFC 9113) and the two kinds of protocol errors.

export const PREFACE: Buffer = Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', 'latin1')
export const FRAME_HEADER_BYTES = 9

export const FRAME = {
  data: 0,
  headers: 1,
  priority: 2,
  rstStream: 3,
  settings: 4,
  pushPromise: 5,
  ping: 6,
  goaway: 7,
  windowUpdate: 8,
  continuation: 9,
} as const

export const FLAG = { endStream: 1, ack: 1, endHeaders: 4, padded: 8, priority: 32 } as const

export const SETTING = {
  enablePush: 2,
  concurrentStreamsMax: 3,
  initialWindow: 4,
  frameBytesMax: 5,
  headerListBytesMax: 6,
} as const

export const CODE = {
  noError: 0,
  protocol: 1,
  internal: 2,
  flowControl: 3,
  streamClosed: 5,
  frameSize: 6,
  refusedStream: 7,
  cancel: 8,
  compression: 9,
  calm: 11,
} as const

export type Code = (typeof CODE)[keyof typeof CODE]

export const WINDOW_MAX: number = 2 ** 31 - 1
/** Window of a connection, and of a stream unless SETTINGS change it. */
export const WINDOW_DEFAULT = 65_535
/** Frame size that every endpoint accepts; this server neither sends nor accepts larger ones. */
export const FRAME_BYTES_MAX = 16_384

/** Ends the connection with GOAWAY. */
export class ConnectionError extends Error {
  readonly code: Code

  constructor(code: Code, message: string) {
    super(message)
    this.name = 'ConnectionError'
    this.code = code
  }
}

export function readUint24(bytes: Uint8Array, at: number): number {
  return ((bytes[at] as number) << 16) | ((bytes[at + 1] as number) << 8) | (bytes[at + 2] as number)
}

export function readUint32(bytes: Uint8Array, at: number): number {
  return (bytes[at] as number) * 0x1000000 + readUint24(bytes, at + 1)
}

/** Stream ids and window increments: the top bit is reserved. */
export function readUint31(bytes: Uint8Array, at: number): number {
  return (((bytes[at] as number) & 0x7f) << 24) | readUint24(bytes, at + 1)
}
