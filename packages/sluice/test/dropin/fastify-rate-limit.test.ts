import rateLimit, { type FastifyRateLimitStoreCtor, type RateLimitPluginOptions } from '@fastify/rate-limit'
import Fastify, { type FastifyInstance, type FastifyRequest } from 'fastify'
import { storeClass } from 'sluice/fastify-rate-limit'
import { afterEach, describe, expect, expectTypeOf, test } from 'vitest'
import { onEachStore, unreachableStore } from './each-store.ts'

const apps: FastifyInstance[] = []
type Route = Record<string, unknown>

/** Options of routes by path; `false` disables the limit of a route. */
async function appWith(options: RateLimitPluginOptions, routes: Record<string, Route | false> = { '/': {} }) {
  const app = Fastify()
  apps.push(app)
  await app.register(rateLimit, { max: 2, timeWindow: 60_000, ...options })
  for (const [path, own] of Object.entries(routes)) {
    const config = own === false || Object.keys(own).length > 0 ? { rateLimit: own } : {}
    app.get(path, { config }, async () => 'hello')
  }
  return async (path = '/', times = 1) => {
    const responses = []
    for (let call = 0; call < times; call += 1) responses.push(await app.inject(path))
    return responses
  }
}

const statuses = (responses: readonly { readonly statusCode: number }[]) =>
  responses.map(({ statusCode }) => statusCode)

afterEach(async () => {
  for (const app of apps.splice(0)) await app.close()
})

test('has the type of a store class', () => {
  expectTypeOf(storeClass).returns.toExtend<FastifyRateLimitStoreCtor>()
})

onEachStore((bench) => {
  const store = () => storeClass({ store: bench.store })

  test('the limit applies, and again in the next window', async () => {
    const send = await appWith({ store: store() })
    expect(statuses(await send('/', 3))).toEqual([200, 200, 429])
    bench.clock.advanceMs(60_000)
    expect(statuses(await send('/', 3))).toEqual([200, 200, 429])
  })

  test('headers report the numbers and the end of the window', async () => {
    bench.clock.advanceMs(15_000)
    const [first, , third] = await (await appWith({ store: store() }))('/', 3)
    expect(first?.headers).toMatchObject({ 'x-ratelimit-limit': '2', 'x-ratelimit-remaining': '1' })
    expect(first?.headers['x-ratelimit-reset']).toBe('45')
    expect(third?.headers['retry-after']).toBe('45')
  })

  test('numeric keys are separate clients, and an invalid key fails only its own request', async () => {
    const keyGenerator = ({ query: { id, key } }: FastifyRequest<{ Querystring: Record<string, string> }>) =>
      (key ?? Number(id)) as string
    const send = await appWith({
      max: 1,
      store: storeClass({ store: bench.another() }),
      keyGenerator: keyGenerator as never,
    })
    const paths = ['/?id=1', '/?id=2', '/?key=a&key=b', '/?id=3', '/?id=4', '/?id=1', '/?id=none']
    const responses = (await Promise.all(paths.map((path) => send(path)))).flat()
    expect(statuses(responses)).toEqual([200, 200, 500, 200, 200, 429, 500])
    expect(responses[2]?.json()).toMatchObject({
      message: expect.stringMatching(/key: must be a string.*got a list of 2/),
    })
  })

  test('processes that share the store share the limit', async () => {
    const senders = await Promise.all(
      [1, 2, 3].map(() => appWith({ max: 10, store: storeClass({ store: bench.another() }) })),
    )
    const responses = await Promise.all(Array.from({ length: 30 }, (_, call) => senders[call % 3]?.()))
    expect(statuses(responses.flatMap((response) => response ?? [])).filter((status) => status === 200)).toHaveLength(
      10,
    )
  })

  test('a route with its own options is counted separately, the others together', async () => {
    const send = await appWith({ store: store() }, { '/a': {}, '/b': {}, '/own': { max: 1, timeWindow: 60_000 } })
    expect(statuses([...(await send('/a')), ...(await send('/b')), ...(await send('/a'))])).toEqual([200, 200, 429])
    expect(statuses(await send('/own', 2))).toEqual([200, 429])
  })

  test('routes of one group are counted together', async () => {
    const group = { max: 2, timeWindow: 60_000, groupId: 'otp' }
    const send = await appWith({ store: store() }, { '/send': group, '/resend': group, '/other': { max: 2 } })
    expect(statuses([...(await send('/send')), ...(await send('/resend', 2)), ...(await send('/send'))])).toEqual([
      ...[200, 200, 429, 429],
    ])
    expect(statuses(await send('/other'))).toEqual([200])
  })

  test('limit and window may depend on the request', async () => {
    const send = await appWith({ store: store(), max: () => 1, timeWindow: () => 1000 })
    expect(statuses(await send('/', 2))).toEqual([200, 429])
    bench.clock.advanceMs(1000)
    expect(statuses(await send())).toEqual([200])
  })

  test('continueExceeding: each refused request blocks the client for another full window', async () => {
    const send = await appWith({ store: store(), continueExceeding: true })
    expect(statuses(await send('/', 3))).toEqual([200, 200, 429])
    bench.clock.advanceMs(59_000)
    const [late] = await send()
    expect([late?.statusCode, late?.headers['retry-after']]).toEqual([429, '60'])
    bench.clock.advanceMs(59_000)
    expect(statuses(await send())).toEqual([429])
    bench.clock.advanceMs(60_000)
    expect(statuses(await send('/', 3))).toEqual([200, 200, 429])
  })

  test('ban: the configured number of refusals in a window leads to a 403', async () => {
    const send = await appWith({ store: store(), ban: 1 })
    expect(statuses(await send('/', 5))).toEqual([200, 200, 429, 403, 403])
  })

  test('limiters of createRateLimit with different options are counted separately', async () => {
    const app = Fastify()
    apps.push(app)
    await app.register(rateLimit, { global: false, timeWindow: 60_000, store: store() })
    const limiters = { login: app.createRateLimit({ max: 5 }), search: app.createRateLimit({ max: 9 }) }
    for (const [name, check] of Object.entries(limiters)) app.get(`/${name}`, async (request) => check(request))
    const remaining = async (path: string) => (await app.inject(path)).json<{ remaining: number }>().remaining
    expect([await remaining('/login'), await remaining('/search'), await remaining('/login')]).toEqual([4, 8, 3])
  })

  test('createRateLimit can check without counting', async () => {
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

describe('while the store is unreachable', () => {
  test.each([
    [false, 503],
    [true, 200],
  ])('skipOnError: %s: status %i', async (skipOnError, status) => {
    const { store, close } = unreachableStore()
    const send = await appWith({ store: storeClass({ store }), skipOnError })
    expect(statuses(await send('/', 2))).toEqual([status, status])
    await close()
  })
})

test('exponentialBackoff is rejected', async () => {
  await expect(appWith({ store: storeClass(), exponentialBackoff: true })).rejects.toThrow(
    /OPTION_INVALID.*exponentialBackoff: remove it/,
  )
})
