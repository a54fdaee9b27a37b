// One command to a Redis, without a client: enough to wait until a server is what a test needs.

import { once } from 'node:events'
import { connect } from 'node:net'

const POLL_MS = 20

/** Waits until the answer to `command` contains `text`. */
export async function untilRedisSays(port: number, command: string, text: string): Promise<void> {
  while (!(await ask(port, command)).includes(text)) await new Promise((resolve) => setTimeout(resolve, POLL_MS))
}

async function ask(port: number, command: string): Promise<string> {
  const socket = connect(port, '127.0.0.1')
  socket.write(`${command}\r\n`)
  const [reply] = (await once(socket, 'data')) as [Buffer]
  socket.destroy()
  return reply.toString()
}
