// Every guarantee of the middlewares × every framework, over real HTTP servers with the frameworks as they are
// published.

import { get, type Server } from 'node:http'
import { connect } from 'node:net'
import { PassThrough } from 'node:stream'
import { createLimiter, memoryStore, type Store } from 'sluice'
import { fakeClock } from 'sluice/testing'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { handTimers } from '../../src/testing/hand-timers.ts'
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

/** A store that never answers at once, as one over a network. */
function distant(store: Store): Store {
  const { take, give, peek, reset, close } = store
  const bound = { give: give.bind(store), peek: peek.bind(store), reset: reset.bind(store), close: close.bind(store) }
  return { ...bound, take: async (asked) => take.call(store, asked) }
}

describe.each(FRAMEWORKS)('$name', ({ serve, headerOf, tells, judgesUnrouted, registersOptions }) => {
  const header = (name: string) => (request: unknown) => headerOf(request as never, name)

  async function start(limits: Options | readonly Options[], routes: Routes = {}) {
    const server = await serve(Array.isArray(limits) ? limits : [limits as Options], { '/hello': hello, ...routes })
    servers.push(server)
    const url = urlOf(server)
    const ask = (path = '/hello', headers: Record<string, string> = {}) => fetch(url + path, { headers })
    const statuses = async (requests: readonly (readonly [string, Record<string, string>?])[]) => {
      const all: number[] = []
      for (const [path, headers] of requests) all.push((await ask(path, headers)).status)
      return all
    }
    return { url, ask, statuses }
  }

  describe('an answer', () => {
    test.each([
      ['in this process', (store: Store) => store],
      ['elsewhere', distant],
    ])(
      'has headers when allowed and when refused, and a refusal explains itself; counters %s',
      async (_where, kept) => {
        const store = kept(memoryStore({ clock: CLOCK }))
        const { ask } = await start({ limit: 2, window: '1m', store, clock: CLOCK })
        const [first, second, third] = [await ask(), await ask(), await ask()]
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
          rule_id: 'default',
          retry_after: 30,
          'violated-policies': ['default'],
        })
      },
    )

    test('is a text for clients that would rather read one', async () => {
      const { ask } = await start({ limit: 0, window: '1m' })
      const response = await ask('/hello', { accept: 'text/html,*/*;q=0.8' })
      expect(response.headers.get('content-type')).toMatch(/^text\/plain\b/)
      expect(await response.text()).toMatch(/^Too many requests\. Refused by rule default\./)
    })

    test.each([
      ['a text', () => 'Slow down', /^text\/plain\b/, 'Slow down'],
      ['an object', () => ({ error: 'slow_down' }), /^application\/json\b/, '{"error":"slow_down"}'],
      ['a text, later', async () => 'Slow down', /^text\/plain\b/, 'Slow down'],
    ])('says what the application wants it to say: %s', async (_what, refusal, type, body) => {
      const { ask } = await start({ limit: 0, window: '1m', refusal })
      const response = await ask()
      expect([response.status, await response.text()]).toEqual([429, body])
      expect(response.headers.get('content-type')).toMatch(type)
    })

    test('is the usual one when the application has nothing to say', async () => {
      const { ask } = await start({ limit: 0, window: '1m', refusal: (() => undefined) as never })
      expect(await (await ask()).json()).toMatchObject({ status: 429, rule_id: 'default' })
    })

    test.each([
      ['legacy', ['x-ratelimit-limit', 'x-ratelimit-remaining', 'x-ratelimit-reset']],
      ['draft-6', ['ratelimit-limit', 'ratelimit-remaining', 'ratelimit-reset']],
      ['draft-11', ['ratelimit', 'ratelimit-policy']],
      ['none', []],
    ] as const)('has the headers of the style %s', async (style, names) => {
      const { ask } = await start({ ...ONE_A_DAY, headers: { style } })
      const [allowed, refused] = [await ask(), await ask()]
      const told = (response: Response) => [...response.headers.keys()].filter((name) => /ratelimit/.test(name)).sort()
      expect([told(allowed), told(refused), refused.status]).toEqual([names, names, 429])
      expect(refused.headers.get('retry-after')).toBe('86400')
    })

    test('has its headers also when the handler fails', async () => {
      const fail = () => {
        throw new Error('broken')
      }
      const { ask } = await start({ limit: 5, window: '1m' }, { '/fail': fail })
      const response = await ask('/fail')
      expect([response.status, response.headers.get('x-ratelimit-remaining')]).toEqual([500, '4'])
      expect(response.headers.get('ratelimit-policy')).toBe('"default";q=5;w=60')
    })

    test.skipIf(!tells)('of the limiter is known to handlers', async () => {
      const { ask } = await start(
        { limit: 5, window: '1m' },
        { '/decision': (_path, decision) => ({ status: 200, body: JSON.stringify(decision) }) },
      )
      expect(await (await ask('/decision')).json()).toMatchObject({ allowed: true, ruleId: 'default', remaining: 4 })
    })
  })

  describe('a request', () => {
    test('is known by address, or by a key of the application, and costs what that says', async () => {
      const options = { key: header('x-user'), cost: (request: unknown) => Number(header('x-cost')(request) ?? 1) }
      const { statuses } = await start({ limit: 2, window: '1d', ...options })
      const [ada, bob] = [{ 'x-user': 'ada' }, { 'x-user': 'bob', 'x-cost': '2' }]
      const asked = [['/hello', ada], ['/hello', ada], ['/hello', ada], ['/hello', bob], ['/hello', bob], ['/hello']]
      expect(await statuses(asked as [string, Record<string, string>][])).toEqual([200, 200, 429, 200, 429, 200])
    })

    test('meets the rules of a limiter by path, method and every fact that the application tells', async () => {
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

    test('that is skipped is neither counted nor told', async () => {
      const { ask, statuses } = await start({ ...ONE_A_DAY, skip: (request) => header('x-health')(request) === '1' })
      const skipped = await ask('/hello', { 'x-health': '1' })
      expect([skipped.status, skipped.headers.has('ratelimit')]).toEqual([200, false])
      expect(await statuses([['/hello'], ['/hello']])).toEqual([200, 429])
    })

    test.skipIf(!judgesUnrouted)('that no route is for counts too', async () => {
      const { statuses } = await start(ONE_A_DAY)
      expect(await statuses([['/nothing'], ['/hello']])).toEqual([404, 429])
    })

    test('whose facts cannot be read is an error, and neither admitted nor refused', async () => {
      const handled = vi.fn(hello)
      const subject = () => {
        throw new Error('no session')
      }
      const { ask } = await start({ limiter: createLimiter({ rules: [] }), subject }, { '/handled': handled })
      expect((await ask('/handled')).status).toBe(500)
      expect(handled).not.toHaveBeenCalled()
    })
  })

  describe('several middlewares', () => {
    test('add their policies, and the scarcest numbers are told', async () => {
      const [day, hour] = [
        { limit: 10, window: '1d', name: 'day' },
        { limit: 2, window: '1h', name: 'hour' },
      ]
      for (const limits of [
        [day, hour],
        [hour, day],
      ]) {
        const { ask } = await start(limits)
        const [first, second, third] = [await ask(), await ask(), await ask()]
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

    test('of which the first refunds 429 are all or nothing', async () => {
      const outer = { limit: 3, window: '1d', name: 'outer', refund: [429] }
      const inner = { limit: 1, window: '1d', name: 'inner', key: header('x-user') }
      const { ask, statuses } = await start([outer, inner])
      expect(await statuses(Array(3).fill(['/hello', { 'x-user': 'ada' }]))).toEqual([200, 429, 429])
      // A refund is made when the response has ended, which the client may learn of first.
      await vi.waitFor(async () => expect((await ask('/hello', { 'x-user': 'bob' })).status).toBe(200))
      const last = await ask('/hello', { 'x-user': 'eve' })
      expect([last.status, last.headers.get('x-ratelimit-remaining')]).toEqual([200, '0'])
    })

    test.skipIf(registersOptions)('that are one and the same count a request once', async () => {
      const limit = { limiter: createLimiter({ rules: [{ rule_id: 'a', scope: 'per_ip', limit: 2, window: '1d' }] }) }
      const { ask, statuses } = await start([limit, limit])
      const first = await ask()
      expect([first.headers.get('ratelimit-policy')?.split(', ').length, first.status]).toEqual([1, 200])
      expect(await statuses([['/hello'], ['/hello']])).toEqual([200, 429])
    })
  })

  describe('the address of a client', () => {
    const forwarded = (value: string) => ({ 'x-forwarded-for': value, forwarded: `for="${value}"` })

    test.each(['x-forwarded-for', 'forwarded'] as const)('is believed from trusted proxies alone: %s', async (name) => {
      const asked = ['192.0.2.1', '192.0.2.2', '192.0.2.1'].map((ip) => ['/hello', forwarded(ip)] as const)
      const trusting = await start({ ...ONE_A_DAY, trustProxy: ['127.0.0.0/8', '::1'], proxyHeader: name })
      expect(await trusting.statuses(asked)).toEqual([200, 200, 429])
      const other = await start({ ...ONE_A_DAY, trustProxy: ['10.0.0.0/8'], proxyHeader: name })
      expect(await other.statuses(asked)).toEqual([200, 429, 429])
    })
  })

  test('a leaky bucket holds requests back until it is their turn', async () => {
    const timers = handTimers()
    const after = vi.spyOn(timers, 'after')
    const handled = vi.fn(hello)
    const store = memoryStore({ clock: CLOCK })
    const { ask } = await start(
      { limit: 10, window: '1s', burst: 2, algorithm: 'leaky_bucket', store, clock: CLOCK, timers },
      { '/handled': handled },
    )
    expect((await ask('/handled')).status).toBe(200)
    const second = ask('/handled')
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
      const { ask } = await start(concurrency, streaming)
      const first = await ask('/stream')
      expect((await ask()).status).toBe(429)
      streams[0]?.end()
      expect(await first.text()).toBe('first')
      await expect.poll(async () => (await ask()).status).toBe(200)
    })

    test('is released when the client goes away', async () => {
      const { ask, url } = await start(concurrency, streaming)
      const request = get(`${url}/stream`).on('error', () => {})
      await new Promise((answered) => request.on('response', answered))
      expect((await ask()).status).toBe(429)
      request.destroy()
      await expect.poll(async () => (await ask()).status).toBe(200)
    })

    test('is released when the client goes away, also by requests that it has sent ahead', async () => {
      const { ask, url } = await start({ ...concurrency, limit: 2 }, streaming)
      const socket = connect(Number(new URL(url).port), '127.0.0.1')
      socket.write(['/stream', '/hello'].map((path) => `GET ${path} HTTP/1.1\r\nHost: x\r\n\r\n`).join(''))
      const left = async () => (await ask()).headers.get('x-ratelimit-remaining')
      await expect.poll(left).toBe('0')
      socket.destroy()
      await expect.poll(left).toBe('1')
    })

    test('is released after HEAD, whose body nobody reads', async () => {
      const { ask, url } = await start(concurrency)
      expect((await fetch(`${url}/hello`, { method: 'HEAD' })).status).toBe(200)
      await expect.poll(async () => (await ask()).status).toBe(200)
    })

    test('is renewed while the response streams, and ends with it', async () => {
      const clock = fakeClock()
      const timers = handTimers()
      const store = memoryStore({ clock })
      const { ask } = await start({ ...concurrency, store, timers }, streaming)
      const first = await ask('/stream')
      for (let third = 0; third < 6; third += 1) {
        clock.advanceUs(3_000_000)
        timers.advance(3000)
        expect((await ask()).status).toBe(429)
      }
      streams[0]?.end()
      await first.text()
      await expect.poll(async () => (await ask()).status).toBe(200)
    })
  })

  test('statuses that are refunded give back what their requests took, others do not', async () => {
    const { statuses } = await start(
      { ...ONE_A_DAY, refund: ['5xx', 404] },
      { '/status/:code': (path) => ({ status: Number(path.split('/').at(-1)), body: '' }) },
    )
    const asked = async (path: string) => (await statuses([[path]]))[0]
    // A refund is under way when the response ends, and need not be over when the client has it.
    const settled = (path: string, status: number) => expect.poll(() => asked(path)).toBe(status)
    await settled('/status/503', 503)
    await settled('/status/404', 404)
    await settled('/status/201', 201)
    expect(await asked('/hello')).toBe(429)
  })
})
