// Listener of the gateway: HTTP/1.1, or with a certificate TLS with HTTP/2 and HTTP/1.1. On close, requests in flight
// are finished; those that exceed the close deadline are aborted.

import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import { createSecureServer, type Http2SecureServer, type ServerHttp2Session } from 'node:http2'
import type { AddressInfo, Socket } from 'node:net'
import { type TLSSocket, Server as TlsServer } from 'node:tls'
import { type ClientConnections, HANDSHAKE_MS_MAX } from '../access/client-connections.ts'
import { LastAnswers } from '../http/last-answers.ts'
import { settingInvalid } from '../settings/setting-invalid.ts'
import type { Gateway } from './gateway.ts'
import type { GatewaySettings } from './settings.ts'
import { responseOn } from './upgrade.ts'

/** HTTP/2 streams per connection. Browsers need about 100, and one client must not use up `--max-in-flight`. */
const STREAMS_MAX = 256

/** Interval for detecting slow request heads. */
const CHECK_MS = 1000

export type Listener = {
  readonly port: number
  /** Sends GOAWAY on HTTP/2 connections. */
  drain(): void
  close(): Promise<void>
}

export async function openListener(
  gateway: Gateway,
  settings: GatewaySettings,
  clients: ClientConnections,
  closeMsMax: number,
): Promise<Listener> {
  const server = settings.listenCert === undefined ? plainServer() : secureServer(settings)
  setTimeouts(server, settings)
  connectGateway(server, gateway)
  server.maxConnections = settings.maxConnections
  clients.watch(server)
  const { sockets, sessions } = connectionsOf(server)
  let lastAnswers: LastAnswers | undefined
  server.listen(settings.listen)
  await once(server, 'listening')
  return {
    port: (server.address() as AddressInfo).port, // a port, not a pipe
    drain: () => {
      lastAnswers ??= new LastAnswers(server)
      for (const session of sessions) session.close()
    },
    close: async () => {
      const closed = (async () => {
        await lastAnswers?.sent()
        for (const session of sessions) session.close()
        // Node.js does not close connections without a request, which browsers open in advance.
        for (const socket of sockets) if (!speaksHttp2(socket) && !gateway.isBusy(socket)) socket.destroy()
        await new Promise((resolve) => server.close(resolve))
      })()
      await clients.endWithin(closeMsMax, closed)
    },
  }
}

function plainServer(): Server {
  return createServer()
}

function secureServer(settings: GatewaySettings): Http2SecureServer {
  const { listenCert = '', listenKey = '', listenClientCa, clientHeadTimeoutMs } = settings
  const mutual = listenClientCa === undefined ? {} : { ca: readFileSync(listenClientCa), requestCert: true }
  try {
    return createSecureServer({
      cert: readFileSync(listenCert),
      key: readFileSync(listenKey),
      allowHTTP1: true,
      handshakeTimeout: Math.min(clientHeadTimeoutMs, HANDSHAKE_MS_MAX),
      settings: { maxConcurrentStreams: STREAMS_MAX },
      ...mutual,
    })
  } catch (error) {
    throw settingInvalid(
      'listen-cert',
      listenCert,
      `give a certificate and its key in PEM: ${(error as Error).message}`,
      error,
    )
  }
}

/** Adds the upstream timeout, because a client is silent while it waits for a slow upstream. */
function setTimeouts(server: Server | Http2SecureServer, settings: GatewaySettings): void {
  const { clientTimeoutMs, upstreamTimeoutMs, clientHeadTimeoutMs } = settings
  server.setTimeout(clientTimeoutMs + upstreamTimeoutMs)
  Object.assign(server, {
    keepAliveTimeout: clientTimeoutMs,
    headersTimeout: clientHeadTimeoutMs,
    requestTimeout: 0, // upload-watch.ts limits slow uploads
    connectionsCheckingInterval: Math.min(CHECK_MS, clientHeadTimeoutMs),
  })
  const emitter: NodeJS.EventEmitter = server
  emitter.on('session', (session: ServerHttp2Session) => closeIdle(session, clientHeadTimeoutMs, clientTimeoutMs))
}

/** Closes idle sessions, because Node.js has no head timeout for HTTP/2. */
function closeIdle(session: ServerHttp2Session, firstMs: number, laterMs: number): void {
  let streams = 0
  const close = () => {
    session.close()
    timer = setTimeout(() => session.destroy(), CHECK_MS) // a partial frame keeps the session open
  }
  let timer = setTimeout(close, firstMs)
  session.on('stream', (stream) => {
    streams += 1
    clearTimeout(timer)
    stream.once('close', () => {
      streams -= 1
      if (streams === 0 && !session.destroyed) timer = setTimeout(close, laterMs)
    })
  })
  session.once('close', () => clearTimeout(timer))
}

function connectGateway(server: Server | Http2SecureServer, gateway: Gateway): void {
  const handle = (request: IncomingMessage, response: ServerResponse) => gateway.handle(request, response)
  const emitter: NodeJS.EventEmitter = server // both server types emit these events
  emitter.on('request', handle)
  emitter.on('checkContinue', handle)
  emitter.on('upgrade', (request: IncomingMessage, socket: Socket, head: Buffer) => {
    const response = responseOn(request, socket)
    if (response === undefined) socket.destroy()
    else gateway.handle(request, response, { socket, head })
  })
}

function speaksHttp2(socket: Socket): boolean {
  return (socket as TLSSocket).alpnProtocol === 'h2' // undefined without TLS
}

/** Open connections and HTTP/2 sessions. */
function connectionsOf(server: Server | Http2SecureServer): {
  sockets: Set<Socket>
  sessions: Set<ServerHttp2Session>
} {
  const sockets = new Set<Socket>()
  const sessions = new Set<ServerHttp2Session>()
  const emitter: NodeJS.EventEmitter = server
  emitter.on(server instanceof TlsServer ? 'secureConnection' : 'connection', (socket: Socket) => {
    sockets.add(socket)
    socket.once('close', () => sockets.delete(socket))
  })
  emitter.on('session', (session: ServerHttp2Session) => {
    sessions.add(session)
    session.once('close', () => sessions.delete(session))
  })
  return { sockets, sessions }
}
