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

/** Silence after which the system asks whether the other side is still there: its own default is two hours. */
const KEEP_ALIVE_MS = 60_000

/** Once one side has closed, the other has this long at most, whatever the timeouts allow. */
const CLOSE_MS_MAX = 10_000

export type JoinTimeouts = { readonly clientTimeoutMs: number; readonly upstreamTimeoutMs: number }

/** `head` is what the client has sent ahead, `list` are the headers of the service's consent. */
export function join(
  { request, response, list }: { request: GatewayRequest; response: GatewayResponse; list: readonly string[] },
  client: Socket,
  head: Buffer,
  behind: Socket,
  { clientTimeoutMs, upstreamTimeoutMs }: JoinTimeouts,
): void {
  const headers = [...list, 'Connection', 'Upgrade', 'Upgrade', 'websocket']
  writeHead(request, response, 101, 'Switching Protocols', headers)
  response.flushHeaders()
  response.detachSocket(client)
  client.setTimeout(0)
  if (head.length > 0) client.unshift(head)
  const closeMs = Math.min(clientTimeoutMs, upstreamTimeoutMs, CLOSE_MS_MAX)
  endTogether(client, behind, closeMs)
  carry(client, behind, upstreamTimeoutMs)
  carry(behind, client, clientTimeoutMs)
}

/** A side that ignores the end of the other, or does not read what is left for it, would hold a permit for ever. */
function endTogether(client: Socket, behind: Socket, closeMs: number): void {
  let timer: NodeJS.Timeout | undefined
  const cut = () => {
    client.destroy()
    behind.destroy()
  }
  for (const [one, other] of [[client, behind] as const, [behind, client] as const]) {
    one.on('error', () => {}) // `close` follows
    one.once('end', () => {
      timer ??= setTimeout(cut, closeMs)
    })
    one.once('close', () => {
      timer ??= setTimeout(cut, closeMs)
      if (other.closed) clearTimeout(timer)
      else other.destroySoon()
    })
  }
}

/** `stallMs` is how long the receiver may take nothing of what waits for it: meanwhile the sender is not read. */
function carry(from: Socket, to: Socket, stallMs: number): void {
  let timer: NodeJS.Timeout | undefined
  from.setKeepAlive(true, KEEP_ALIVE_MS)
  from.setNoDelay(true)
  from.on('pause', () => {
    timer ??= setTimeout(() => to.destroy(), stallMs)
  })
  for (const event of ['resume', 'close']) {
    from.on(event, () => {
      clearTimeout(timer)
      timer = undefined
    })
  }
  from.pipe(to)
}
