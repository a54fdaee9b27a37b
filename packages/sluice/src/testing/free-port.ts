// A port for a server that a test starts. It lies below those that the system hands out for connections: one of these
// could be taken before the server listens.

import { once } from 'node:events'
import { createServer } from 'node:net'

const PORT_MIN = 10_240
const PORTS = 20_000

export async function freePort(): Promise<number> {
  for (;;) {
    const port = PORT_MIN + Math.floor(Math.random() * PORTS)
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
