import { once } from 'node:events'
import {
  createServer,
  get,
  type IncomingMessage,
  type RequestListener,
  type Server,
  type ServerResponse,
} from 'node:http'
import { createRequire } from 'node:module'
import type { AddressInfo } from 'node:net'
import { afterEach, describe, expect, test } from 'vitest'
import { createLimiter } from '../limiter.ts'
import { memoryStore } from '../store/memory.ts'
import { type ExpressHandler, type ExpressRequest, rateLimit } from './express.ts'

type Handler = (req: IncomingMessage & ExpressRequest, res: ServerResponse, next: (error?: unknown) => void) => void
type ErrorHandler = (error: Error, req: IncomingMessage, res: ServerResponse, next: () => void) => void
type App = RequestListener & {
  use(path: string, handler: Handler): App
  use(...handlers: readonly Handler[]): App
  use(handler: ErrorHandler): App
}
/** Express brings no types of its own. */
const express = createRequire(import.meta.url)('express') as () => App

const CLOCK = { nowUs: () => 1_700_000_000_000_000 }
const LOOPBACK = ['127.0.0.1', '::1']
const servers: Server[] = []

async function serve(listener: RequestListener): Promise<string> {
  const server = createServer(listener).listen(0, '127.0.0.1')
  servers.push(server)
  await once(server, 'listening')
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
}

afterEach(async () => {
  for (const server of servers.splice(0)) {
    server.closeAllConnections()
    await new Promise((resolve) => server.close(resolve))
  }
})

const hello: Handler = (_req, res) => void res.end('hello')
const statuses = (responses: readonly Response[]) => responses.map((response) => response.status)

async function inTurn(url: string, requests: readonly RequestInit[]): Promise<Response[]> {
  const responses: Response[] = []
  for (const request of requests) responses.push(await fetch(url, request))
  return responses
}

describe('in an Express 5 application', () => {
  test('requests within the limit pass with headers, the next is a 429 that explains itself', async () => {
    const store = memoryStore({ clock: CLOCK })
    const url = await serve(express().use(rateLimit({ limit: 2, window: '1m', store, clock: CLOCK }), hello))
    const [first, second, third] = await inTurn(url, [{}, {}, {}])
    expect([first?.status, await first?.text(), second?.status, third?.status]).toEqual([200, 'hello', 200, 429])
    expect(Object.fromEntries(first?.headers ?? [])).toMatchObject({
      'x-ratelimit-limit': '2',
      'x-ratelimit-remaining': '1',
      'x-ratelimit-reset': '1700000030',
      'ratelimit-policy': '"default";q=2;w=60',
      ratelimit: '"default";r=1;t=30',
    })
    expect(third?.headers.get('content-type')).toBe('application/problem+json')
    expect(third?.headers.get('retry-after')).toBe('30')
    expect(await third?.json()).toMatchObject({
      status: 429,
      rule_id: 'default',
      retry_after: 30,
      'violated-policies': ['default'],
    })
  })

  test('rules see the whole path, also under a mount path and in any spelling', async () => {
    const limiter = createLimiter({
      rules: [{ rule_id: 'messages', endpoint_pattern: '/api/messages', limit: 0, window_seconds: 1, scope: 'global' }],
    })
    const url = await serve(express().use('/api', rateLimit({ limiter })).use(hello))
    const paths = ['/api/messages', '/api/messages/?x=1', '/api//%6Dessages', '/api/other']
    expect(statuses(await Promise.all(paths.map((path) => fetch(url + path))))).toEqual([429, 429, 429, 200])
  })

  test('a client cannot choose its address, a trusted proxy can name it', async () => {
    const spoofed = ['1.1.1.1', '2.2.2.2', '3.3.3.3, 2.2.2.2'].map((value) => ({
      headers: { 'x-forwarded-for': value },
    }))
    const app = (trustProxy: readonly string[]) =>
      express().use(rateLimit({ limit: 1, window: '1d', trustProxy }), hello)
    expect(statuses(await inTurn(await serve(app([])), spoofed))).toEqual([200, 429, 429])
    expect(statuses(await inTurn(await serve(app(LOOPBACK)), spoofed))).toEqual([200, 200, 429])
  })

  test('handlers behind it find the decision in req.rateLimit', async () => {
    const show: Handler = (req, res) => void res.end(JSON.stringify(req.rateLimit))
    const url = await serve(express().use(rateLimit({ limit: 5, window: '1m' }), show))
    expect(await (await fetch(url)).json()).toMatchObject({ allowed: true, ruleId: 'default', limit: 5, remaining: 4 })
  })

  test('a skipped request gets no headers', async () => {
    const url = await serve(
      express().use(rateLimit({ limit: 1, window: '1m', skip: (req: ExpressRequest) => req.url === '/health' }), hello),
    )
    expect((await fetch(`${url}/health`)).headers.has('ratelimit')).toBe(false)
  })

  test('an error goes to the error handler, not to the client as a refusal', async () => {
    const limiter = createLimiter({ rules: [] })
    const subject = () => {
      throw new Error('no session')
    }
    const report: ErrorHandler = (error, _req, res, _next) => {
      res.statusCode = 503
      res.end(error.message)
    }
    const url = await serve(express().use(rateLimit({ limiter, subject })).use(report))
    const response = await fetch(url)
    expect([response.status, await response.text()]).toEqual([503, 'no session'])
  })
})

describe('a concurrency limit frees its permit', () => {
  /** Requests to /hold stay open until they are taken from `held`; all others are answered at once. */
  async function serveHolding() {
    const held: ServerResponse[] = []
    const holdOrEnd: Handler = (req, res) => void (req.url === '/hold' ? held.push(res) : res.end())
    const limited = rateLimit({ limit: 1, window: '1m', algorithm: 'concurrency' })
    const url = await serve(express().use(limited, holdOrEnd))
    return { url, held, status: async () => (await fetch(url)).status }
  }

  test('when the response has been sent', async () => {
    const { url, held, status } = await serveHolding()
    const first = fetch(`${url}/hold`)
    await expect.poll(() => held.length).toBe(1)
    expect(await status()).toBe(429)
    held[0]?.end('done')
    expect((await first).status).toBe(200)
    await expect.poll(status).toBe(200)
  })

  test('when the client goes away', async () => {
    const { url, held, status } = await serveHolding()
    const request = get(`${url}/hold`).on('error', () => {})
    await expect.poll(() => held.length).toBe(1)
    request.destroy()
    await expect.poll(status).toBe(200)
  })
})

describe('without Express', () => {
  test('it takes what node:http hands over', async () => {
    const limited: (req: IncomingMessage, res: ServerResponse, next: (error?: unknown) => void) => void = rateLimit({
      limit: 1,
      window: '1m',
    })
    const url = await serve((req, res) => limited(req, res, () => res.end()))
    expect(statuses(await inTurn(url, [{}, {}]))).toEqual([200, 429])
  })

  test('it is a function that stack traces can name', () => {
    const handler: ExpressHandler<ExpressRequest> = rateLimit({ limit: 1, window: '1m' })
    expect(handler.name).toBe('rateLimit')
  })
})
