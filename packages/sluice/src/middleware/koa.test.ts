import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import Koa from 'koa'
import { expect, onTestFinished, test } from 'vitest'
import { rateLimit } from './koa.ts'

// What every framework promises is in test/middleware; here is what only Koa has.

test.each([
  ['that is thrown for several requests', (error: Error) => error],
  ['that cannot be changed', (error: Error) => Object.freeze(error)],
])('an error %s tells each the numbers of its own', async (_which, made) => {
  const shared = made(Object.assign(new Error('gone'), { status: 410, expose: true }))
  const app = new Koa()
  app.silent = true
  app.use(rateLimit({ limit: 5, window: '1d' })).use(() => {
    throw shared
  })
  const server = createServer(app.callback()).listen(0, '127.0.0.1')
  onTestFinished(() => void server.close().closeAllConnections())
  await once(server, 'listening')
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  const answers = [await fetch(url), await fetch(url)]
  expect(answers.map(({ status }) => status)).toEqual([410, 410])
  const told = answers.map(({ headers }) => headers.get('x-ratelimit-remaining'))
  expect(told).toEqual(Object.isFrozen(shared) ? [null, null] : ['4', '3'])
})
