import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { LimiterError } from '../errors.ts'
import type { HttpRequest } from '../http/request.ts'
import { createLimiter } from '../limiter.ts'
import { memoryStore } from '../store/memory.ts'
import type { RateLimitOptions } from './options.ts'
import { createRequestCheck } from './request-check.ts'

const HTTP: HttpRequest = { method: 'GET', url: '/', peer: '192.0.2.1', header: () => undefined }
const limiter = createLimiter({ rules: [] })
const ok = { limit: 1, window: '1s' }

function errorOf(options: unknown): LimiterError {
  try {
    createRequestCheck(options as RateLimitOptions<unknown>)
  } catch (error) {
    if (error instanceof LimiterError) return error
  }
  return expect.unreachable('no LimiterError')
}

describe('a mistake is reported with field, value and fix', () => {
  test.each([
    [undefined, ['options']],
    [[], ['options']],
    [{}, ['limit', 'window']],
    [{ limit: -1, window: '1m' }, ['limit']],
    [{ limit: 1.5, window: '1 minute' }, ['limit', 'window']],
    [{ limit: Number.NaN, window: 0 }, ['limit', 'window']],
    [{ limit: '10', window: 1.5 }, ['limit', 'window']],
    [{ limit: 1, window: 60 }, ['window']],
    [{ limit: 1, window: '367d' }, ['window']],
    [{ ...ok, algorithm: 'magic' }, ['algorithm']],
    [{ ...ok, burst: 0 }, ['burst']],
    [{ ...ok, key: 'user' }, ['key']],
    [{ ...ok, store: {} }, ['store']],
    [{ ...ok, ipv6Prefix: 129 }, ['ipv6Prefix']],
    [{ ...ok, skip: true }, ['skip']],
    [{ ...ok, trustProxy: true }, ['trustProxy']],
    [{ ...ok, trustProxy: 1 }, ['trustProxy']],
    [{ ...ok, trustProxy: ['10.0.0.0/8', '10.0.0.0/33'] }, ['trustProxy']],
    [{ ...ok, proxyHeader: 'x-real-ip' }, ['proxyHeader']],
    [{ ...ok, clock: {} }, ['clock']],
    [{ ...ok, headers: false }, ['headers']],
    [
      { ...ok, headers: { style: 'draft-7', retryAfterJitterSeconds: -1, draft: 7 } },
      ['headers.style', 'headers.retryAfterJitterSeconds', 'headers.draft'],
    ],
    [{ ...ok, headers: { style: ['legacy', 'none'] } }, ['headers.style']],
    [{ ...ok, cost: 2 }, ['cost']],
    [{ ...ok, name: 'My limit' }, ['name']],
    [{ ...ok, refusal: 'Slow down' }, ['refusal']],
    [{ ...ok, refund: 500 }, ['refund']],
    [{ ...ok, refund: ['5xx', '2xx'] }, ['refund']],
    [{ ...ok, timers: {} }, ['timers']],
    [{ max: 5, windowMs: 1000 }, ['limit', 'window', 'max', 'windowMs']],
    [{ ...ok, subject: () => ({}) }, ['subject']],
    [{ limiter: {} }, ['limiter']],
    [{ limiter, limit: 5 }, ['limit']],
    [{ limiter, subject: {} }, ['subject']],
  ])('%j: %j', (options, fields) => {
    const error = errorOf(options)
    expect(error.code).toBe('OPTION_INVALID')
    expect(error.fieldErrors.map(({ field }) => field)).toEqual(fields)
    for (const field of fields) expect(error.message).toContain(`${field}: `)
  })

  test('option names of other libraries are translated', () => {
    expect(errorOf({ max: 5, windowMs: 1000 }).message).toMatch(
      /max: is called limit here.*windowMs: is called window here/,
    )
  })

  test.each([
    [{ limit: 2 ** 50, window: '366d' }, 'limit'],
    [{ limit: 10, window: '1m', algorithm: 'fixed_window', burst: 20 }, 'burst'],
    [{ limit: 5000, window: '1m', algorithm: 'sliding_window_log' }, 'limit'],
  ])('%j: conflicting values, %s', (options, field) => {
    const error = errorOf(options)
    expect([error.code, error.fieldErrors[0]?.field]).toEqual(['OPTION_INVALID', field])
  })
})

test.each(['500ms', '30s', '1m', '2h', '1d', '366d'])('a window may be %j', (window) => {
  expect(() => createRequestCheck({ limit: 10, window })).not.toThrow()
})

describe('clients of the short form', () => {
  const clients = async (
    options: Partial<RateLimitOptions<string>>,
    requests: readonly (readonly [string, string | undefined])[],
  ) => {
    vi.resetModules() // a process gives a warning once
    const fresh = await import('./request-check.ts')
    const check = fresh.createRequestCheck<string>({ limit: 1, window: '1d', store: memoryStore(), ...options })
    const results = await Promise.all(requests.map(([request, peer]) => check(request, { ...HTTP, peer }, {})))
    return results.map((result) => result?.allowed)
  }

  beforeEach(() => void vi.spyOn(process, 'emitWarning').mockImplementation(() => {}))
  afterEach(() => vi.restoreAllMocks())

  test('are distinguished by address', async () => {
    expect(
      await clients({}, [
        ['', '192.0.2.1'],
        ['', '192.0.2.2'],
        ['', '::ffff:192.0.2.1'],
      ]),
    ).toEqual([true, true, false])
  })

  test('are distinguished by key, or by address if the key is undefined', async () => {
    const key = (request: string) => (request === '' ? undefined : request)
    const requests = [
      ['ada', '192.0.2.1'],
      ['bob', '192.0.2.1'],
      ['ada', '192.0.2.2'],
      ['', '192.0.2.1'],
      ['', '192.0.2.1'],
    ] as const
    expect(await clients({ key }, requests)).toEqual([true, true, false, true, false])
  })

  test('share one limit if neither is known, with one warning', async () => {
    expect(
      await clients({}, [
        ['', undefined],
        ['', undefined],
        ['', '192.0.2.1'],
      ]),
    ).toEqual([true, false, true])
    expect(process.emitWarning).toHaveBeenCalledExactlyOnceWith(expect.stringContaining('share one limit'), {
      code: 'SLUICE_NO_ADDRESS',
    })
  })

  test('are not skipped by a `skip` that returns a promise', async () => {
    const skip = (async () => true) as unknown as () => boolean
    expect(await clients({ limit: 0, skip }, [['', '::1']])).toEqual([false])
  })

  test('are not limited when skipped', async () => {
    expect(
      await clients({ skip: (request) => request === 'health' }, [
        ['health', '::1'],
        ['', '::1'],
        ['', '::1'],
      ]),
    ).toEqual([undefined, true, false])
  })
})

describe('limits on one store', () => {
  test('with one name are the same limit, or an error', async () => {
    const store = memoryStore()
    const checks = [createRequestCheck({ ...ok, store }), createRequestCheck({ ...ok, store })]
    const results = await Promise.all(checks.map((check) => check({}, HTTP, {})))
    expect(results.map((result) => result?.allowed)).toEqual([true, false])
    expect(errorOf({ ...ok, limit: 2, store }).fieldErrors[0]).toMatchObject({ field: 'name', value: 'default' })
    expect(() => createRequestCheck({ ...ok, limit: 2, store, name: 'other' })).not.toThrow()
  })
})

describe('a leaky bucket', () => {
  afterEach(() => void vi.useRealTimers())

  test('delays each request until its turn', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout'] })
    const clock = { nowUs: () => 1_700_000_000_000_000 }
    const check = createRequestCheck({
      limit: 10,
      window: '1s',
      burst: 3,
      algorithm: 'leaky_bucket',
      store: memoryStore({ clock }),
      clock,
    })
    const passed: number[] = []
    const start = async (index: number) => (await check({}, HTTP, {}))?.allowed && passed.push(index)
    const all = [0, 1, 2].map(start)
    await vi.advanceTimersByTimeAsync(99)
    const early = [...passed]
    await vi.advanceTimersByTimeAsync(1)
    const later = [...passed]
    await vi.advanceTimersByTimeAsync(100)
    await Promise.all(all)
    expect([early, later, passed]).toEqual([[0], [0, 1], [0, 1, 2]])
  })
})

describe('rules about headers', () => {
  test('see the headers that they name, also after the rules change', async () => {
    const rule = { limit: 0, window_seconds: 1, scope: 'global' }
    const own = createLimiter({ rules: [{ ...rule, rule_id: 'mobile', when: { 'header.x-client': 'mobile' } }] })
    const check = createRequestCheck({ limiter: own })
    const from = async (headers: Readonly<Record<string, string>>) =>
      (await check({}, { ...HTTP, header: (name) => headers[name] }, {}))?.decision.ruleId
    expect([await from({ 'x-client': 'mobile' }), await from({ 'x-client': 'web' }), await from({})]).toEqual([
      'mobile',
      null,
      null,
    ])
    own.setRules([{ ...rule, rule_id: 'beta', when: { 'header.x-beta': '1' } }])
    expect([await from({ 'x-client': 'mobile' }), await from({ 'x-beta': '1' })]).toEqual([null, 'beta'])
  })

  test('wait for a subject that is any kind of promise', async () => {
    const own = createLimiter({ rules: [{ rule_id: 'a', limit: 0, window: '1s', scope: 'global', plan: 'free' }] })
    // biome-ignore lint/suspicious/noThenProperty: query builders are such objects
    const query = { then: (resolve: (facts: object) => void) => resolve({ plan: 'free' }) }
    const check = createRequestCheck({ limiter: own, subject: () => query as unknown as Promise<object> })
    expect((await check({}, HTTP, {}))?.allowed).toBe(false)
  })

  test('see facts of the application instead of those of the request', async () => {
    const own = createLimiter({
      rules: [
        { rule_id: 'vip', limit: 0, window_seconds: 1, scope: 'global', when: { ip: '198.51.100.1', tier: 'gold' } },
      ],
    })
    const check = createRequestCheck({
      limiter: own,
      subject: async () => ({ ip: '198.51.100.1', attributes: { tier: 'gold' } }),
    })
    expect((await check({}, HTTP, {}))?.decision.ruleId).toBe('vip')
  })
})
