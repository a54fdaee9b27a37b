import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { LimiterError } from '../errors.ts'
import type { HttpRequest } from '../http/verdict.ts'
import { createLimiter } from '../limiter.ts'
import { memoryStore } from '../store/memory.ts'
import { createGate } from './gate.ts'
import type { RateLimitOptions } from './options.ts'

const HTTP: HttpRequest = { method: 'GET', url: '/', peer: '192.0.2.1', header: () => undefined }
const limiter = createLimiter({ rules: [] })
const ok = { limit: 1, window: '1s' }

function errorOf(options: unknown): LimiterError {
  try {
    createGate(options as RateLimitOptions<unknown>)
  } catch (error) {
    if (error instanceof LimiterError) return error
  }
  return expect.unreachable('no LimiterError')
}

describe('a mistake is named by field, value and fix', () => {
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
    expect(error.faults.map((fault) => fault.field)).toEqual(fields)
    for (const field of fields) expect(error.message).toContain(`${field}: `)
  })

  test('names of other libraries are translated', () => {
    expect(errorOf({ max: 5, windowMs: 1000 }).message).toMatch(
      /max: is called limit here.*windowMs: is called window here/,
    )
  })

  test.each([
    [{ limit: 2 ** 50, window: '366d' }, 'limit'],
    [{ limit: 10, window: '1m', algorithm: 'fixed_window', burst: 20 }, 'burst'],
    [{ limit: 5000, window: '1m', algorithm: 'sliding_window_log' }, 'limit'],
  ])('%j: values that do not go together, %s', (options, field) => {
    const error = errorOf(options)
    expect([error.code, error.faults[0]?.field]).toEqual(['OPTION_INVALID', field])
  })
})

test.each(['500ms', '30s', '1m', '2h', '1d', '366d'])('a window may be %j', (window) => {
  expect(() => createGate({ limit: 10, window })).not.toThrow()
})

describe('clients of the form with one limit', () => {
  const clients = async (
    options: Partial<RateLimitOptions<string>>,
    requests: readonly (readonly [string, string | undefined])[],
  ) => {
    const gate = createGate<string>({ limit: 1, window: '1d', store: memoryStore(), ...options })
    const verdicts = await Promise.all(requests.map(([request, peer]) => gate(request, { ...HTTP, peer }, {})))
    return verdicts.map((verdict) => verdict?.allowed)
  }

  beforeEach(() => void vi.spyOn(process, 'emitWarning').mockImplementation(() => {}))
  afterEach(() => vi.restoreAllMocks())

  test('are told apart by address', async () => {
    expect(
      await clients({}, [
        ['', '192.0.2.1'],
        ['', '192.0.2.2'],
        ['', '::ffff:192.0.2.1'],
      ]),
    ).toEqual([true, true, false])
  })

  test('are told apart by key, and by address when it is undefined', async () => {
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

  test('share one limit when nothing is known of them, and a warning says so once', async () => {
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

  test('are not skipped by a promise', async () => {
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
  test('of one name are one limit, or a mistake', async () => {
    const store = memoryStore()
    const gates = [createGate({ ...ok, store }), createGate({ ...ok, store })]
    const verdicts = await Promise.all(gates.map((gate) => gate({}, HTTP, {})))
    expect(verdicts.map((verdict) => verdict?.allowed)).toEqual([true, false])
    expect(errorOf({ ...ok, limit: 2, store }).faults[0]).toMatchObject({ field: 'name', value: 'default' })
    expect(() => createGate({ ...ok, limit: 2, store, name: 'other' })).not.toThrow()
  })
})

describe('a leaky bucket', () => {
  afterEach(() => void vi.useRealTimers())

  test('holds each request back until its turn', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout'] })
    const clock = { nowUs: () => 1_700_000_000_000_000 }
    const gate = createGate({
      limit: 10,
      window: '1s',
      burst: 3,
      algorithm: 'leaky_bucket',
      store: memoryStore({ clock }),
      clock,
    })
    const passed: number[] = []
    const start = async (index: number) => (await gate({}, HTTP, {}))?.allowed && passed.push(index)
    const all = [0, 1, 2].map(start)
    await vi.advanceTimersByTimeAsync(99)
    const early = [...passed]
    await vi.advanceTimersByTimeAsync(1)
    const later = [...passed]
    await vi.runAllTimersAsync()
    await Promise.all(all)
    expect([early, later, passed]).toEqual([[0], [0, 1], [0, 1, 2]])
  })
})

describe('rules about headers', () => {
  test('see the headers that they name, also after an edit', async () => {
    const rule = { limit: 0, window_seconds: 1, scope: 'global' }
    const own = createLimiter({ rules: [{ ...rule, rule_id: 'mobile', when: { 'header.x-client': 'mobile' } }] })
    const gate = createGate({ limiter: own })
    const from = async (headers: Readonly<Record<string, string>>) =>
      (await gate({}, { ...HTTP, header: (name) => headers[name] }, {}))?.decision.ruleId
    expect([await from({ 'x-client': 'mobile' }), await from({ 'x-client': 'web' }), await from({})]).toEqual([
      'mobile',
      null,
      null,
    ])
    own.setRules([{ ...rule, rule_id: 'beta', when: { 'header.x-beta': '1' } }])
    expect([await from({ 'x-client': 'mobile' }), await from({ 'x-beta': '1' })]).toEqual([null, 'beta'])
  })

  test('are not taken for an answer while they are promised, by any kind of promise', async () => {
    const own = createLimiter({ rules: [{ rule_id: 'a', limit: 0, window: '1s', scope: 'global', plan: 'free' }] })
    // biome-ignore lint/suspicious/noThenProperty: query builders are such objects
    const query = { then: (resolve: (facts: object) => void) => resolve({ plan: 'free' }) }
    const gate = createGate({ limiter: own, subject: () => query as unknown as Promise<object> })
    expect((await gate({}, HTTP, {}))?.allowed).toBe(false)
  })

  test('facts that the application adds win over those of the request', async () => {
    const own = createLimiter({
      rules: [
        { rule_id: 'vip', limit: 0, window_seconds: 1, scope: 'global', when: { ip: '198.51.100.1', tier: 'gold' } },
      ],
    })
    const gate = createGate({
      limiter: own,
      subject: async () => ({ ip: '198.51.100.1', attributes: { tier: 'gold' } }),
    })
    expect((await gate({}, HTTP, {}))?.decision.ruleId).toBe('vip')
  })
})
