import rateLimit, { type FastifyRateLimitStoreCtor, type RateLimitPluginOptions } from '@fastify/rate-limit'
import Fastify, { type FastifyInstance, type FastifyRequest } from 'fastify'
import { storeClass } from 'sluice/fastify-rate-limit'
import { afterEach, describe, expect, expectTypeOf, test } from 'vitest'
import { onEachStore, unreachableStore } from './each-store.ts'

const apps: FastifyInstance[] = []
type Route = Record<string, unknown>

/** Routes by their path, with their own options; `false` leaves one out. */
async function appWith(options: RateLimitPluginOptions, routes: Record<string, Route | false> = { '/': {} }) {
  const app = Fastify()
  apps.push(app)
  await app.register(rateLimit, { max: 2, timeWindow: 60_000, ...options })
  for (const [path, own] of Object.entries(routes)) {
    const config = own === false || Object.keys(own).length > 0 ? { rateLimit: own } : {}
    app.get(path, { config }, async () => 'hello')
  }
  return async (path = '/', times = 1) => {
    const answers = []
    for (let call = 0; call < times; call += 1) answers.push(await app.inject(path))
    return answers
  }
}

const statuses = (answers: readonly { readonly statusCode: number }[]) => answers.map(({ statusCode }) => statusCode)

afterEach(async () => {
  for (const app of apps.splice(0)) await app.close()
})

test('it is a store class', () => {
  expectTypeOf(storeClass).returns.toExtend<FastifyRateLimitStoreCtor>()
})

onEachStore((bench) => {
  const store = () => storeClass({ store: bench.store })

  test('the limit holds, and again in the next window', async () => {
    const ask = await appWith({ store: store() })
    expect(statuses(await ask('/', 3))).toEqual([200, 200, 429])
    bench.clock.advanceMs(60_000)
    expect(statuses(await ask('/', 3))).toEqual([200, 200, 429])
  })

  test('headers tell the numbers and when the window ends', async () => {
    bench.clock.advanceMs(15_000)
    const [first, , third] = await (await appWith({ store: store() }))('/', 3)
    expect(first?.headers).toMatchObject({ 'x-ratelimit-limit': '2', 'x-ratelimit-remaining': '1' })
    expect(first?.headers['x-ratelimit-reset']).toBe('45')
    expect(third?.headers['retry-after']).toBe('45')
  })

  test('numeric keys are clients of their own, and a key that is no text fails its request alone', async () => {
    const keyGenerator = ({ query: { id, key } }: FastifyRequest<{ Querystring: Record<string, string> }>) =>
      (key ?? Number(id)) as string
    const ask = await appWith({
      max: 1,
      store: storeClass({ store: bench.another() }),
      keyGenerator: keyGenerator as never,
    })
    const paths = ['/?id=1', '/?id=2', '/?key=a&key=b', '/?id=3', '/?id=4', '/?id=1', '/?id=none']
    const answers = (await Promise.all(paths.map((path) => ask(path)))).flat()
    expect(statuses(answers)).toEqual([200, 200, 500, 200, 200, 429, 500])
    expect(answers[2]?.json()).toMatchObject({ message: expect.stringMatching(/key: must be a text.*got a list of 2/) })
  })

  test('processes that share the store share the limit', async () => {
    const asks = await Promise.all(
      [1, 2, 3].map(() => appWith({ max: 10, store: storeClass({ store: bench.another() }) })),
    )
    const answers = await Promise.all(Array.from({ length: 30 }, (_, call) => asks[call % 3]?.()))
    expect(statuses(answers.flatMap((answer) => answer ?? [])).filter((status) => status === 200)).toHaveLength(10)
  })

  test('a route with options of its own is counted apart, others together', async () => {
    const ask = await appWith({ store: store() }, { '/a': {}, '/b': {}, '/own': { max: 1, timeWindow: 60_000 } })
    expect(statuses([...(await ask('/a')), ...(await ask('/b')), ...(await ask('/a'))])).toEqual([200, 200, 429])
    expect(statuses(await ask('/own', 2))).toEqual([200, 429])
  })

  test('routes of one group are counted together', async () => {
    const group = { max: 2, timeWindow: 60_000, groupId: 'otp' }
    const ask = await appWith({ store: store() }, { '/send': group, '/resend': group, '/other': { max: 2 } })
    expect(statuses([...(await ask('/send')), ...(await ask('/resend', 2)), ...(await ask('/send'))])).toEqual([
      ...[200, 200, 429, 429],
    ])
    expect(statuses(await ask('/other'))).toEqual([200])
  })

  test('a limit and a window that depend on the request', async () => {
    const ask = await appWith({ store: store(), max: () => 1, timeWindow: () => 1000 })
    expect(statuses(await ask('/', 2))).toEqual([200, 429])
    bench.clock.advanceMs(1000)
    expect(statuses(await ask())).toEqual([200])
  })

  test('continueExceeding: each refused request keeps the client out for another whole window', async () => {
    const ask = await appWith({ store: store(), continueExceeding: true })
    expect(statuses(await ask('/', 3))).toEqual([200, 200, 429])
    bench.clock.advanceMs(59_000)
    const [late] = await ask()
    expect([late?.statusCode, late?.headers['retry-after']]).toEqual([429, '60'])
    bench.clock.advanceMs(59_000)
    expect(statuses(await ask())).toEqual([429])
    bench.clock.advanceMs(60_000)
    expect(statuses(await ask('/', 3))).toEqual([200, 200, 429])
  })

  test('ban: after so many refusals in a window it is 403', async () => {
    const ask = await appWith({ store: store(), ban: 1 })
    expect(statuses(await ask('/', 5))).toEqual([200, 200, 429, 403, 403])
  })

  test('limiters of createRateLimit with options of their own are counted apart', async () => {
    const app = Fastify()
    apps.push(app)
    await app.register(rateLimit, { global: false, timeWindow: 60_000, store: store() })
    const limiters = { login: app.createRateLimit({ max: 5 }), search: app.createRateLimit({ max: 9 }) }
    for (const [name, check] of Object.entries(limiters)) app.get(`/${name}`, async (request) => check(request))
    const remaining = async (path: string) => (await app.inject(path)).json<{ remaining: number }>().remaining
    expect([await remaining('/login'), await remaining('/search'), await remaining('/login')]).toEqual([4, 8, 3])
  })

  test('createRateLimit can look without counting', async () => {
    const app = Fastify()
    apps.push(app)
    await app.register(rateLimit, {
      global: false,
      max: 2,
      timeWindow: 60_000,
      continueExceeding: true,
      store: store(),
    })
    const check = app.createRateLimit()
    app.get('/look', async (request) => check(request, { increment: false }))
    app.get('/count', async (request) => check(request))
    const remaining = async (path: string) => (await app.inject(path)).json<{ remaining: number }>().remaining
    expect([await remaining('/look'), await remaining('/count'), await remaining('/look')]).toEqual([2, 1, 1])
    for (const _ of [2, 3]) await remaining('/count')
    bench.clock.advanceMs(59_000)
    expect((await app.inject('/look')).json()).toMatchObject({ isExceeded: true, ttl: 1000 })
  })
})

describe('while the store is away', () => {
  test.each([
    [false, 503],
    [true, 200],
  ])('skipOnError: %s answers %i', async (skipOnError, status) => {
    const { store, close } = unreachableStore()
    const ask = await appWith({ store: storeClass({ store }), skipOnError })
    expect(statuses(await ask('/', 2))).toEqual([status, status])
    await close()
  })
})

test('exponentialBackoff is refused rather than ignored', async () => {
  await expect(appWith({ store: storeClass(), exponentialBackoff: true })).rejects.toThrow(
    /OPTION_INVALID.*exponentialBackoff: leave it out/,
  )
})
