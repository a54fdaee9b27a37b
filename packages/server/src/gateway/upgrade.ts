// Tunnels WebSockets between client and upstream once the upstream has accepted the upgrade. Ignores other upgrades and
// answers their requests in HTTP/1.1.

import { type IncomingMessage, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import type { GatewayRequest } from './request-head.ts'
import { type GatewayResponse, writeHead } from './response.ts'

export function isWebSocket({ method, headers }: IncomingMessage): boolean {
  return method === 'GET' && headers.upgrade?.toLowerCase() === 'websocket'
}

/**
 * Creates the last response on the raw connection of an upgrade request. Undefined while an earlier request of the
 * connection is unanswered: clients do not pipeline upgrades, and Node.js cannot queue one.
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

/** TCP keep-alive interval; the default of the system is two hours. */
const KEEP_ALIVE_MS = 60_000

/** Longest time between the end of the first side and the end of the second. */
const CLOSE_MS_MAX = 10_000

export type TunnelTimeouts = { readonly clientTimeoutMs: number; readonly upstreamTimeoutMs: number }

/** `head` are bytes that the client sent early, `list` the headers of the upstream's 101 response. */
export function tunnel(
  { request, response, list }: { request: GatewayRequest; response: GatewayResponse; list: readonly string[] },
  client: Socket,
  head: Buffer,
  upstream: Socket,
  { clientTimeoutMs, upstreamTimeoutMs }: TunnelTimeouts,
): void {
  const headers = [...list, 'Connection', 'Upgrade', 'Upgrade', 'websocket']
  writeHead(request, response, 101, 'Switching Protocols', headers)
  response.flushHeaders()
  response.detachSocket(client)
  client.setTimeout(0)
  if (head.length > 0) client.unshift(head)
  const closeMs = Math.min(clientTimeoutMs, upstreamTimeoutMs, CLOSE_MS_MAX)
  closeTogether(client, upstream, closeMs)
  pipe(client, upstream, upstreamTimeoutMs)
  pipe(upstream, client, clientTimeoutMs)
}

/** Closes both sides. Without the timeout, a side that ignores the end of the other would hold a permit forever. */
function closeTogether(client: Socket, upstream: Socket, closeMs: number): void {
  let timer: NodeJS.Timeout | undefined
  const destroyBoth = () => {
    client.destroy()
    upstream.destroy()
  }
  for (const [one, other] of [[client, upstream] as const, [upstream, client] as const]) {
    one.on('error', () => {}) // `close` follows
    one.once('end', () => {
      timer ??= setTimeout(destroyBoth, closeMs)
    })
    one.once('close', () => {
      timer ??= setTimeout(destroyBoth, closeMs)
      if (other.closed) clearTimeout(timer)
      else other.destroySoon()
    })
  }
}

/** Destroys a receiver that reads nothing for `stallMs` while data is waiting. */
function pipe(from: Socket, to: Socket, stallMs: number): void {
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
