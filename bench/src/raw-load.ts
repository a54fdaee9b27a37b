// A load that costs little itself: requests written as they stand to kept-alive connections, each of which waits for
// its answer before it sends the next one. The answers are known beforehand, and anything else is an error.

import { connect, type Socket } from 'node:net'

/** Sends each request once; throws unless every answer is a 200 that ends in `body`. */
export async function sendRaw(
  url: string,
  requests: readonly string[],
  body: string,
  connections: number,
): Promise<void> {
  const { hostname, port } = new URL(url)
  let next = 0
  const take = () => requests[next++]
  const sockets = Array.from({ length: connections }, () =>
    connect({ host: hostname, port: Number(port), noDelay: true }),
  )
  try {
    await Promise.all(sockets.map((socket) => sendOver(socket, take, body)))
  } finally {
    for (const socket of sockets) socket.destroy()
  }
}

function sendOver(socket: Socket, take: () => string | undefined, body: string): Promise<void> {
  return new Promise((resolve, reject) => {
    let answer = ''
    const send = () => {
      const request = take()
      if (request === undefined) resolve()
      else socket.write(request, 'latin1')
    }
    socket.on('connect', send).on('error', reject)
    socket.on('close', () => reject(new Error('the server closed the connection')))
    socket.setEncoding('latin1').on('data', (text: string) => {
      answer += text
      if (!answer.startsWith('HTTP/1.1 200 ')) reject(new Error(`unexpected: ${answer}`))
      if (!answer.endsWith(body)) return
      answer = ''
      send()
    })
  })
}
