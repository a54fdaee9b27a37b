// A TCP proxy that breaks connections on purpose, between a store under test and the real server behind it.

import { once } from 'node:events'
import { connect, createServer, type Socket } from 'node:net'

export type FaultProxy = {
  readonly port: number
  /** Resets the connection that carries the next reply, after `bytes` of it have passed. */
  cutNextReply(bytes: number): void
  /** Connections that were reset so far. */
  readonly cuts: number
  stop(): Promise<void>
}

export async function startFaultProxy(targetPort: number): Promise<FaultProxy> {
  const sockets = new Set<Socket>()
  let cutAfter: number | undefined
  let cuts = 0
  const server = createServer((client) => {
    const target = connect(targetPort, '127.0.0.1')
    for (const socket of [client, target]) {
      sockets.add(socket)
      socket.on('close', () => sockets.delete(socket))
      socket.on('error', () => socket.destroy()) // a reset is what this proxy is for
    }
    client.on('close', () => target.destroy())
    target.on('close', () => client.destroy())
    client.pipe(target)
    target.on('data', (reply) => {
      if (cutAfter === undefined) return void client.write(reply)
      const passed = reply.subarray(0, cutAfter)
      cutAfter = undefined
      cuts += 1
      client.write(passed, () => client.resetAndDestroy())
    })
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const address = server.address()
  return {
    port: address !== null && typeof address === 'object' ? address.port : 0,
    get cuts() {
      return cuts
    },
    cutNextReply(bytes) {
      cutAfter = bytes
    },
    async stop() {
      for (const socket of sockets) socket.destroy()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}
