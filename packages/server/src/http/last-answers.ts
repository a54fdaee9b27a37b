// The last answers of an HTTP server that stops. Each closes its connection and says so. The client connects again, and
// is answered too if it reaches this server before it stops listening: no request of such a client is lost.

import type { IncomingMessage, ServerResponse } from 'node:http'
import { Server as NetServer, type Socket } from 'node:net'
import { setImmediate as turn } from 'node:timers/promises'
import { type TLSSocket, Server as TlsServer } from 'node:tls'

/** Longest wait for the requests of connections that were opened during the drain. */
const LAST_MS_MAX = 1000

export class LastAnswers {
  readonly #server: NetServer
  /** Connections that were opened, or had a request, during the drain. They close after their answer. */
  readonly #open = new Set<Socket>()
  #allClosed: () => void = () => {}

  /** From now on, answers over HTTP/1.1 close their connections. */
  constructor(server: NetServer) {
    this.#server = server
    server.on(server instanceof TlsServer ? 'secureConnection' : 'connection', (socket: Socket | TLSSocket) => {
      if (!('alpnProtocol' in socket) || socket.alpnProtocol !== 'h2') this.#add(socket)
    })
    server.prependListener('request', ({ httpVersionMajor, socket }: IncomingMessage, response: ServerResponse) => {
      if (httpVersionMajor > 1) return // GOAWAY
      response.shouldKeepAlive = false
      this.#add(socket)
    })
  }

  /** Stops listening. Resolves when the clients of the drain have their answers, or after a second. */
  async sent(): Promise<void> {
    await turn() // accepts the connections that are waiting
    NetServer.prototype.close.call(this.#server) // that of HTTP also destroys connections without a request
    if (this.#open.size === 0) return
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, LAST_MS_MAX)
      this.#allClosed = () => {
        clearTimeout(timer)
        resolve()
      }
    })
  }

  #add(socket: Socket): void {
    if (this.#open.has(socket)) return
    this.#open.add(socket)
    socket.once('close', () => {
      this.#open.delete(socket)
      if (this.#open.size === 0) this.#allClosed()
    })
  }
}
