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

test('it is a Store', () => {
  expectTypeOf<SluiceStore>().toExtend<Store>()
})

onEachStore((bench) => {
  test('the limit holds for each key, and again in the next window', async () => {
    const ask = appWith(new SluiceStore({ store: bench.store }))
    const statuses = []
    for (const user of ['alice', 'alice', 'alice', 'bob']) statuses.push((await ask(user)).status)
    expect(statuses).toEqual([200, 200, 429, 200])
    bench.clock.advanceMs(60_000)
    expect((await ask()).status).toBe(200)
  })

  test.each([
    ['draft-6', 'ratelimit-remaining', /^1$/],
    ['draft-7', 'ratelimit', /^limit=2, remaining=1, reset=(60|59)$/],
  ] as const)('headers of %s tell the numbers', async (standardHeaders, header, value) => {
    const response = await appWith(new SluiceStore({ store: bench.store }), { standardHeaders })()
    expect(response.headers.get(header)).toMatch(value)
  })

  test('numeric keys are clients of their own, and a key that is no text fails its request alone', async () => {
    const store = new SluiceStore({ store: bench.another() })
    const keyGenerator = (c: Context) => JSON.parse(c.req.header('x-user') ?? '')
    const app = new Hono()
      .use(rateLimiter({ windowMs: 60_000, limit: 1, keyGenerator, store }))
      .get('/', (c) => c.text(''))
    app.onError((error, c) => c.text(error.message, 500))
    const users = ['1', '2', '["a","b"]', '3', '4', '1', 'null']
    const answers = await Promise.all(users.map((user) => app.request('/', { headers: { 'x-user': user } })))
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 500, 200, 200, 429, 500])
    expect(await answers[2]?.text()).toMatch(/key: must be a text.*got a list of 2/)
  })

  test('processes that share the store share the limit', async () => {
    const asks = [1, 2, 3].map(() => appWith(new SluiceStore({ store: bench.another() }), { limit: 10 }))
    const answers = await Promise.all(Array.from({ length: 30 }, (_, call) => asks[call % 3]?.()))
    expect(answers.filter((answer) => answer?.status === 200)).toHaveLength(10)
  })

  test('skipFailedRequests gives hits back', async () => {
    const store = new SluiceStore({ store: bench.store })
    const ask = appWith(store, { skipFailedRequests: true }, 500)
    for (let call = 0; call < 4; call += 1) expect((await ask()).status).toBe(500)
    expect(await store.get('alice')).toBeUndefined()
  })
})

describe('while the store is away', () => {
  test('the request fails: this library has no option for it', async () => {
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
