// Reads the identity from the verified client certificate, once per connection, because parsing it is expensive.

import type { TLSSocket } from 'node:tls'

export type CertificateFacts = { readonly cn: string | undefined; readonly fingerprint: string | undefined }

const cache = new WeakMap<TLSSocket, CertificateFacts>()

/** Returns undefined without TLS or without a trusted certificate. */
export function certificateOf(socket: TLSSocket): CertificateFacts | undefined {
  if (!socket.authorized) return undefined
  const known = cache.get(socket)
  if (known !== undefined) return known
  const { subject, fingerprint256: fingerprint } = socket.getPeerCertificate()
  const { CN } = (subject ?? {}) as { readonly CN?: string | readonly string[] }
  const facts = { cn: typeof CN === 'string' ? CN : undefined, fingerprint } // several names are ambiguous
  cache.set(socket, facts)
  return facts
}
