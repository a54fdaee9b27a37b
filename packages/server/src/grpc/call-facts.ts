// Facts of a call that both stacks read from its headers and its connection.

import type { Socket } from 'node:net'
import { TLSSocket } from 'node:tls'
import type { Peer } from './method.ts'

const UNIT_MS: Readonly<Record<string, number>> = {
  H: 3_600_000,
  M: 60_000,
  S: 1000,
  m: 1,
  u: 1 / 1000,
  n: 1 / 1_000_000,
}

/** Milliseconds of a `grpc-timeout` header; undefined without one. Throws RangeError if it is malformed. */
export function timeoutMsOf(header: string | undefined): number | undefined {
  if (header === undefined) return undefined
  const unit = UNIT_MS[header.at(-1) ?? '']
  const digits = header.slice(0, -1)
  if (unit === undefined || !/^\d{1,8}$/.test(digits)) throw new RangeError('malformed')
  return Number(digits) * unit
}

/** Call once per connection: handlers cache by the object. */
export function peerOf(socket: Socket): Peer {
  const address = socket.remoteAddress ?? 'unix'
  if (!(socket instanceof TLSSocket) || !socket.authorized) return { address, certificateSubject: undefined }
  const { subject } = socket.getPeerCertificate()
  return { address, certificateSubject: subject === undefined ? undefined : subjectText(subject) }
}

/** The common name, or all fields of a subject without one. */
function subjectText(subject: object): string | undefined {
  const fields = Object.entries(subject as Readonly<Record<string, string | string[]>>)
  const named = fields.find(([name]) => name === 'CN')
  if (named !== undefined) return String(named[1])
  return fields.length === 0 ? undefined : fields.map(([name, value]) => `${name}=${value}`).join(',')
}

/** Encodes a `grpc-message`: printable ASCII except `%` stays as it is. */
export function encodedMessage(text: string): string {
  return text.replace(/[^\x20-\x24\x26-\x7e]+/g, (part) =>
    Array.from(Buffer.from(part), (byte) => `%${byte.toString(16).toUpperCase().padStart(2, '0')}`).join(''),
  )
}
