// WebSockets: once both sides agree, two connections become one, byte for byte. Other upgrades are not offered: a
// client that asks for one is answered in HTTP/1.1, as by any server that does not know it.

import { type IncomingMessage, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import type { GatewayRequest } from './request-head.ts'
import { type GatewayResponse, writeHead } from './response.ts'

export function isWebSocket({ method, headers }: IncomingMessage): boolean {
  return method === 'GET' && headers.upgrade?.toLowerCase() === 'websocket'
}

/**
 * Node hands over the bare connection: this is a response on it like any other, and the last one. Undefined while an
 * earlier request of this connection is not answered: no client sends an upgrade ahead, and Node cannot make it wait.
 */
export function responseOn(request: IncomingMessage, socket: Socket): ServerResponse | undefined {
  const response = new ServerResponse(request)
  response.shouldKeepAlive = false
  try {
    response.assignSocket(socket)
  } catch {
    return undefined
  }
  response.on('finish', () => socket.destroySoon())
  socket.on('error', () => socket.destroy())
  return response
}

/** `head` is what the client has sent ahead, `list` are the headers of the service's consent. */
export function join(
  { request, response, list }: { request: GatewayRequest; response: GatewayResponse; list: readonly string[] },
  client: Socket,
  head: Buffer,
  behind: Socket,
): void {
  const headers = [...list, 'Connection', 'Upgrade', 'Upgrade', 'websocket']
  writeHead(request, response, 101, 'Switching Protocols', headers)
  response.flushHeaders()
  response.detachSocket(client)
  client.setTimeout(0)
  if (head.length > 0) client.unshift(head)
  for (const [one, other] of [[client, behind] as const, [behind, client] as const]) {
    one.setKeepAlive(true)
    one.setNoDelay(true)
    one.on('error', () => {}) // `close` follows
    one.on('close', () => other.destroySoon())
    one.pipe(other)
  }
}
