// Every guarantee of the middlewares × every published framework, over real HTTP servers.

import { get, type Server } from 'node:http'
import { connect } from 'node:net'
import { PassThrough } from 'node:stream'
import { createLimiter, memoryStore, type Store } from 'sluice'
import { fakeClock } from 'sluice/testing'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { manualTimers } from '../../src/testing/manual-timers.ts'
import { FRAMEWORKS, type Options, type Routes, stop, urlOf } from './frameworks.ts'

const CLOCK = { nowUs: () => 1_700_000_000_000_000 }
const ONE_A_DAY = { limit: 1, window: '1d' }
const hello = () => ({ status: 200, body: 'hello' })

const servers: Server[] = []

beforeEach(() => void vi.spyOn(process, 'emitWarning').mockImplementation(() => {}))
afterEach(async () => {
  vi.restoreAllMocks()
  for (const server of servers.splice(0)) await stop(server)
})

/** A store that always returns promises, as one over a network. */
function asynchronous(store: Store): Store {
  const { take, give, peek, reset, close } = store
  const bound = { give: give.bind(store), peek: peek.bind(store), reset: reset.bind(store), close: close.bind(store) }
  return { ...bound, take: async (charges) => take.call(store, charges) }
}

describe.each(FRAMEWORKS)('$name', ({ serve, headerOf, passesDecision, checksUnrouted, registersOptions }) => {
  const header = (name: string) => (request: unknown) => headerOf(request as never, name)

  async function start(limits: Options | readonly Options[], routes: Routes = {}) {
    const server = await serve(Array.isArray(limits) ? limits : [limits as Options], { '/hello': hello, ...routes })
    servers.push(server)
    const url = urlOf(server)
    const send = (path = '/hello', headers: Record<string, string> = {}) => fetch(url + path, { headers })
    const statuses = async (requests: readonly (readonly [string, Record<string, string>?])[]) => {
      const all: number[] = []
      for (const [path, headers] of requests) all.push((await send(path, headers)).status)
      return all
    }
    return { url, send, statuses }
  }

  describe('a response', () => {
    test.each([
      ['in this process', (store: Store) => store],
      ['elsewhere', asynchronous],
    ])('has headers if allowed and if refused, and a refusal explains itself; store %s', async (_where, wrap) => {
      const store = wrap(memoryStore({ clock: CLOCK }))
      const { send } = await start({ limit: 2, window: '1m', store, clock: CLOCK })
      const [first, second, third] = [await send(), await send(), await send()]
      expect([first.status, await first.text(), second.status, third.status]).toEqual([200, 'hello', 200, 429])
      expect(Object.fromEntries(first.headers)).toMatchObject({
        'x-ratelimit-limit': '2',
        'x-ratelimit-remaining': '1',
        'x-ratelimit-reset': '1700000030',
        'ratelimit-policy': '"default";q=2;w=60',
        ratelimit: '"default";r=1;t=30',
      })
      expect(first.headers.has('retry-after')).toBe(false)
      expect(third.headers.get('retry-after')).toBe('30')
      expect(third.headers.get('x-ratelimit-remaining')).toBe('0')
      expect(third.headers.get('content-type')).toMatch(/^application\/problem\+json\b/)
      expect(await third.json()).toMatchObject({
        status: 429,
        ...{ rule_id: 'default', violated_rule: 'default', violated_tier: 'per_ip', violated_limit: 'default' },
        ...{ retry_after: 30, retry_after_ms: 30_000, 'violated-policies': ['default'] },
      })
    })

    test('is text for clients that prefer it', async () => {
      const { send } = await start({ limit: 0, window: '1m' })
      const response = await send('/hello', { accept: 'text/html,*/*;q=0.8' })
      expect(response.headers.get('content-type')).toMatch(/^text\/plain\b/)
      expect(await response.text()).toMatch(/^Too many requests\. Refused by rule default \(per_ip\)\./)
    })

    test.each([
      ['a string', () => 'Slow down', /^text\/plain\b/, 'Slow down'],
      ['an object', () => ({ error: 'slow_down' }), /^application\/json\b/, '{"error":"slow_down"}'],
      ['a promise of a string', async () => 'Slow down', /^text\/plain\b/, 'Slow down'],
    ])('has the body that the application returns: %s', async (_what, refusal, type, body) => {
      const { send } = await start({ limit: 0, window: '1m', refusal })
      const response = await send()
      expect([response.status, await response.text()]).toEqual([429, body])
      expect(response.headers.get('content-type')).toMatch(type)
    })

    test('has the default body if the application returns none', async () => {
      const { send } = await start({ limit: 0, window: '1m', refusal: (() => undefined) as never })
      expect(await (await send()).json()).toMatchObject({ status: 429, rule_id: 'default' })
    })

    test.each([
      ['legacy', ['x-ratelimit-limit', 'x-ratelimit-remaining', 'x-ratelimit-reset']],
      ['draft-6', ['ratelimit-limit', 'ratelimit-remaining', 'ratelimit-reset']],
      ['draft-11', ['ratelimit', 'ratelimit-policy']],
      ['none', []],
    ] as const)('has the headers of the style %s', async (style, names) => {
      const { send } = await start({ ...ONE_A_DAY, headers: { style } })
      const [allowed, refused] = [await send(), await send()]
      const present = (response: Response) =>
        [...response.headers.keys()].filter((name) => /ratelimit/.test(name)).sort()
      expect([present(allowed), present(refused), refused.status]).toEqual([names, names, 429])
      expect(refused.headers.get('retry-after')).toMatch(/^86[34]\d\d$/)
    })

    test('has its headers even if the handler fails', async () => {
      const fail = () => {
        throw new Error('broken')
      }
      const { send } = await start({ limit: 5, window: '1m' }, { '/fail': fail })
      const response = await send('/fail')
      expect([response.status, response.headers.get('x-ratelimit-remaining')]).toEqual([500, '4'])
      expect(response.headers.get('ratelimit-policy')).toBe('"default";q=5;w=60')
    })

    test.skipIf(!passesDecision)('can be built from the decision, which handlers can read', async () => {
      const { send } = await start(
        { limit: 5, window: '1m' },
        { '/decision': (_path, decision) => ({ status: 200, body: JSON.stringify(decision) }) },
      )
      expect(await (await send('/decision')).json()).toMatchObject({ allowed: true, ruleId: 'default', remaining: 4 })
    })
  })

  describe('a request', () => {
    test('is counted per address or per key of the application, with the cost that it returns', async () => {
      const options = { key: header('x-user'), cost: (request: unknown) => Number(header('x-cost')(request) ?? 1) }
      const { statuses } = await start({ limit: 2, window: '1d', ...options })
      const [ada, bob] = [{ 'x-user': 'ada' }, { 'x-user': 'bob', 'x-cost': '2' }]
      const sequence = [['/hello', ada], ['/hello', ada], ['/hello', ada], ['/hello', bob], ['/hello', bob], ['/hello']]
      expect(await statuses(sequence as [string, Record<string, string>][])).toEqual([200, 200, 429, 200, 429, 200])
    })

    test('matches rules by path, method and every fact of the application', async () => {
      const rule = { limit: 0, window: '1m', scope: 'global' }
      const limiter = createLimiter({
        rules: [
          { ...rule, rule_id: 'plan', plan: 'free', when: { tenant: 'acme', api_key: 'k1', user: 'ada' } },
          { ...rule, rule_id: 'cost', limit: 5, endpoint_pattern: '/hello', method: 'GET', scope: 'per_user' },
          { ...rule, rule_id: 'header', when: { 'header.x-beta': 'yes' } },
        ],
      })
      const subject = async (request: unknown) => ({
        user: header('x-user')(request),
        apiKey: 'k1',
        tenant: 'acme',
        plan: header('x-plan')(request),
        cost: 3,
        ip: undefined,
      })
      const { statuses } = await start({ limiter, subject })
      expect(
        await statuses([
          ['/hello', { 'x-user': 'ada', 'x-plan': 'free' }],
          ['/hello', { 'x-user': 'ada', 'x-plan': 'pro' }],
          ['/hello', { 'x-user': 'ada', 'x-plan': 'pro' }],
          ['/hello', { 'x-user': 'bob', 'x-beta': 'yes' }],
          ['/hello', { 'x-user': 'bob' }],
        ]),
      ).toEqual([429, 200, 429, 429, 200])
    })

    test('that is skipped is not counted and has no headers', async () => {
      const { send, statuses } = await start({ ...ONE_A_DAY, skip: (request) => header('x-health')(request) === '1' })
      const skipped = await send('/hello', { 'x-health': '1' })
      expect([skipped.status, skipped.headers.has('ratelimit')]).toEqual([200, false])
      expect(await statuses([['/hello'], ['/hello']])).toEqual([200, 429])
    })

    test.skipIf(!checksUnrouted)('without a matching route counts too', async () => {
      const { statuses } = await start(ONE_A_DAY)
      expect(await statuses([['/nothing'], ['/hello']])).toEqual([404, 429])
    })

    test('whose facts cannot be read fails, neither allowed nor refused', async () => {
      const handled = vi.fn(hello)
      const subject = () => {
        throw new Error('no session')
      }
      const { send } = await start({ limiter: createLimiter({ rules: [] }), subject }, { '/handled': handled })
      expect((await send('/handled')).status).toBe(500)
      expect(handled).not.toHaveBeenCalled()
    })
  })

  describe('an exception', () => {
    const RULES = [{ rule_id: 'a', scope: 'per_ip', limit: 1, window: '1d' }]
    const bypass = (token: string) =>
      token === 'secret' ? { id: 't', rules: undefined, paths: undefined, limitPerMinute: 9 } : undefined

    test('a ban with status 403 is a problem document without rate limit headers', async () => {
      const limiter = createLimiter({ rules: RULES })
      const key = { ruleId: null, fact: 'ip', owner: '127.0.0.1', expiresAtMs: null }
      limiter.changeOverrides({ set: [{ id: 'o', ...key, effect: { ban: 403 } }] })
      const response = await (await start({ limiter })).send()
      expect([response.status, response.headers.has('ratelimit')]).toEqual([403, false])
      expect(response.headers.get('content-type')).toMatch(/^application\/problem\+json\b/)
      expect(await response.json()).toMatchObject({ title: 'Forbidden', status: 403, rule_id: 'a' })
    })

    test.each([
      [undefined, 'X-Sluice-Bypass', [200, 200, 200, 429]],
      ['X-Own', 'x-own', [200, 200, 200, 429]],
      [false, 'x-sluice-bypass', [200, 429, 429, 429]],
    ] as const)('a bypass token is read from its header: %s', async (bypassHeader, name, expected) => {
      const { statuses } = await start({ limiter: createLimiter({ rules: RULES, bypass }), bypassHeader })
      const sent = { [name]: 'secret' }
      expect(await statuses([['/hello', sent], ['/hello', sent], ['/hello'], ['/hello', { [name]: 'wrong' }]])).toEqual(
        expected,
      )
    })
  })

  describe('several middlewares', () => {
    test('append their policies, and report the scarcest numbers', async () => {
      const [day, hour] = [
        { limit: 10, window: '1d', name: 'day' },
        { limit: 2, window: '1h', name: 'hour' },
      ]
      for (const limits of [
        [day, hour],
        [hour, day],
      ]) {
        const { send } = await start(limits)
        const [first, second, third] = [await send(), await send(), await send()]
        expect(first.headers.get('ratelimit-policy')?.split(', ').sort()).toEqual([
          '"day";q=10;w=86400',
          '"hour";q=2;w=3600',
        ])
        expect(first.headers.get('ratelimit')?.split(', ')).toHaveLength(2)
        const legacy = [first, second, third].map((response) => [
          response.status,
          response.headers.get('x-ratelimit-limit'),
          response.headers.get('x-ratelimit-remaining'),
        ])
        expect(legacy).toEqual([
          [200, '2', '1'],
          [200, '2', '0'],
          [429, '2', '0'],
        ])
      }
    })

    test('are all or nothing if the first refunds 429', async () => {
      const outer = { limit: 3, window: '1d', name: 'outer', refund: [429] }
      const inner = { limit: 1, window: '1d', name: 'inner', key: header('x-user') }
      const { send, statuses } = await start([outer, inner])
      expect(await statuses(Array(3).fill(['/hello', { 'x-user': 'ada' }]))).toEqual([200, 429, 429])
      // The refund follows the end of the response, so the client may be earlier.
      await vi.waitFor(async () => expect((await send('/hello', { 'x-user': 'bob' })).status).toBe(200))
      const last = await send('/hello', { 'x-user': 'eve' })
      expect([last.status, last.headers.get('x-ratelimit-remaining')]).toEqual([200, '0'])
    })

    test.skipIf(registersOptions)('that are the same object count a request once', async () => {
      const limit = { limiter: createLimiter({ rules: [{ rule_id: 'a', scope: 'per_ip', limit: 2, window: '1d' }] }) }
      const { send, statuses } = await start([limit, limit])
      const first = await send()
      expect([first.headers.get('ratelimit-policy')?.split(', ').length, first.status]).toEqual([1, 200])
      expect(await statuses([['/hello'], ['/hello']])).toEqual([200, 429])
    })
  })

  describe('the address of a client', () => {
    const forwarded = (value: string) => ({ 'x-forwarded-for': value, forwarded: `for="${value}"` })

    test.each(['x-forwarded-for', 'forwarded'] as const)('is taken from trusted proxies only: %s', async (name) => {
      const sequence = ['192.0.2.1', '192.0.2.2', '192.0.2.1'].map((ip) => ['/hello', forwarded(ip)] as const)
      const trusting = await start({ ...ONE_A_DAY, trustProxy: ['127.0.0.0/8', '::1'], proxyHeader: name })
      expect(await trusting.statuses(sequence)).toEqual([200, 200, 429])
      const other = await start({ ...ONE_A_DAY, trustProxy: ['10.0.0.0/8'], proxyHeader: name })
      expect(await other.statuses(sequence)).toEqual([200, 429, 429])
    })
  })

  test('a leaky bucket delays requests until their turn', async () => {
    const timers = manualTimers()
    const after = vi.spyOn(timers, 'after')
    const handled = vi.fn(hello)
    const store = memoryStore({ clock: CLOCK })
    const { send } = await start(
      { limit: 10, window: '1s', burst: 2, algorithm: 'leaky_bucket', store, clock: CLOCK, timers },
      { '/handled': handled },
    )
    expect((await send('/handled')).status).toBe(200)
    const second = send('/handled')
    await expect.poll(() => after.mock.calls).toEqual([[100, expect.any(Function)]])
    expect(handled).toHaveBeenCalledTimes(1)
    timers.advance(100)
    expect((await second).status).toBe(200)
  })

  describe('a permit', () => {
    const streams: PassThrough[] = []
    const streaming: Routes = {
      '/stream': () => {
        const body = new PassThrough()
        body.write('first')
        streams.push(body)
        return { status: 200, body }
      },
    }
    const concurrency = { limit: 1, window: '9s', algorithm: 'concurrency' } as const

    beforeEach(() => void streams.splice(0))
    afterEach(() => {
      for (const stream of streams) stream.destroy()
    })

    test('is released when the response has ended', async () => {
      const { send } = await start(concurrency, streaming)
      const first = await send('/stream')
      expect((await send()).status).toBe(429)
      streams[0]?.end()
      expect(await first.text()).toBe('first')
      await expect.poll(async () => (await send()).status).toBe(200)
    })

    test('is released when the client disconnects', async () => {
      const { send, url } = await start(concurrency, streaming)
      const request = get(`${url}/stream`).on('error', () => {})
      await new Promise((answered) => request.on('response', answered))
      expect((await send()).status).toBe(429)
      request.destroy()
      await expect.poll(async () => (await send()).status).toBe(200)
    })

    test('is released when the client disconnects, also for pipelined requests', async () => {
      const { send, url } = await start({ ...concurrency, limit: 2 }, streaming)
      const socket = connect(Number(new URL(url).port), '127.0.0.1')
      socket.write(['/stream', '/hello'].map((path) => `GET ${path} HTTP/1.1\r\nHost: x\r\n\r\n`).join(''))
      const left = async () => (await send()).headers.get('x-ratelimit-remaining')
      await expect.poll(left).toBe('0')
      socket.destroy()
      await expect.poll(left).toBe('1')
    })

    test('is released after HEAD, whose body is never read', async () => {
      const { send, url } = await start(concurrency)
      expect((await fetch(`${url}/hello`, { method: 'HEAD' })).status).toBe(200)
      await expect.poll(async () => (await send()).status).toBe(200)
    })

    test('is renewed while the response streams, and ends with it', async () => {
      const clock = fakeClock()
      const timers = manualTimers()
      const store = memoryStore({ clock })
      const { send } = await start({ ...concurrency, store, timers }, streaming)
      const first = await send('/stream')
      for (let third = 0; third < 6; third += 1) {
        clock.advanceUs(3_000_000)
        timers.advance(3000)
        expect((await send()).status).toBe(429)
      }
      streams[0]?.end()
      await first.text()
      await expect.poll(async () => (await send()).status).toBe(200)
    })
  })

  test('refunded statuses refund their requests, others do not', async () => {
    const { statuses } = await start(
      { ...ONE_A_DAY, refund: ['5xx', 404] },
      { '/status/:code': (path) => ({ status: Number(path.split('/').at(-1)), body: '' }) },
    )
    const statusOf = async (path: string) => (await statuses([[path]]))[0]
    // The refund starts when the response ends, and may finish after the client has received it.
    const settled = (path: string, status: number) => expect.poll(() => statusOf(path)).toBe(status)
    await settled('/status/503', 503)
    await settled('/status/404', 404)
    await settled('/status/201', 201)
    expect(await statusOf('/hello')).toBe(429)
  })
})
