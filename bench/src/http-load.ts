// The load of the HTTP scenario: so many checks over kept-alive connections, each connection waiting for its answer
// before it sends the next request. The client runs in this process; only the server's CPU time is measured.

import { Agent, type RequestOptions, request } from 'node:http'

export type HttpLoad = {
  /** Posts each body once; throws unless every answer is a 200. */
  post(url: string, bodies: readonly string[]): Promise<void>
  close(): void
}

export function httpLoad(connections: number): HttpLoad {
  const agent = new Agent({ keepAlive: true, maxSockets: connections })
  return {
    async post(url, bodies) {
      const { hostname, port, pathname } = new URL(url)
      const target = { agent, hostname, port, path: pathname, method: 'POST' }
      let next = 0
      const worker = async () => {
        for (let body = bodies[next++]; body !== undefined; body = bodies[next++]) await postOne(target, body)
      }
      await Promise.all(Array.from({ length: connections }, worker))
    },
    close: () => agent.destroy(),
  }
}

function postOne(target: RequestOptions, body: string): Promise<void> {
  return new Promise((resolve, reject) => {
    const headers = { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) }
    const sent = request({ ...target, headers }, (answer) => {
      if (answer.statusCode !== 200) reject(new Error(`${target.path} answered ${answer.statusCode}`))
      answer.on('error', reject).on('end', resolve).resume()
    })
    sent.on('error', reject).end(body)
  })
}
