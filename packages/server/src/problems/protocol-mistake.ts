// Recognizes a connection that failed because the port speaks another protocol.

import { reasonOf } from './reason.ts'

export type ProtocolMistake = { readonly reason: string; readonly fix: string }

/** Undefined for every other failure. Node.js reports these as raw errors of OpenSSL, llhttp and nghttp2. */
export function protocolMistake(error: unknown): ProtocolMistake | undefined {
  const text = reasonOf(error)
  if (text.includes('wrong version number')) return { reason: 'the port has no TLS', fix: 'Use http:// in --url.' }
  if (text === 'Protocol error')
    return { reason: 'the port does not speak HTTP/2', fix: 'Is it the HTTP port? Use the port of --grpc-port.' }
  if (!text.includes('does not match the HTTP/1.1')) return undefined
  return { reason: 'the port does not speak HTTP/1.1', fix: 'Is it the gRPC port? Use the HTTP port, by default 8080.' }
}
