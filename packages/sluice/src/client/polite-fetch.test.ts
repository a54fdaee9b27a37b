import { once } from 'node:events'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterEach, describe, expect, test, vi } from 'vitest'
import { systemTimers, type Timers } from '../clock.ts'
import { rateLimit } from '../middleware/fetch.ts'
import { memoryStore } from '../store/memory.ts'
import { fakeClock } from '../testing/fake-clock.ts'
import { manualTimers } from '../testing/manual-timers.ts'
import { type CallReport, type PoliteEvent, type PoliteOptions, politeFetch } from './polite-fetch.ts'

const servers: Server[] = []

type Answer = { readonly status?: number; readonly headers?: Record<string, string> }

/** A server with scripted responses and no other headers, which counts requests. */
async function serve(
  answer: (call: number, req: IncomingMessage) => Answer,
): Promise<{ url: string; calls: string[] }> {
  const calls: string[] = []
  const listener = (req: IncomingMessage, res: ServerResponse) => {
    const { status = 200, headers = {} } = answer(calls.push(`${req.method} ${req.url}`), req)
    res.sendDate = false
    req.resume().once('end', () => res.writeHead(status, headers).end(String(status)))
  }
  const server = createServer(listener).listen(0, '127.0.0.1')
  servers.push(server)
  await once(server, 'listening')
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, calls }
}

afterEach(async () => {
  for (const server of servers.splice(0)) {
    server.closeAllConnections()
    await new Promise((resolve) => server.close(resolve))
  }
})

/** Timers that jump to the next deadline immediately. */
function jumpingTime() {
  const clock = fakeClock()
  const startMs = clock.nowUs() / 1000
  const nowMs = () => clock.nowUs() / 1000 - startMs
  const after = (ms: number, work: () => void) => {
    const atMs = nowMs() + ms
    const timer = setImmediate(() => {
      clock.advanceMs(Math.max(0, atMs - nowMs()))
      work()
    })
    return () => clearImmediate(timer)
  }
  const timers: Timers = { ...systemTimers, nowMs, after }
  return { clock, timers, nowMs }
}

function polite(options: PoliteOptions = {}) {
  const { nowMs, ...time } = jumpingTime()
  const events: PoliteEvent[] = []
  const onEvent = (event: PoliteEvent) => void events.push(event)
  return { ...time, nowMs, events, fetch: politeFetch({ ...time, random: () => 0, onEvent, ...options }) }
}

/** Numbers of a limit of two calls per ten seconds. */
type Numbers = { readonly remaining: number; readonly resetS: number; readonly atMs: number }
const QUOTA = 2
const WINDOW_MS = 10_000

const DIALECTS: Record<string, (numbers: Numbers) => Record<string, string>> = {
  'draft 11': ({ remaining, resetS }) => ({
    'RateLimit-Policy': `"default";q=${QUOTA};w=10`,
    RateLimit: `"default";r=${remaining};t=${resetS}`,
  }),
  'draft 8, as express-rate-limit spells it': ({ remaining, resetS }) => ({
    'RateLimit-Policy': `"2-in-10sec"; q=${QUOTA}; w=10; pk=:MDEyMzQ1Njc4OWFi:`,
    RateLimit: `"2-in-10sec"; r=${remaining}; t=${resetS}`,
  }),
  'draft 7': ({ remaining, resetS }) => ({
    'RateLimit-Policy': `${QUOTA};w=10`,
    RateLimit: `limit=${QUOTA}, remaining=${remaining}, reset=${resetS}`,
  }),
  'draft 6': ({ remaining, resetS }) => triple('RateLimit-', remaining, resetS),
  'X-RateLimit, seconds from now': ({ remaining, resetS }) => triple('X-RateLimit-', remaining, resetS),
  'X-RateLimit, epoch': ({ remaining, atMs }) => triple('X-RateLimit-', remaining, atMs / 1000),
  GitHub: ({ remaining, atMs }) => ({
    ...triple('x-ratelimit-', remaining, atMs / 1000),
    'x-ratelimit-used': String(QUOTA - remaining),
    'x-ratelimit-resource': 'core',
  }),
  OpenAI: ({ remaining, resetS }) => ({
    'x-ratelimit-limit-requests': String(QUOTA),
    'x-ratelimit-remaining-requests': String(remaining),
    'x-ratelimit-reset-requests': `${resetS}s`,
    'x-ratelimit-limit-tokens': '150000',
    'x-ratelimit-remaining-tokens': '149984',
    'x-ratelimit-reset-tokens': '6ms',
  }),
  Anthropic: ({ remaining, atMs }) => ({
    'anthropic-ratelimit-requests-limit': String(QUOTA),
    'anthropic-ratelimit-requests-remaining': String(remaining),
    'anthropic-ratelimit-requests-reset': new Date(atMs).toISOString(),
  }),
}

function triple(prefix: string, remaining: number, reset: number): Record<string, string> {
  return { [`${prefix}Limit`]: `${QUOTA}`, [`${prefix}Remaining`]: `${remaining}`, [`${prefix}Reset`]: `${reset}` }
}

/** Two calls per ten seconds, `spent` of which are used in the first window. GitHub refuses with 403. */
function limited(name: string, nowMs: () => number, spent = 0) {
  let window = Math.floor(nowMs() / WINDOW_MS)
  let used = spent
  return (): Answer => {
    const now = Math.floor(nowMs() / WINDOW_MS)
    if (now > window) [window, used] = [now, 0]
    used += 1
    const atMs = (window + 1) * WINDOW_MS
    const numbers = { remaining: Math.max(0, QUOTA - used), resetS: Math.ceil((atMs - nowMs()) / 1000), atMs }
    const status = used <= QUOTA ? 200 : name === 'GitHub' ? 403 : 429
    return { status, headers: DIALECTS[name]?.(numbers) ?? {} }
  }
}

describe.each(Object.keys(DIALECTS))('with a server that sends headers of %s', (name) => {
  test('it slows down in time and is never refused', async () => {
    const { fetch, clock, nowMs, events } = polite()
    const { url, calls } = await serve(limited(name, () => clock.nowUs() / 1000))
    for (let call = 0; call < 6; call += 1) expect((await fetch(url)).status).toBe(200)
    expect(calls).toHaveLength(6)
    expect(nowMs()).toBe(2 * WINDOW_MS)
    expect(events.map(({ type }) => type)).toEqual(['paced', 'paced'])
  })

  test('it waits for the reset if others have spent the limit, and reports the wait', async () => {
    const { fetch, clock, nowMs, events } = polite()
    const { url, calls } = await serve(limited(name, () => clock.nowUs() / 1000, QUOTA))
    const response = await fetch(url)
    expect([response.status, calls.length, nowMs()]).toEqual([200, 2, WINDOW_MS])
    expect(response.rateLimit).toMatchObject({ calls: 2, waitedMs: WINDOW_MS, gaveUp: undefined })
    expect(response.rateLimit.limits[0]).toMatchObject({ quota: QUOTA, remaining: 1 })
    expect(events).toMatchObject([{ type: 'refused', key: url, waitMs: WINDOW_MS }])
  })
})

describe('a refusal', () => {
  const refusing = (times: number, headers: Record<string, string> = {}, status = 429) =>
    serve((call) => (call <= times ? { status, headers } : {}))

  test.each<[string, Record<string, string>, number]>([
    ['Retry-After in seconds', { 'Retry-After': '7' }, 7000],
    ['Retry-After as a date', { 'Retry-After': 'Tue, 01 Jan 2030 00:00:07 GMT' }, 7000],
    ['Retry-After, even with other headers', { 'Retry-After': '7', RateLimit: '"a";r=0;t=50' }, 7000],
    ['the limit with the longest wait', { RateLimit: '"a";r=0;t=5, "b";r=0;t=7, "c";r=1;t=50' }, 7000],
    ['no wait if the header is malformed', { 'Retry-After': 'in a while', RateLimit: '"a";r=x' }, 0],
  ])('is retried after %s', async (_what, headers, waitMs) => {
    const { fetch, nowMs } = polite()
    const { url, calls } = await refusing(1, headers)
    const { status, rateLimit } = await fetch(url)
    expect([status, calls.length, rateLimit.waitedMs, nowMs()]).toEqual([200, 2, waitMs, waitMs])
  })

  test.each([
    [429, {}, 2],
    [529, {}, 2],
    [503, { 'Retry-After': '1' }, 2],
    [503, {}, 1],
    [403, { 'Retry-After': '1' }, 2],
    [403, { 'X-RateLimit-Remaining': '0', 'X-RateLimit-Reset': '1' }, 2],
    [403, { 'X-RateLimit-Remaining': '9' }, 1],
    [500, { 'Retry-After': '1' }, 1],
    [404, {}, 1],
  ])('is a %i with %j: sent %i times', async (status, headers: Record<string, string>, sent) => {
    const { url, calls } = await refusing(1, headers, status)
    await polite().fetch(url)
    expect(calls).toHaveLength(sent)
  })

  test('without headers is retried with full jitter, doubled each time', async () => {
    for (const [random, waits] of [
      [0.999999, [499, 999, 1999, 3999]],
      [0.5, [250, 500, 1000, 2000]],
      [0, [0, 0, 0, 0]],
    ] as const) {
      const { fetch, events } = polite({ random: () => random })
      const { url } = await refusing(4)
      expect((await fetch(url)).rateLimit.calls).toBe(5)
      expect(events.map((event) => event.type === 'refused' && event.waitMs)).toEqual(waits)
    }
  })

  test('is never retried before the requested wait: jitter is added', async () => {
    const { fetch } = polite({ random: () => 0.5 })
    const { url } = await refusing(1, { 'Retry-After': '3' })
    expect((await fetch(url)).rateLimit.waitedMs).toBe(3250)
  })

  test.each<[string, PoliteOptions, Record<string, string>, object]>([
    [
      'the budget is too small',
      { budgetMs: 6999 },
      { 'Retry-After': '7' },
      { calls: 1, waitedMs: 0, gaveUp: 'budget' },
    ],
    [
      'the budget is used up',
      { budgetMs: 20_000 },
      { 'Retry-After': '7' },
      { calls: 3, waitedMs: 14_000, gaveUp: 'budget' },
    ],
    [
      'it was sent often enough',
      { callsMax: 3 },
      { 'Retry-After': '7' },
      { calls: 3, waitedMs: 14_000, gaveUp: 'calls' },
    ],
    ['the server says so', {}, { 'x-should-retry': 'false' }, { calls: 1, waitedMs: 0, gaveUp: 'retry_forbidden' }],
  ])('is returned if %s', async (_why, options, headers, report) => {
    const { fetch, events } = polite(options)
    const { url, calls } = await refusing(99, headers)
    const response = await fetch(url)
    expect([response.status, await response.text()]).toEqual([429, '429'])
    expect(response.rateLimit).toMatchObject(report)
    expect(calls).toHaveLength(response.rateLimit.calls)
    expect(events.at(-1)).toMatchObject({ type: 'gave_up', status: 429, reason: response.rateLimit.gaveUp })
  })

  test('without headers is retried after at most half a minute', async () => {
    const { fetch, events } = polite({ random: () => 0.999999, callsMax: 9, budgetMs: 600_000 })
    const { url } = await refusing(8)
    await fetch(url)
    expect(events.map((event) => event.type === 'refused' && event.waitMs).slice(-3)).toEqual([15_999, 29_999, 29_999])
  })

  test('is cancelled before the wait, which frees its connection', async () => {
    const cancel = vi.fn()
    const responses = [new Response(new ReadableStream({ cancel }), { status: 429 }), new Response('hello')]
    const { fetch } = polite({ fetch: async () => responses.shift() ?? Response.error() })
    expect(await (await fetch('http://host/')).text()).toBe('hello')
    expect(cancel).toHaveBeenCalledOnce()
  })

  test('stays within the budget: jitter is capped', async () => {
    const { fetch } = polite({ budgetMs: 7100, random: () => 0.999 })
    const { url } = await refusing(1, { 'Retry-After': '7' })
    expect((await fetch(url)).rateLimit).toMatchObject({ calls: 2, waitedMs: 7099 })
  })
})

describe('a call that must not be sent twice', () => {
  const stream = () => new Blob(['x']).stream()
  const key = { 'Idempotency-Key': '1' }
  const put = (url: string) => new Request(url, { method: 'PUT', body: 'x' })

  test.each<[string, number, (url: string) => [string | Request, RequestInit?]]>([
    ['GET', 2, (url) => [url]],
    ['a Request', 2, (url) => [new Request(url)]],
    ['PUT with a text', 2, (url) => [url, { method: 'PUT', body: 'x' }]],
    ['PUT with bytes', 2, (url) => [url, { method: 'PUT', body: new Uint8Array(3) }]],
    ['PUT with a form', 2, (url) => [url, { method: 'put', body: new URLSearchParams({ a: '1' }) }]],
    ['DELETE', 2, (url) => [url, { method: 'DELETE' }]],
    ['POST with a key', 2, (url) => [url, { method: 'POST', body: 'x', headers: key }]],
    ['POST', 1, (url) => [url, { method: 'POST', body: 'x' }]],
    ['POST with an empty key', 1, (url) => [url, { method: 'POST', headers: { 'Idempotency-Key': '' } }]],
    ['PATCH', 1, (url) => [url, { method: 'PATCH', body: 'x' }]],
    ['a Request with POST', 1, (url) => [new Request(url, { method: 'POST' })]],
    ['PUT with a stream', 1, (url) => [url, { method: 'PUT', body: stream(), duplex: 'half' } as RequestInit]],
    [
      'POST with a key and a stream',
      1,
      (url) => [url, { method: 'POST', headers: key, body: stream(), duplex: 'half' } as RequestInit],
    ],
    ['a Request with a body', 1, (url) => [put(url)]],
  ])('%s: sent %i times', async (_what, sent, args) => {
    const { url, calls } = await serve((call) => (call === 1 ? { status: 429 } : {}))
    const { rateLimit } = await polite().fetch(...args(url))
    expect(calls).toHaveLength(sent)
    expect(rateLimit).toMatchObject({ calls: sent, gaveUp: sent === 1 ? 'not_repeatable' : undefined })
  })

  test('a POST is retried if mayRepeat allows it', async () => {
    const { url, calls } = await serve((call) => (call === 1 ? { status: 429 } : {}))
    const { fetch } = polite({ mayRepeat: ({ method, url }) => method === 'POST' && url.pathname === '/v1/messages' })
    await fetch(`${url}/v1/messages`, { method: 'POST', body: 'x' })
    expect(calls).toEqual(['POST /v1/messages', 'POST /v1/messages'])
  })

  test('a network error is passed on immediately', async () => {
    const { fetch, nowMs } = polite({ fetch: () => Promise.reject(new TypeError('fetch failed')) })
    await expect(fetch('http://127.0.0.1:9')).rejects.toThrow('fetch failed')
    await expect(fetch('not an address')).rejects.toThrow(TypeError)
    expect(nowMs()).toBe(0)
  })
})

describe('slowing down', () => {
  test('the last fifth of a quota is spread evenly over the rest of the window', async () => {
    const { fetch, nowMs } = polite()
    let remaining = 4
    const { url } = await serve(() => {
      const headers = { 'RateLimit-Policy': '"a";q=20;w=60', RateLimit: `"a";r=${remaining};t=${60 - nowMs() / 1000}` }
      remaining -= 1
      return { headers }
    })
    const sentMs: number[] = []
    for (let call = 0; call < 5; call += 1) {
      await fetch(url)
      sentMs.push(nowMs())
    }
    expect(sentMs).toEqual([0, 0, 15_000, 30_000, 45_000])
  })

  test('calls that were started together do not spend the same unit twice', async () => {
    const timers = manualTimers()
    const fetch = politeFetch({ timers, random: () => 0 })
    const { url, calls } = await serve(limited('draft 11', timers.nowMs))
    await fetch(url)
    const reports: CallReport[] = []
    for (let call = 0; call < 5; call += 1) void fetch(url).then(({ rateLimit }) => reports.push(rateLimit))
    for (const finished of [1, 3, 5]) {
      await expect.poll(() => reports.length).toBe(finished)
      timers.advance(WINDOW_MS)
    }
    const waits = reports.map(({ calls, waitedMs }) => [calls, waitedMs])
    expect(waits).toEqual([0, 1, 1, 2, 2].map((windows) => [1, windows * WINDOW_MS]))
    expect(calls).toHaveLength(6)
  })

  test('limits of another key or origin delay no call', async () => {
    const limitKey: PoliteOptions['limitKey'] = ({ url, headers }) => `${url.origin} ${headers.get('authorization')}`
    const { fetch, nowMs } = polite({ limitKey })
    const spent = { RateLimit: '"a";r=0;t=30', 'RateLimit-Policy': '"a";q=5;w=60' }
    const { url, calls } = await serve(() => ({ headers: spent }))
    const other = await serve(() => ({}))
    for (const authorization of ['ann', 'bob']) await fetch(url, { headers: { authorization } })
    await fetch(other.url)
    expect([calls.length, nowMs()]).toEqual([2, 0])
    await fetch(url, { headers: { authorization: 'ann' } })
    expect(nowMs()).toBe(30_000)
  })

  test('a call that cannot wait long enough is sent immediately', async () => {
    const { fetch, nowMs } = polite({ budgetMs: 29_999 })
    const { url, calls } = await serve(() => ({ headers: { RateLimit: '"a";r=0;t=30' } }))
    await fetch(url)
    expect((await fetch(url)).rateLimit).toMatchObject({ calls: 1, waitedMs: 0 })
    expect([calls.length, nowMs()]).toEqual([2, 0])
  })

  test('units other than requests are waited for if none is left, and not counted down', async () => {
    const { fetch, nowMs } = polite()
    const tokens = (remaining: number) => ({
      'x-ratelimit-limit-tokens': '1000',
      'x-ratelimit-remaining-tokens': String(remaining),
      'x-ratelimit-reset-tokens': '1m30s',
    })
    const { url } = await serve((call) => ({ headers: tokens(call < 3 ? 1 : 0) }))
    for (let call = 0; call < 3; call += 1) await fetch(url)
    expect(nowMs()).toBe(0)
    await fetch(url, { signal: AbortSignal.timeout(60_000) })
    expect(nowMs()).toBe(0) // more than the budget of a minute
  })

  test('a failed call is no longer in flight', async () => {
    const init = { headers: { RateLimit: '"a";r=1;t=30' } }
    const responses = [new TypeError('fetch failed'), new Response(null, init), new Response()]
    const next = async () => {
      const answer = responses.shift()
      if (answer instanceof Response) return answer
      throw answer
    }
    const { fetch } = polite({ fetch: next })
    await expect(fetch('http://host/')).rejects.toThrow('fetch failed')
    await fetch('http://host/')
    expect((await fetch('http://host/')).rateLimit.waitedMs).toBe(0)
  })

  test('the limits of the thousand most recently used keys are kept', async () => {
    const init = { headers: { RateLimit: '"a";r=0;t=30' } }
    const { fetch } = polite({ limitKey: ({ url }) => url.pathname, fetch: async () => new Response(null, init) })
    const waited = async (path: number) => (await fetch(`http://host/${path}`)).rateLimit.waitedMs
    for (let path = 0; path <= 1000; path += 1) await waited(path)
    expect([await waited(0), await waited(1000)]).toEqual([0, 30_000])
  })

  test('a successful call has no events and no wait', async () => {
    const { fetch, events } = polite()
    const { url } = await serve(() => ({ headers: { RateLimit: '"a";r=90;t=30', 'RateLimit-Policy': '"a";q=100' } }))
    expect((await fetch(url)).rateLimit).toMatchObject({ calls: 1, waitedMs: 0, gaveUp: undefined })
    expect(events).toEqual([])
  })
})

/** Algorithms that refuse: a leaky bucket delays, and permits are not counted in requests. */
const REFUSING = ['token_bucket', 'fixed_window', 'sliding_window', 'sliding_window_log'] as const

/** Waits for the fourth of four calls, 5 s apart, under 3 a minute: until it passes, in whole seconds. */
const WAITS_MS = { token_bucket: 10_000, fixed_window: 30_000, sliding_window: 50_000, sliding_window_log: 50_000 }

describe.each(REFUSING)('with a Sluice server that uses %s', (algorithm) => {
  /** Calls the server in its own process, on jumping time. */
  function politeTo(limit: { limit: number; window: string }) {
    const time = jumpingTime()
    const { clock, timers } = time
    const store = memoryStore({ clock })
    const handler = rateLimit({ ...limit, algorithm, store, clock, ip: () => '192.0.2.1' })(() => new Response())
    return { time, ...polite({ clock, timers, fetch: (input) => handler(new Request(input)) }) }
  }

  test('after the last unit it waits until the next call passes, not until the limit is full', async () => {
    const { time, fetch } = politeTo({ limit: 3, window: '1m' })
    time.clock.advanceMs(20_000) // windows end at full minutes
    for (let call = 0; call < 3; call += 1) {
      await fetch('http://host/')
      if (call < 2) time.clock.advanceMs(5000)
    }
    expect((await fetch('http://host/')).rateLimit).toMatchObject({ calls: 1, waitedMs: WAITS_MS[algorithm] })
  })

  test('it is never refused, and gets at least a third of the limit', async () => {
    const { time, fetch } = politeTo({ limit: 10, window: '10s' })
    for (let call = 0; call < 50; call += 1) {
      expect((await fetch('http://host/')).rateLimit).toMatchObject({ calls: 1, gaveUp: undefined })
    }
    expect(time.nowMs()).toBeLessThan(3 * 50_000)
  })
})

describe('an AbortSignal', () => {
  const spent = { RateLimit: '"a";r=0;t=30' }

  test.each<[string, Answer]>([
    ['before it is sent again', { status: 429, headers: { 'Retry-After': '30' } }],
    ['before it is sent', { headers: spent }],
  ])('ends the wait of a call %s, and leaves no timer', async (_when, answer) => {
    const timers = manualTimers()
    const events: PoliteEvent[] = []
    const fetch = politeFetch({ timers, random: () => 0, onEvent: (event) => void events.push(event) })
    const { url, calls } = await serve(() => answer)
    const abort = new AbortController()
    if (answer.status === undefined) await fetch(url)
    const waiting = fetch(url, { signal: abort.signal })
    await expect.poll(() => calls.length).toBe(1)
    if (answer.status !== undefined) await expect.poll(() => events.length).toBe(1)
    abort.abort(new Error('enough'))
    await expect(waiting).rejects.toThrow('enough')
    timers.advance(60_000)
    expect(calls).toHaveLength(1)
  })

  test('that is already aborted sends nothing', async () => {
    const { url, calls } = await serve(() => ({}))
    await expect(polite().fetch(url, { signal: AbortSignal.abort(new Error('no')) })).rejects.toThrow('no')
    expect(calls).toEqual([])
  })

  test('removes the call from the queue', async () => {
    const timers = manualTimers()
    const fetch = politeFetch({ timers, random: () => 0 })
    const { url, calls } = await serve(() => ({ headers: spent }))
    await fetch(url)
    const abort = new AbortController()
    const first = fetch(url, { signal: abort.signal })
    const second = fetch(url)
    abort.abort(new Error('enough'))
    await expect(first).rejects.toThrow('enough')
    timers.advance(30_000)
    expect((await second).status).toBe(200)
    expect(calls).toHaveLength(2)
  })
})

test('works in front of another polite fetch and of a cache', async () => {
  const kept = new Response('kept')
  const fetch = politeFetch({ fetch: politeFetch({ fetch: async () => kept }) })
  for (const _ of [1, 2])
    expect((await fetch('http://example.org/')).rateLimit).toMatchObject({ calls: 1, waitedMs: 0 })
})

describe('options', () => {
  test.each<[PoliteOptions, RegExp]>([
    [{ budgetMs: -1 }, /OPTION_INVALID.*budgetMs: give milliseconds.*got -1/],
    [{ budgetMs: Number.NaN }, /budgetMs/],
    [{ budgetMs: 86_400_001 }, /budgetMs/],
    [{ callsMax: 0 }, /callsMax: give a whole number of at least 1/],
    [{ callsMax: 1.5 }, /callsMax/],
  ])('%j is rejected', (options, message) => {
    expect(() => politeFetch(options)).toThrow(message)
  })
})
