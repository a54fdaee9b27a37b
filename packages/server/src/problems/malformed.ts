// Answers bytes that are not an HTTP request with a problem document, and closes the connection. A failed TLS handshake
// gets no answer: there is no HTTP yet.

import type { Socket } from 'node:net'
import { PROBLEM_TYPE } from 'sluice/http'
import { problem } from './problem.ts'

const DETAILS: Readonly<Record<string, string>> = {
  HPE_HEADER_OVERFLOW: 'the headers are longer than 16 KiB: send fewer, or shorter ones',
  ERR_HTTP_REQUEST_TIMEOUT: 'the request did not arrive in time',
}

/** Codes of the HTTP parser and of its timeouts. All others are of TLS or of the connection. */
const OF_HTTP = /^(HPE_|ERR_HTTP_)/

export function endMalformed({ code = '' }: { readonly code?: string | undefined }, socket: Socket): void {
  if (!OF_HTTP.test(code) || !socket.writable) {
    socket.destroy()
    return
  }
  const detail = DETAILS[code] ?? `malformed HTTP/1.1 request: ${code}`
  const body = JSON.stringify(problem('REQUEST_INVALID', detail))
  const head = [
    'HTTP/1.1 400 Bad Request',
    `Content-Type: ${PROBLEM_TYPE}`,
    `Content-Length: ${Buffer.byteLength(body)}`,
  ]
  socket.end(`${head.join('\r\n')}\r\nConnection: close\r\n\r\n${body}`)
}
