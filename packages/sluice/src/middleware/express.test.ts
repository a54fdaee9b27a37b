import { once } from 'node:events'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import express from 'express'
import { afterEach, expect, test } from 'vitest'
import { createLimiter } from '../limiter.ts'
import { memoryStore } from '../store/memory.ts'
import type { Store } from '../store/store.ts'
import { rateLimit } from './express.ts'

// Express only; tests for all frameworks are in test/middleware.

let server: Server | undefined

afterEach(async () => {
  server?.closeAllConnections()
  await new Promise((closed) => server?.close(closed))
})

test('rules see the full path under a mount path and in any spelling', async () => {
  const limiter = createLimiter({
    rules: [{ rule_id: 'messages', endpoint_pattern: '/api/messages', limit: 0, window_seconds: 1, scope: 'global' }],
  })
  const router = express.Router().use(rateLimit({ limiter }))
  const app = express()
    .use('/api', router)
    .use((_req, res) => void res.end('hello'))
  server = createServer(app).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  const paths = ['/api/messages', '/API/messages/?x=1', '/api//%6Dessages', '/api/other']
  const responses = await Promise.all(paths.map((path) => fetch(url + path)))
  expect(responses.map(({ status }) => status)).toEqual([429, 429, 429, 200])
})

test('a response that ended while the check was in flight is not modified', async () => {
  const decided: (() => void)[] = []
  const memory = memoryStore()
  const store: Store = {
    ...{ give: memory.give.bind(memory), peek: memory.peek.bind(memory), reset: memory.reset.bind(memory) },
    ...{
      close: () => memory.close(),
      take: (take) => new Promise((resolve) => decided.push(() => resolve(memory.take(take)))),
    },
  }
  const errors: unknown[] = []
  const app = express()
    .use((_req, res, next) => {
      next()
      res.status(503).end('too slow')
    })
    .use(rateLimit({ limit: 1, window: '1m', algorithm: 'fixed_window', store }))
    .use((error: unknown, _req: unknown, _res: unknown, _next: unknown) => void errors.push(error))
  server = createServer(app).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  for (const _ of ['admitted', 'refused']) {
    expect(await (await fetch(url)).text()).toBe('too slow')
    decided.shift()?.()
    await new Promise((next) => setImmediate(next))
  }
  expect(errors).toEqual([])
})

test('the middleware has a name in stack traces', () => {
  expect(rateLimit({ limit: 1, window: '1m' }).name).toBe('rateLimit')
})
