// HTTP client with keep-alive and little work per request, because the load generator shares the machine.

import { Agent, request } from 'node:http'

/** Separate agent, so that queries do not wait behind the load. */
const AGENTS = { GET: new Agent({ keepAlive: true }), POST: new Agent({ keepAlive: true, maxSockets: 128 }) }
const TIMEOUT_MS = 10_000

export function getText(url: URL): Promise<string> {
  return exchange(url, undefined)
}

export async function postJson(url: URL, body: object): Promise<unknown> {
  return JSON.parse(await exchange(url, JSON.stringify(body)))
}

/** Rejects without a response, or if a POST does not return 200. GET accepts 503: /readyz of a draining node. */
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
    sent.on('timeout', () => sent.destroy(new Error(`no response within ${TIMEOUT_MS} ms`)))
    sent.on('error', reject)
    sent.end(body)
  })
}

/** Closes idle connections, which would keep the process alive. */
export function closeConnections(): void {
  for (const agent of Object.values(AGENTS)) agent.destroy()
}
