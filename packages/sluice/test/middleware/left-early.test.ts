// A client that disconnects before its response: no server reads the body then, nor reports that it will not.

import { once } from 'node:events'
import { createServer, get } from 'node:http'
import type { AddressInfo } from 'node:net'
import { getRequestListener } from '@hono/node-server'
import { Hono } from 'hono'
import { createLimiter, type Limiter } from 'sluice'
import { rateLimit as fetchLimit } from 'sluice/fetch'
import { rateLimit as honoLimit } from 'sluice/hono'
import { expect, onTestFinished, test } from 'vitest'

const RULE = { rule_id: 'one', algorithm: 'concurrency', limit: 1, window: '1d', scope: 'global' }

type Handle = (request: Request, env: object) => Response | Promise<Response>

const honoApp = (limiter: Limiter, handler: () => Promise<Response>): Handle => {
  const app = new Hono().use(honoLimit({ limiter })).get('/', handler)
  return (request, env) => app.fetch(request, env)
}

test.each<[string, (limiter: Limiter, handler: () => Promise<Response>) => Handle]>([
  ['Hono', honoApp],
  ['fetch handler', (limiter, handler) => fetchLimit({ limiter })(handler)],
])('%s: the permit is released, even if the response is an endless stream', async (_name, limited) => {
  const limiter = createLimiter({ rules: [RULE] })
  const waiting: (() => void)[] = []
  const endless = () => new ReadableStream({ pull: (controller) => controller.enqueue(new Uint8Array(1000)) })
  const handler = () => new Promise<Response>((go) => waiting.push(() => go(new Response(endless()))))
  const server = createServer(getRequestListener(limited(limiter, handler))).listen(0, '127.0.0.1')
  onTestFinished(() => void server.close().closeAllConnections())
  await once(server, 'listening')
  const connection = once(server, 'connection') as Promise<[{ once: NodeJS.EventEmitter['once'] }]>
  const request = get(`http://127.0.0.1:${(server.address() as AddressInfo).port}`).on('error', () => {})
  const [socket] = await connection
  const left = new Promise((closed) => socket.once('close', closed))
  await expect.poll(() => waiting.length).toBe(1)
  expect((await limiter.peek({})).allowed).toBe(false)
  request.destroy()
  await left
  waiting[0]?.()
  await expect.poll(async () => (await limiter.peek({})).allowed).toBe(true)
})
