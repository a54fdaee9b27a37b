// Sends one command to Redis without a client, to wait until a server is in the state that a test needs.

import { once } from 'node:events'
import { connect } from 'node:net'

const POLL_MS = 20

/** Waits until the reply to `command` contains `text`. */
export async function untilRedisReplies(port: number, command: string, text: string): Promise<void> {
  while (!(await send(port, command)).includes(text)) await new Promise((resolve) => setTimeout(resolve, POLL_MS))
}

async function send(port: number, command: string): Promise<string> {
  const socket = connect(port, '127.0.0.1')
  socket.write(`${command}\r\n`)
  const [reply] = (await once(socket, 'data')) as [Buffer]
  socket.destroy()
  return reply.toString()
}
