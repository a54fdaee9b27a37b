// Programming mistakes: each is rejected where it is made, with an error that names the option and the fix. No error
// contains a possible secret.

import { createServer } from 'node:http'
import { inspect } from 'node:util'
import express from 'express'
import fastify from 'fastify'
import * as flexible from 'rate-limiter-flexible'
import { createLimiter, type LimiterError, memoryStore, parseRules, type Subject } from 'sluice'
import { politeFetch } from 'sluice/client'
import { rateLimit as expressLimit } from 'sluice/express'
import { SluiceStore } from 'sluice/express-rate-limit'
import { rateLimit as fastifyLimit } from 'sluice/fastify'
import { storeClass } from 'sluice/fastify-rate-limit'
import { rateLimit as fetchLimit } from 'sluice/fetch'
import { rateLimit as honoLimit } from 'sluice/hono'
import { rateLimit as koaLimit } from 'sluice/koa'
import { rateLimit as nestLimit } from 'sluice/nest'
import { SluiceThrottlerStorage } from 'sluice/nestjs-throttler'
import { rateLimit as nodeLimit } from 'sluice/node'
import { limiterClass } from 'sluice/rate-limiter-flexible'
import { redisStore } from 'sluice/redis'
import { regionStore } from 'sluice/regions'
import { describe, expect, test } from 'vitest'
import { thrownBy } from './limiter-fixture.ts'

const CANARY = 'hunter2-canary'
const URL_WITH_PASSWORD = `redis://:${CANARY}@127.0.0.1:6379`
const RULES = [{ rule_id: 'a', scope: 'per_user', limit: 10, window: '1m' }]
const ONE = { limit: 1, window: '1s' }

/** Calls a function with arguments that its types forbid. */
const loose = (call: unknown, ...args: unknown[]) => (call as (...args: unknown[]) => unknown)(...args)
const made = (Class: unknown, ...args: unknown[]) => new (Class as new (...args: unknown[]) => unknown)(...args)

describe('a mistyped fact of a subject is rejected by every method, with a suggestion', () => {
  const limiter = createLimiter({ rules: RULES })

  test.each<[object, string, string]>([
    [{ userId: 'ada' }, 'subject.userId', 'did you mean "user"?'],
    [{ client_id: 'ada' }, 'subject.client_id', 'did you mean "user"?'],
    [{ ip_address: '192.0.2.1' }, 'subject.ip_address', 'did you mean "ip"?'],
    [{ tenant_id: 'a' }, 'subject.tenant_id', 'did you mean "tenant"?'],
    [{ points: 2 }, 'subject.points', 'did you mean "cost"?'],
    [{ user: 'ada', api_key: 'x' }, 'subject.api_key', 'did you mean "apiKey"?'],
    [{ user: 'ada', endpoint: '/' }, 'subject.endpoint', 'did you mean "path"?'],
    [{ user: 'ada', plann: 'pro' }, 'subject.plann', 'did you mean "plan"?'],
    [{ user: 'ada', country: 'ch' }, 'subject.country', 'put it into "attributes"'],
    [{ userId: undefined }, 'subject.userId', 'did you mean "user"?'],
    [Object.create({ userId: 'ada' }), 'subject.userId', 'did you mean "user"?'],
  ])('%j', async (given, field, fix) => {
    const subject = given as Subject
    // Repeated, because paths and plans of earlier checks are cached.
    for (let call = 0; call < 1000; call += 1) expect(() => limiter.checkSync(subject)).toThrow(field)
    const verbs = [limiter.check(subject), limiter.peek(subject), limiter.explain(subject)]
    for (const pending of verbs) {
      const error = (await pending.catch((reason: unknown) => reason)) as LimiterError
      expect(error).toMatchObject({ code: 'OPTION_INVALID', status: 500, fieldErrors: [{ field }] })
      expect(error.message).toContain(fix)
    }
  })
})

describe('an unknown option is rejected, with the nearest known name', () => {
  const redis = { duplicate: () => redis, status: 'ready', call: () => {}, on: () => {}, connect: async () => {} }

  test.each<[string, () => unknown, string, string]>([
    ['createLimiter', () => loose(createLimiter, { rules: [], stroe: memoryStore() }), 'stroe', '"store"'],
    ['memoryStore', () => loose(memoryStore, { maxKey: 10 }), 'maxKey', '"maxKeys"'],
    ['redisStore', () => loose(redisStore, redis, { prefx: 'a' }), 'prefx', '"prefix"'],
    ['regionStore', () => loose(regionStore, { nme: 'eu' }), 'nme', '"name"'],
    ['politeFetch', () => loose(politeFetch, { budgetms: 1 }), 'budgetms', '"budgetMs"'],
    ['express-rate-limit', () => made(SluiceStore, { stor: 1 }), 'stor', '"store"'],
    ['nestjs-throttler', () => made(SluiceThrottlerStorage, { prefx: 1 }), 'prefx', '"prefix"'],
    ['fastify-rate-limit', () => made(loose(storeClass, { stor: 1 }), {}), 'stor', '"store"'],
    ['middleware', () => loose(expressLimit, { ...ONE, algoritm: 'x' }), 'algoritm', '"algorithm"'],
    ['middleware', () => loose(honoLimit, { ...ONE, headers: { styl: 'none' } }), 'headers.styl', '"style"'],
    [
      'middleware',
      () => loose(fetchLimit, { limiter: createLimiter({ rules: [] }), subjet: 1 }),
      'subjet',
      '"subject"',
    ],
  ])('%s', (_, make, field, meant) => {
    const error = thrownBy(make) as LimiterError
    expect(error).toMatchObject({ code: 'OPTION_INVALID', status: 500, fieldErrors: [{ field }] })
    expect(error.message).toContain(`did you mean ${meant}?`)
  })
})

describe('mixed forms, and options of another function, are rejected with the form to use', () => {
  const limiter = createLimiter({ rules: [] })
  const redis = { duplicate: () => redis, status: 'ready', call: () => {}, on: () => {}, connect: async () => {} }
  const store = memoryStore()
  const SluiceLimiter = limiterClass(flexible)

  test.each<[string, () => unknown, string[], string]>([
    ['limiter and limit', () => loose(expressLimit, { limiter, ...ONE }), ['limit', 'window'], 'remove it: the rules'],
    ['limiter and key', () => loose(honoLimit, { limiter, key: () => 'a' }), ['key'], 'remove it: the rules'],
    ['limit and subject', () => loose(koaLimit, { ...ONE, subject: () => ({}) }), ['subject'], '{ limiter }'],
    ['SluiceStore(store)', () => made(SluiceStore, store), ['options'], 'is a store: pass { store }'],
    ['SluiceStore(redisStore)', () => made(SluiceStore, loose(redisStore, redis)), ['options'], 'pass { store }'],
    ['SluiceStore(client)', () => made(SluiceStore, redis), ['options'], 'pass { store: redisStore(client) }'],
    ['storage(store)', () => made(SluiceThrottlerStorage, store), ['options'], 'is a store: pass { store }'],
    ['storeClass(store)', () => loose(storeClass, store), ['options'], 'is a store: pass { store }'],
    ['SluiceLimiter(store)', () => made(SluiceLimiter, store), ['options'], 'is a store: pass { store }'],
    ['createServer(rateLimit())', () => loose(nodeLimit(ONE), { url: '/' }), ['listener'], 'pass your listener'],
    [
      'Deno.serve(rateLimit())',
      () => loose(fetchLimit(ONE), new Request('http://a/')),
      ['handler'],
      'pass your handler',
    ],
  ])('%s', (_, make, fields, fix) => {
    const error = thrownBy(make) as LimiterError
    expect(error.code).toBe('OPTION_INVALID')
    expect(error.fieldErrors.map(({ field }) => field)).toEqual(fields)
    expect(error.message).toContain(fix)
    expect(error.message).not.toContain('did you mean')
  })

  test('app.register(rateLimit) of Fastify names the plugin', () => {
    const error = thrownBy(() => loose(fastifyLimit, fastify(), ONE)) as LimiterError
    expect(error).toMatchObject({ code: 'OPTION_INVALID', fieldErrors: [{ field: 'options' }] })
    expect(error.message).toContain('app.register(rateLimitPlugin, { limit, window })')
  })
})

describe('a value of the wrong type is rejected where it is passed, with the option and the fix', () => {
  test.each<[string, () => unknown, string, string]>([
    ['createLimiter()', () => loose(createLimiter), 'options', '{ rules: […] }'],
    ['createLimiter(rules)', () => loose(createLimiter, RULES), 'options', '{ rules: […] }'],
    ['a URL for a store', () => loose(createLimiter, { rules: [], store: URL_WITH_PASSWORD }), 'store', 'redisStore'],
    [
      'a client for a store',
      () => loose(createLimiter, { rules: [], store: { duplicate() {} } }),
      'store',
      'wrap the client: redisStore(client)',
    ],
    ['version', () => loose(createLimiter, { rules: [], version: '1' }), 'version', 'whole number'],
    ['clock', () => loose(createLimiter, { rules: [], clock: Date }), 'clock', 'nowUs'],
    ['redisStore(url)', () => loose(redisStore, URL_WITH_PASSWORD), 'client', 'new Redis(url)'],
    ['redisStore()', () => loose(redisStore), 'client', 'new Redis(url)'],
    ['redisStore({ url })', () => loose(redisStore, { url: URL_WITH_PASSWORD }), 'client', 'new Redis(url)'],
    ['memoryStore(10)', () => loose(memoryStore, 10), 'options', '{ maxKeys }'],
    ['limit: "100"', () => loose(expressLimit, { limit: '100', window: '1m' }), 'limit', 'whole number'],
    ['window: 60', () => loose(expressLimit, { limit: 1, window: 60 }), 'window', '"60s" for seconds, "60ms"'],
    ['rateLimit()', () => loose(expressLimit), 'options', '{ limit, window }'],
    ['rateLimit() for fetch', () => loose(fetchLimit), 'options', '{ limit, window }'],
    ['a URL for a store', () => loose(expressLimit, { ...ONE, store: URL_WITH_PASSWORD }), 'store', 'redisStore'],
  ])('%s', (_, make, field, fix) => {
    const error = thrownBy(make) as LimiterError
    expect(error).toMatchObject({ code: 'OPTION_INVALID', status: 500, fieldErrors: [{ field }] })
    expect(error.message).toContain(fix)
    expect(inspect(error, { depth: 9 })).not.toContain(CANARY)
  })

  test('a window of 60 is rejected in rules for the same reason', () => {
    expect(() => parseRules([{ rule_id: 'a', limit: 1, window: 60 }])).toThrow('"60s" for seconds, "60ms"')
  })
})

describe("an invalid result of an application's callback is the application's error, not the client's", () => {
  const limiter = createLimiter({ rules: [...RULES, { ...RULES[0], rule_id: 'b', scope: 'per_ip' }] })
  const request = () => new Request('http://localhost/')

  test.each<[string, object, string]>([
    ['key: a number', { ...ONE, key: () => 7 }, 'key: '],
    ['key: a list', { ...ONE, key: () => ['a', 'b'] }, 'key: '],
    ['key: a promise', { ...ONE, key: async () => 'ada' }, 'key: '],
    ['cost: a text', { ...ONE, cost: () => '5' }, 'cost: '],
    ['cost: NaN', { ...ONE, cost: () => Number.NaN }, 'cost: '],
    ['ip: no address', { ...ONE, ip: () => 'localhost' }, 'ip: '],
    ['subject: a typo', { limiter, subject: () => ({ client_id: 'ada' }) }, 'subject.client_id: '],
    ['subject: a typo, promised', { limiter, subject: async () => ({ userId: 'ada' }) }, 'subject.userId: '],
    ['subject: a number', { limiter, subject: () => ({ user: 7 }) }, 'subject.user: '],
    ['subject: a cost of 0', { limiter, subject: () => ({ cost: 0 }) }, 'subject.cost: '],
    ['subject: no address', { limiter, subject: () => ({ ip: 'localhost' }) }, 'subject.ip: '],
    ['subject: attributes', { limiter, subject: () => ({ attributes: { a: {} } }) }, 'subject.attributes.a: '],
    ['subject: a text', { limiter, subject: () => 'ada' }, 'subject: '],
  ])('%s', async (_, options, field) => {
    const handle = (loose(fetchLimit, { ip: () => '192.0.2.1', ...options }) as ReturnType<typeof fetchLimit>)(
      () => new Response('ok'),
    )
    const error = await handle(request()).catch((reason: unknown) => reason)
    expect(error).toMatchObject({ code: 'OPTION_INVALID', status: 500, message: expect.stringContaining(field) })
  })

  test("a key that is too long is the client's error", async () => {
    const handle = fetchLimit({ ...ONE, ip: () => '192.0.2.1', key: () => 'x'.repeat(2000) })(() => new Response('ok'))
    await expect(handle(request())).rejects.toMatchObject({ code: 'SUBJECT_INVALID', status: 400 })
  })
})

describe("no error contains a header, a client's fact or an option that may be secret", () => {
  const req = { method: 'GET', url: '/', headers: { authorization: `Bearer ${CANARY}` }, socket: {} }

  test.each<[string, unknown, object]>([
    ['express', expressLimit, req],
    ['fastify', fastifyLimit, { raw: req, headers: req.headers, method: 'GET', url: '/' }],
    ['koa', koaLimit, { req, res: {}, request: req, state: {} }],
    ['hono', honoLimit, { req: { raw: req } }],
    ['nest', nestLimit, req],
    ['node', nodeLimit, req],
    ['fetch', fetchLimit, new Request('http://localhost/', { headers: req.headers })],
  ])('%s: rateLimit registered without being called', (_, rateLimit, request) => {
    const error = thrownBy(() => loose(rateLimit, request, {}, () => {})) as LimiterError
    expect(error.message).toContain('call rateLimit when you register it')
    expect(inspect(error, { depth: 9 })).not.toContain(CANARY)
  })

  test.each<[string, () => unknown]>([
    ['an unknown option', () => loose(createLimiter, { rules: [], redis: URL_WITH_PASSWORD })],
    ['an unknown option', () => loose(expressLimit, { ...ONE, redis: URL_WITH_PASSWORD })],
    ['an unknown option', () => loose(redisStore, { duplicate() {} }, { password: CANARY })],
    ['an unknown option', () => made(SluiceStore, { client: CANARY })],
    ['keySecret', () => loose(redisStore, { duplicate() {} }, { keySecret: { current: CANARY } })],
    ['rules', () => loose(createLimiter, { rules: { PASSWORD: CANARY } })],
    ['rules', () => loose(createLimiter, { rules: URL_WITH_PASSWORD })],
    ['a field beside the rules', () => parseRules({ rules: [], redis: URL_WITH_PASSWORD })],
    ['key', () => loose(expressLimit, { ...ONE, key: CANARY })],
    ['refusal', () => loose(expressLimit, { ...ONE, refusal: { secret: CANARY } })],
    ['headers', () => loose(expressLimit, { ...ONE, headers: CANARY })],
    ['an unknown fact', () => createLimiter({ rules: RULES }).checkSync({ token: CANARY } as Subject)],
    ['a fact', () => createLimiter({ rules: RULES }).checkSync({ user: { session: CANARY } as unknown as string })],
    ['a long fact', () => createLimiter({ rules: RULES }).checkSync({ user: `${CANARY}${'x'.repeat(2000)}` })],
    [
      'a header that carries the cost',
      () =>
        createLimiter({ rules: [{ ...RULES[0], cost: 'header.authorization' }] }).checkSync({
          user: 'ada',
          attributes: { 'header.authorization': CANARY },
        }),
    ],
  ])('%s: %#', (_, make) => {
    expect(inspect(thrownBy(make), { depth: 9 })).not.toContain(CANARY)
  })

  test.each<[string, unknown, object, string]>([
    ['node', nodeLimit, { method: 'GET', url: '/' }, 'createServer(rateLimit({ limit, window })(listener))'],
    ['fetch', fetchLimit, new Request('http://a/'), 'fetch: rateLimit({ limit, window })(handler)'],
    ['fastify', fastifyLimit, { raw: {} }, "app.addHook('onRequest', rateLimit({ limit, window }))"],
    ['nest', nestLimit, { method: 'GET', url: '/' }, 'app.useGlobalGuards(rateLimit({ limit, window }))'],
    ['koa', koaLimit, { req: {} }, 'app.use(rateLimit({ limit, window }))'],
  ])('the error of an uncalled rateLimit shows the call for %s', (_, limit, request, call) => {
    expect((thrownBy(() => loose(limit, request)) as LimiterError).message).toContain(`as in ${call} (`)
  })

  test('over HTTP: app.use(rateLimit) responds with 500; neither response nor error contains the header', async () => {
    const app = express()
    const errors: unknown[] = []
    app.use(expressLimit as unknown as express.RequestHandler)
    app.use((error: unknown, _req: express.Request, res: express.Response, _next: express.NextFunction) => {
      errors.push(error)
      res.status((error as LimiterError).status).send(String(error))
    })
    const server = createServer(app).listen(0)
    const { port } = server.address() as { port: number }
    const answer = await fetch(`http://127.0.0.1:${port}/`, { headers: { authorization: `Bearer ${CANARY}` } })
    const text = await answer.text()
    server.close()
    expect([answer.status, errors.length]).toEqual([500, 1])
    expect(text).toContain('app.use(rateLimit({ limit, window }))')
    expect(text + inspect(errors, { depth: 9 })).not.toContain(CANARY)
  })
})
