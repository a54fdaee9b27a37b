import { once } from 'node:events'
import { createServer, type RequestListener, type Server, type ServerResponse } from 'node:http'
import { createRequire } from 'node:module'
import type { AddressInfo } from 'node:net'
import { type Options, rateLimit, type Store } from 'express-rate-limit'
import { SluiceStore } from 'sluice/express-rate-limit'
import { afterEach, describe, expect, expectTypeOf, test, vi } from 'vitest'
import { onEachStore, unreachableStore } from './each-store.ts'

type Send = (path?: string) => Promise<Response>
type App = RequestListener & { use(...handlers: unknown[]): App }
const express = createRequire(import.meta.url)('express') as () => App
const servers: Server[] = []

async function serve(options: Partial<Options> | Partial<Options>[], status = 200): Promise<Send> {
  const end = (_req: unknown, res: ServerResponse) => void res.writeHead(status).end()
  const failed = (error: Error, _req: unknown, res: ServerResponse, _next: unknown) =>
    void res.writeHead((error as { status?: number }).status ?? 500).end(error.message)
  const limiters = [options].flat().map((one) => rateLimit({ windowMs: 60_000, limit: 2, ...one }))
  const app = express()
    .use(...limiters, end)
    .use(failed)
  const server = createServer(app).listen(0, '127.0.0.1')
  servers.push(server)
  await once(server, 'listening')
  return (path = '') => fetch(`http://127.0.0.1:${(server.address() as AddressInfo).port}${path}`)
}

const statuses = async (send: Send, times: number) => {
  const seen: number[] = []
  for (let call = 0; call < times; call += 1) seen.push((await send()).status)
  return seen
}

afterEach(async () => {
  for (const server of servers.splice(0)) {
    server.closeAllConnections()
    await new Promise((resolve) => server.close(resolve))
  }
})

test('has the type of a Store', () => {
  expectTypeOf<SluiceStore>().toExtend<Store>()
})

onEachStore((bench) => {
  test('the limit applies, and again in the next window', async () => {
    const send = await serve({ store: new SluiceStore({ store: bench.store }) })
    expect(await statuses(send, 4)).toEqual([200, 200, 429, 429])
    bench.clock.advanceMs(60_000)
    expect(await statuses(send, 3)).toEqual([200, 200, 429])
  })

  test('headers report the numbers and the end of the window', async () => {
    bench.clock.advanceMs(15_000)
    const send = await serve({ store: new SluiceStore({ store: bench.store }), standardHeaders: 'draft-8' })
    const [first, , third] = [await send(), await send(), await send()]
    expect(first.headers.get('ratelimit')).toMatch(/^"2-in-1min"; r=1; t=4[45]$/)
    expect(first.headers.get('x-ratelimit-remaining')).toBe('1')
    expect(third.headers.get('retry-after')).toMatch(/^4[45]$/)
  })

  test('processes that share the store share the limit', async () => {
    const options = () => ({ limit: 10, store: new SluiceStore({ store: bench.another() }) })
    const senders = await Promise.all([serve(options()), serve(options()), serve(options())])
    const responses = await Promise.all(Array.from({ length: 30 }, (_, call) => senders[call % 3]?.()))
    expect(responses.filter((response) => response?.status === 200)).toHaveLength(10)
  })

  test('number, bigint and boolean keys are separate clients, and equal to their strings', async () => {
    const keys: unknown[] = [1, 2, 3, -1, 0.5, 1e21, 2n ** 70n, true, false, 1, '1', 2n ** 70n, 'true']
    const send = await serve({
      store: new SluiceStore({ store: bench.store }),
      keyGenerator: (req) => keys[Number(req.url.slice(1))] as string,
    })
    const seen = []
    for (const [index] of keys.entries()) seen.push((await send(`/${index}`)).status)
    expect(seen).toEqual([...Array(10).fill(200), 429, 200, 200])
  })

  test('an invalid key fails only its own request, and the breaker stays closed', async () => {
    const keys: unknown[] = [['a', 'b'], { id: 1 }, null, undefined, Number.NaN, Symbol('a')]
    const store = bench.another()
    const send = await serve({
      limit: 1000,
      store: new SluiceStore({ store }),
      keyGenerator: (req) => (req.url === '/' ? 'alice' : (keys[Number(req.url.slice(1))] as string)),
    })
    for (const [index] of keys.entries()) {
      const sequence = [send(), send(), send(`/${index}`), send(), send()]
      const [before, , malformed, ...after] = await Promise.all(sequence)
      expect([before?.status, malformed?.status, ...after.map(({ status }) => status)]).toEqual([200, 500, 200, 200])
      expect(await malformed?.text()).toMatch(/^\[OPTION_INVALID\] key: must be a string/)
    }
    const { errors = 0, breaker_open = 0 } = store.stats?.() ?? {}
    expect([errors, breaker_open]).toEqual([0, 0])
  })

  test('a limit that depends on the request applies to every hit', async () => {
    let limit = 1
    const send = await serve({ store: new SluiceStore({ store: bench.store }), limit: () => limit })
    expect(await statuses(send, 3)).toEqual([200, 429, 429])
    limit = 5
    expect(await statuses(send, 3)).toEqual([200, 200, 429])
  })

  test.each([
    ['skipFailedRequests', 500],
    ['skipSuccessfulRequests', 200],
  ])('%s returns hits', async (option, status) => {
    const store = new SluiceStore({ store: bench.store })
    const send = await serve({ store, [option]: true, keyGenerator: () => 'k' }, status)
    for (let call = 0; call < 5; call += 1) {
      expect((await send()).status).toBe(status)
      await expect.poll(() => store.get('k')).toBeUndefined()
    }
  })

  test('a hit is returned to its own window only, and never below 0', async () => {
    const store = new SluiceStore({ store: bench.store })
    store.init({ windowMs: 1000 })
    await store.increment('k')
    bench.clock.advanceMs(1000)
    await store.increment('k')
    await store.increment('k')
    await store.decrement('k')
    expect(await store.get('k')).toMatchObject({ totalHits: 1 })
    await store.decrement('k')
    await store.decrement('k')
    expect(await store.increment('k')).toMatchObject({ totalHits: 1 })
  })

  test('getKey and resetKey of the middleware work', async () => {
    const limiter = rateLimit({ windowMs: 60_000, limit: 2, store: new SluiceStore({ store: bench.store }) })
    const store = new SluiceStore({ store: bench.store })
    store.init({ windowMs: 60_000 })
    await store.increment('k')
    await store.increment('k')
    expect(await limiter.getKey('k')).toMatchObject({ totalHits: 2 })
    await limiter.resetKey('k')
    expect(await limiter.getKey('k')).toBeUndefined()
  })

  test('each prefix and each window length is counted separately', async () => {
    const open = (prefix: string, windowMs: number) => {
      const store = new SluiceStore({ store: bench.store, prefix })
      store.init({ windowMs })
      return store
    }
    for (const store of [open('a', 1000), open('b', 1000), open('a', 2000)]) {
      expect(await store.increment('k')).toMatchObject({ totalHits: 1 })
    }
    expect(await open('a', 1000).increment('k')).toMatchObject({ totalHits: 2 })
  })

  test('the library warns only about a hit that is counted twice', async () => {
    const warn = vi.spyOn(console, 'error').mockImplementation(() => {})
    const limiter = (prefix: string) => ({ store: new SluiceStore({ store: bench.store, prefix }) })
    await (await serve([limiter('a'), limiter('b')]))()
    expect(warn.mock.calls).toEqual([])
    await (await serve([limiter('a'), limiter('a')]))()
    expect(warn.mock.calls).toMatchObject([[{ code: 'ERR_ERL_DOUBLE_COUNT' }]])
    warn.mockRestore()
  })
})

test('separate in-memory stores do not count the same hit twice', async () => {
  const warn = vi.spyOn(console, 'error').mockImplementation(() => {})
  await (await serve([{ store: new SluiceStore() }, { store: new SluiceStore() }]))()
  expect(warn.mock.calls).toEqual([])
  warn.mockRestore()
})

describe('while the store is unreachable', () => {
  test.each([
    [false, 503],
    [true, 200],
  ])('passOnStoreError: %s: status %i', async (passOnStoreError, status) => {
    const logged = vi.spyOn(console, 'error').mockImplementation(() => {})
    const { store, close } = unreachableStore()
    const send = await serve({ store: new SluiceStore({ store }), passOnStoreError })
    expect(await statuses(send, 3)).toEqual([status, status, status])
    await close()
    logged.mockRestore()
  })
})

test.each([
  [{ store: {} }, /OPTION_INVALID.*store: pass memoryStore\(\)/],
  [{ prefix: 5 }, /prefix: pass a string/],
])('%j is rejected', (options, message) => {
  expect(() => new SluiceStore(options as never)).toThrow(message)
})

test.each([0, -1, Number.NaN, 367 * 86_400_000])('a window of %s ms is rejected', async (windowMs) => {
  const store = new SluiceStore()
  store.init({ windowMs })
  await expect(store.increment('k')).rejects.toThrow(/OPTION_INVALID.*window: must be milliseconds/)
})
