import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import Koa from 'koa'
import { expect, onTestFinished, test } from 'vitest'
import { rateLimit } from './koa.ts'

// Koa only; tests for all frameworks are in test/middleware.

test('an error object thrown for several requests has the headers of each request', async () => {
  const shared = Object.assign(new Error('gone'), { status: 410, expose: true })
  const app = new Koa()
  app.silent = true
  app.use(rateLimit({ limit: 5, window: '1d' })).use(() => {
    throw shared
  })
  const server = createServer(app.callback()).listen(0, '127.0.0.1')
  onTestFinished(() => void server.close().closeAllConnections())
  await once(server, 'listening')
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  const responses = [await fetch(url), await fetch(url)]
  expect(responses.map(({ status }) => status)).toEqual([410, 410])
  expect(responses.map(({ headers }) => headers.get('x-ratelimit-remaining'))).toEqual(['4', '3'])
})
