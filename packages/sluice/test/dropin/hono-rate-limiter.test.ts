import { type Context, Hono } from 'hono'
import { rateLimiter, type Store } from 'hono-rate-limiter'
import { SluiceStore } from 'sluice/hono-rate-limiter'
import { describe, expect, expectTypeOf, test } from 'vitest'
import { onEachStore, unreachableStore } from './each-store.ts'

type Options = { limit?: number; skipFailedRequests?: boolean; standardHeaders?: 'draft-6' | 'draft-7' }

function appWith(store: SluiceStore, options: Options = {}, status: 200 | 500 = 200) {
  const limiter = rateLimiter({
    windowMs: 60_000,
    limit: 2,
    keyGenerator: (c) => c.req.header('x-user') ?? '',
    store,
    ...options,
  })
  const app = new Hono().use(limiter).get('/', (c) => c.text('hello', status))
  return (user = 'alice') => app.request('/', { headers: { 'x-user': user } })
}

test('has the type of a Store', () => {
  expectTypeOf<SluiceStore>().toExtend<Store>()
})

onEachStore((bench) => {
  test('the limit applies per key, and again in the next window', async () => {
    const send = appWith(new SluiceStore({ store: bench.store }))
    const statuses = []
    for (const user of ['alice', 'alice', 'alice', 'bob']) statuses.push((await send(user)).status)
    expect(statuses).toEqual([200, 200, 429, 200])
    bench.clock.advanceMs(60_000)
    expect((await send()).status).toBe(200)
  })

  test.each([
    ['draft-6', 'ratelimit-remaining', /^1$/],
    ['draft-7', 'ratelimit', /^limit=2, remaining=1, reset=(60|59)$/],
  ] as const)('headers of %s tell the numbers', async (standardHeaders, header, value) => {
    const response = await appWith(new SluiceStore({ store: bench.store }), { standardHeaders })()
    expect(response.headers.get(header)).toMatch(value)
  })

  test('numeric keys are separate clients, and an invalid key fails only its own request', async () => {
    const store = new SluiceStore({ store: bench.another() })
    const keyGenerator = (c: Context) => JSON.parse(c.req.header('x-user') ?? '')
    const app = new Hono()
      .use(rateLimiter({ windowMs: 60_000, limit: 1, keyGenerator, store }))
      .get('/', (c) => c.text(''))
    app.onError((error, c) => c.text(error.message, 500))
    const users = ['1', '2', '["a","b"]', '3', '4', '1', 'null']
    const responses = await Promise.all(users.map((user) => app.request('/', { headers: { 'x-user': user } })))
    expect(responses.map(({ status }) => status)).toEqual([200, 200, 500, 200, 200, 429, 500])
    expect(await responses[2]?.text()).toMatch(/key: must be a string.*got a list of 2/)
  })

  test('processes that share the store share the limit', async () => {
    const senders = [1, 2, 3].map(() => appWith(new SluiceStore({ store: bench.another() }), { limit: 10 }))
    const responses = await Promise.all(Array.from({ length: 30 }, (_, call) => senders[call % 3]?.()))
    expect(responses.filter((response) => response?.status === 200)).toHaveLength(10)
  })

  test('skipFailedRequests returns hits', async () => {
    const store = new SluiceStore({ store: bench.store })
    const send = appWith(store, { skipFailedRequests: true }, 500)
    for (let call = 0; call < 4; call += 1) expect((await send()).status).toBe(500)
    expect(await store.get('alice')).toBeUndefined()
  })
})

describe('while the store is unreachable', () => {
  test('requests fail, because this library has no option for it', async () => {
    const { store, close } = unreachableStore()
    const app = new Hono()
    app.onError((error, c) => c.text(error.message, 503))
    app
      .use(rateLimiter({ keyGenerator: () => 'k', store: new SluiceStore({ store }) }))
      .get('/', (c) => c.text('hello'))
    const response = await app.request('/')
    expect([response.status, await response.text()]).toEqual([503, expect.stringContaining('STORE_UNAVAILABLE')])
    await close()
  })
})
