// The other end of a connection.

import type { Socket } from 'node:net'
import { TLSSocket } from 'node:tls'
import type { Peer } from '../method.ts'

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
  const common = fields.find(([name]) => name === 'CN')
  if (common !== undefined) return String(common[1])
  return fields.length === 0 ? undefined : fields.map(([name, value]) => `${name}=${value}`).join(',')
}
