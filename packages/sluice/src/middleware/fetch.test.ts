import { afterEach, describe, expect, test, vi } from 'vitest'
import { createLimiter } from '../limiter.ts'
import { memoryStore } from '../store/memory.ts'
import { rateLimit } from './fetch.ts'

const CLOCK = { nowUs: () => 1_700_000_000_000_000 }
const URL = 'http://host/api/messages'
type Info = { readonly remoteAddr: { readonly hostname: string } }
const from = (hostname: string): Info => ({ remoteAddr: { hostname } })

afterEach(() => vi.restoreAllMocks())

describe('a fetch handler', () => {
  test('gets headers within the limit, and a 429 beyond it', async () => {
    const store = memoryStore({ clock: CLOCK })
    const handler = rateLimit({ limit: 1, window: '1m', store, clock: CLOCK, ip: () => '192.0.2.1' })(
      () => new Response('hello'),
    )
    const [first, second] = [await handler(new Request(URL)), await handler(new Request(URL))]
    expect([first.status, await first.text(), second.status]).toEqual([200, 'hello', 429])
    expect(first.headers.get('ratelimit')).toBe('"default";r=0;t=60')
    expect(second.headers.get('retry-after')).toBe('60')
    expect(second.headers.get('content-type')).toBe('application/problem+json')
    expect(await second.json()).toMatchObject({ status: 429, rule_id: 'default', retry_after: 60 })
  })

  test('gets every argument that the runtime passes', async () => {
    type Env = { readonly name: string }
    const limited = rateLimit({ limit: 9, window: '1m', ip: (_request: Request, env: Env) => env.name })
    const handler = limited((_request, env: Env, context: number) => new Response(`${env.name} ${context}`))
    const response = await handler(new Request(URL), { name: '192.0.2.7' }, 5)
    expect(await response.text()).toBe('192.0.2.7 5')
  })

  test('uses the client address that Deno passes', async () => {
    const handler = rateLimit({ limit: 1, window: '1d' })((_request, _info: Info) => new Response())
    const statuses = []
    for (const address of ['192.0.2.1', '192.0.2.2', '192.0.2.1']) {
      statuses.push((await handler(new Request(URL), from(address))).status)
    }
    expect(statuses).toEqual([200, 200, 429])
  })

  test('shares one limit without any address, and warns to pass `ip`', async () => {
    vi.spyOn(process, 'emitWarning').mockImplementation(() => {})
    vi.resetModules() // a process gives a warning once
    const fresh = await import('./fetch.ts')
    const handler = fresh.rateLimit({ limit: 1, window: '1d' })(() => new Response())
    expect([(await handler(new Request(URL))).status, (await handler(new Request(URL))).status]).toEqual([200, 429])
    expect(process.emitWarning).toHaveBeenCalledExactlyOnceWith(expect.stringContaining('`ip`'), expect.anything())
  })

  test('may return an immutable response', async () => {
    const handler = rateLimit({ limit: 1, window: '1m', ip: () => '::1' })(() =>
      Response.redirect('http://other/', 302),
    )
    const response = await handler(new Request(URL))
    expect([response.status, response.headers.get('location')]).toEqual([302, 'http://other/'])
    expect(response.headers.has('ratelimit')).toBe(true)
  })

  test('is rejected if `ip` is not a function', () => {
    const options = { limit: 1, window: '1m', ip: 'x-real-ip' as unknown as () => string }
    expect(() => rateLimit(options)).toThrow(/OPTION_INVALID.*ip: must be a function/)
  })

  test('is not limited if skipped', async () => {
    const handler = rateLimit({ limit: 0, window: '1m', skip: (request) => request.method === 'OPTIONS' })(
      () => new Response(),
    )
    const response = await handler(new Request(URL, { method: 'OPTIONS' }))
    expect([response.status, response.headers.has('ratelimit')]).toEqual([200, false])
  })

  test('is matched by the path of its URL', async () => {
    const limiter = createLimiter({
      rules: [{ rule_id: 'messages', endpoint_pattern: '/api/messages', limit: 0, window_seconds: 1, scope: 'global' }],
    })
    const handler = rateLimit({ limiter })(() => new Response())
    expect((await handler(new Request(`${URL}/?x=1`))).status).toBe(429)
    expect((await handler(new Request('http://host/other'))).status).toBe(200)
  })
})

describe('a concurrency limit', () => {
  const options = () => ({ limit: 1, window: '1m', algorithm: 'concurrency', ip: () => '192.0.2.1' }) as const

  test('holds its permit until the body has been read', async () => {
    const handler = rateLimit(options())(() => new Response('body'))
    const first = await handler(new Request(URL))
    expect((await handler(new Request(URL))).status).toBe(429)
    await first.text()
    expect((await handler(new Request(URL))).status).toBe(200)
  })

  test('frees its permit when the handler throws, and the error passes through', async () => {
    const handler = rateLimit(options())((request) => {
      if (request.method === 'POST') throw new Error('bad')
      return new Response()
    })
    await expect(handler(new Request(URL, { method: 'POST' }))).rejects.toThrow('bad')
    expect((await handler(new Request(URL))).status).toBe(200)
  })
})
