// Free port for a server of a test. Below the ephemeral range: a port from that range could be taken before the server
// listens. Each process hands out the ports of its own block in turn, so that parallel test workers, and servers that
// do not listen yet, never share one.

import { once } from 'node:events'
import { createServer } from 'node:net'

const PORT_MIN = 10_240
const BLOCKS = 64
const BLOCK_PORTS = 312

let handedOut = Math.floor(Math.random() * BLOCK_PORTS)

export async function freePort(): Promise<number> {
  for (;;) {
    handedOut = (handedOut + 1) % BLOCK_PORTS
    const port = PORT_MIN + (process.pid % BLOCKS) * BLOCK_PORTS + handedOut
    if (await isFree(port)) return port
  }
}

async function isFree(port: number): Promise<boolean> {
  const server = createServer()
  try {
    await once(server.listen(port, '127.0.0.1'), 'listening')
    await new Promise((resolve) => server.close(resolve))
    return true
  } catch {
    return false
  }
}
