// HTTP with connections that are kept: as little work per request as a load generator on the same machine can do.

import { Agent, request } from 'node:http'

/** Questions do not wait behind the load. */
const AGENTS = { GET: new Agent({ keepAlive: true }), POST: new Agent({ keepAlive: true, maxSockets: 128 }) }
const TIMEOUT_MS = 10_000

export function getText(url: URL): Promise<string> {
  return exchange(url, undefined)
}

export async function postJson(url: URL, body: object): Promise<unknown> {
  return JSON.parse(await exchange(url, JSON.stringify(body)))
}

/** Rejects when there is no answer, or one that is not 200; /readyz says 503 while it drains, which is an answer. */
function exchange(url: URL, body: string | undefined): Promise<string> {
  const method = body === undefined ? 'GET' : 'POST'
  const headers =
    body === undefined ? {} : { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) }
  return new Promise((resolve, reject) => {
    const sent = request(url, { agent: AGENTS[method], method, headers, timeout: TIMEOUT_MS }, (response) => {
      let text = ''
      response.setEncoding('utf8')
      response.on('data', (chunk: string) => {
        text += chunk
      })
      response.on('error', reject)
      response.on('end', () => {
        if (method === 'POST' && response.statusCode !== 200) reject(new Error(`${response.statusCode}: ${text}`))
        else resolve(text)
      })
    })
    sent.on('timeout', () => sent.destroy(new Error(`no answer within ${TIMEOUT_MS} ms`)))
    sent.on('error', reject)
    sent.end(body)
  })
}

/** Idle connections would keep the process alive. */
export function closeConnections(): void {
  for (const agent of Object.values(AGENTS)) agent.destroy()
}
