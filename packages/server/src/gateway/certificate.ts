// What the verified certificate of a client says about it. Read once per connection: it costs more than the request.

import type { TLSSocket } from 'node:tls'

export type CertificateFacts = { readonly cn: string | undefined; readonly fingerprint: string | undefined }

const read = new WeakMap<TLSSocket, CertificateFacts>()

/** Undefined without TLS, and for a certificate that is not trusted. */
export function certificateOf(socket: TLSSocket): CertificateFacts | undefined {
  if (!socket.authorized) return undefined
  const known = read.get(socket)
  if (known !== undefined) return known
  const { subject, fingerprint256: fingerprint } = socket.getPeerCertificate()
  const { CN } = (subject ?? {}) as { readonly CN?: string | readonly string[] }
  const facts = { cn: typeof CN === 'string' ? CN : undefined, fingerprint } // with two names it is nobody's
  read.set(socket, facts)
  return facts
}
