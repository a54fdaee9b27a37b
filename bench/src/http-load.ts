// The load of the HTTP scenarios: so many requests over kept-alive connections, each connection waiting for its answer
// before it sends the next request. The client runs in this process; only the server's CPU time is measured.

import { Agent, type RequestOptions, request } from 'node:http'

export type HttpLoad = {
  /** Posts each body once; throws unless every answer is a 200. */
  post(url: string, bodies: readonly string[]): Promise<void>
  /** Asks for the URL once as each user, named in the header X-User; throws unless every answer is a 200. */
  get(url: string, users: readonly string[]): Promise<void>
  close(): void
}

export function httpLoad(connections: number): HttpLoad {
  const agent = new Agent({ keepAlive: true, maxSockets: connections })
  const sendAll = async (url: string, texts: readonly string[], send: typeof postOne) => {
    const { hostname, port, pathname, search } = new URL(url)
    const target = { agent, hostname, port, path: pathname + search }
    let next = 0
    const worker = async () => {
      for (let text = texts[next++]; text !== undefined; text = texts[next++]) await send(target, text)
    }
    await Promise.all(Array.from({ length: connections }, worker))
  }
  return {
    post: (url, bodies) => sendAll(url, bodies, postOne),
    get: (url, users) => sendAll(url, users, getOne),
    close: () => agent.destroy(),
  }
}

function postOne(target: RequestOptions, body: string): Promise<void> {
  const headers = { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) }
  return sendOne({ ...target, method: 'POST', headers }, body)
}

function getOne(target: RequestOptions, user: string): Promise<void> {
  return sendOne({ ...target, headers: { 'x-user': user, accept: '*/*', 'user-agent': 'bench' } }, '')
}

function sendOne(options: RequestOptions, body: string): Promise<void> {
  return new Promise((resolve, reject) => {
    const sent = request(options, (answer) => {
      if (answer.statusCode !== 200) reject(new Error(`${options.path} answered ${answer.statusCode}`))
      answer.on('error', reject).on('end', resolve).resume()
    })
    sent.on('error', reject).end(body)
  })
}
