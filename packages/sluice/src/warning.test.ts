import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import type { HttpRequest } from './http/request.ts'

const HTTP: HttpRequest = { method: 'GET', url: '/', peer: '192.0.2.1', header: () => undefined }
const PROXIED: HttpRequest = { ...HTTP, header: (name) => (name === 'x-forwarded-for' ? '198.51.100.1' : undefined) }
const ok = { limit: 100, window: '1m' }

// Warnings are emitted once per process, so each test loads fresh modules.
const fresh = async () => ({
  ...(await import('./middleware/request-check.ts')),
  ...(await import('./limiter.ts')),
  ...(await import('./store/memory.ts')),
})

beforeEach(() => {
  vi.resetModules()
  vi.spyOn(process, 'emitWarning').mockImplementation(() => {})
})

afterEach(() => {
  vi.restoreAllMocks()
  vi.unstubAllEnvs()
})

const emitted = () => vi.mocked(process.emitWarning).mock.calls

function expectOnce(code: string, fix: string): void {
  expect(emitted()).toEqual([[expect.stringContaining(fix), { code }]])
}

describe('an untrusted proxy', () => {
  test('warns once and names the option to set', async () => {
    const { createRequestCheck } = await fresh()
    const check = createRequestCheck(ok)
    await check({}, HTTP, {})
    expect(emitted()).toEqual([])
    await check({}, PROXIED, {})
    await createRequestCheck(ok)({}, PROXIED, {})
    expectOnce('SLUICE_UNTRUSTED_PROXY', 'trustProxy: ["10.0.0.0/8"]')
  })

  test('does not warn when trustProxy is set', async () => {
    const { createRequestCheck } = await fresh()
    for (const trustProxy of [[], ['192.0.2.1']]) await createRequestCheck({ ...ok, trustProxy })({}, PROXIED, {})
    expect(emitted()).toEqual([])
  })
})

describe('a request that a second middleware refuses', () => {
  const twoMiddlewares = async (refund?: readonly number[]) => {
    const { createRequestCheck } = await fresh()
    const [first, second] = [
      createRequestCheck({ ...ok, refund }),
      createRequestCheck({ limit: 0, window: '1m', name: 'other' }),
    ]
    for (const raw of [{}, {}]) {
      expect((await first({}, HTTP, raw))?.allowed).toBe(true)
      expect((await second({}, HTTP, raw))?.allowed).toBe(false)
    }
  }

  test('warns once that the first middleware keeps the units', async () => {
    await twoMiddlewares()
    expectOnce('SLUICE_UNITS_KEPT', 'refund: [429]')
  })

  test.each([[[429]], [[]]])('does not warn when the first middleware has a refund option: %j', async (refund) => {
    await twoMiddlewares(refund)
    expect(emitted()).toEqual([])
  })

  test('does not warn when there is only one middleware', async () => {
    const { createRequestCheck } = await fresh()
    await createRequestCheck({ limit: 0, window: '1m' })({}, HTTP, {})
    expect(emitted()).toEqual([])
  })
})

describe('a limiter that checks a request twice', () => {
  test('warns once', async () => {
    const { createRequestCheck, createLimiter } = await fresh()
    const limiter = createLimiter({ rules: [] })
    const [one, other] = [createRequestCheck({ limiter }), createRequestCheck({ limiter })]
    for (const raw of [{}, {}]) await Promise.all([one({}, HTTP, raw), other({}, HTTP, raw)])
    expectOnce('SLUICE_COUNTED_TWICE', 'Register only one of them')
  })

  test('also warns for two limiters of one name on one store', async () => {
    const { createRequestCheck, memoryStore } = await fresh()
    const options = { ...ok, store: memoryStore() }
    const raw = {}
    for (const check of [createRequestCheck(options), createRequestCheck(options)]) await check({}, HTTP, raw)
    expectOnce('SLUICE_COUNTED_TWICE', 'Register only one of them')
  })

  test('does not warn for two requests, nor for two limiters', async () => {
    const { createRequestCheck } = await fresh()
    const [one, other] = [createRequestCheck(ok), createRequestCheck(ok)]
    for (const raw of [{}, {}]) await Promise.all([one({}, HTTP, raw), other({}, HTTP, raw), one({}, HTTP, raw)])
    expect(emitted()).toEqual([])
  })
})

describe('a limiter per request', () => {
  test('warns once', async () => {
    const { createRequestCheck } = await fresh()
    for (let request = 0; request < 30; request += 1) await createRequestCheck(ok)({}, HTTP, {})
    expectOnce('SLUICE_LIMITER_PER_REQUEST', 'once, outside of the handler')
  })

  test('does not warn for a limiter that is created late and reused', async () => {
    const { createRequestCheck } = await fresh()
    for (let route = 0; route < 30; route += 1) {
      const check = createRequestCheck(ok)
      for (let request = 0; request < 2; request += 1) await check({}, HTTP, {})
    }
    expect(emitted()).toEqual([])
  })
})

describe('memory counters in one of several processes', () => {
  test('warn once, in either form, and only when no store was passed', async () => {
    const { createRequestCheck, createLimiter, memoryStore } = await fresh()
    vi.stubEnv('NODE_APP_INSTANCE', '0')
    createRequestCheck(ok)
    vi.stubEnv('NODE_APP_INSTANCE', '1')
    createRequestCheck({ ...ok, store: memoryStore() })
    expect(emitted()).toEqual([])
    createRequestCheck(ok)
    createLimiter({ rules: [] })
    expectOnce('SLUICE_MEMORY_PER_PROCESS', 'redisStore')
  })
})

describe('a rule by user without a subject', () => {
  const checkOf = async (rule: object, subject?: () => object) => {
    const { createRequestCheck, createLimiter } = await fresh()
    const limiter = createLimiter({ rules: [{ rule_id: 'a', limit: 1, window: '1m', ...rule }] })
    return { limiter, check: createRequestCheck({ limiter, subject }) }
  }

  test.each([['per_user'], ['per_api_key'], ['per_tenant'], [['user', 'endpoint']]])(
    'warns once: %j',
    async (scope) => {
      const { check } = await checkOf({ scope })
      for (const raw of [{}, {}]) await check({}, HTTP, raw)
      expectOnce('SLUICE_NO_SUBJECT', 'Pass subject: ')
    },
  )

  test('warns when an edit adds it', async () => {
    const { limiter, check } = await checkOf({ scope: 'per_ip' })
    await check({}, HTTP, {})
    expect(emitted()).toEqual([])
    limiter.setRules([{ rule_id: 'b', limit: 1, window: '1m', scope: 'per_user' }])
    await check({}, HTTP, {})
    expectOnce('SLUICE_NO_SUBJECT', 'Pass subject: ')
  })

  test.each<[object, (() => object)?]>([
    [{ scope: 'per_user' }, () => ({})],
    [{ scope: 'per_user', on_missing: 'by_ip' }],
    [{ scope: 'per_user', on_missing: 'refuse' }],
    [{ scope: 'per_user', enabled: false }],
    [{ scope: 'per_ip' }],
    [{ scope: ['attributes.header.x-client'] }],
  ])('does not warn: %j', async (rule, subject) => {
    const { check } = await checkOf(rule, subject)
    await check({}, HTTP, {})
    expect(emitted()).toEqual([])
  })
})

describe('a client without an address', () => {
  const WITHOUT_ADDRESS = { ...HTTP, peer: undefined }

  test.each([
    ['the short form', true],
    ['rules by address', true],
    ['other rules', false],
  ])('warns once: %s, %s', async (form, warned) => {
    const { createRequestCheck, createLimiter } = await fresh()
    const scope = form === 'rules by address' ? 'per_ip' : 'global'
    const limiter = createLimiter({ rules: [{ rule_id: 'a', limit: 1, window: '1m', scope }] })
    const check = createRequestCheck(form === 'the short form' ? ok : { limiter })
    for (const raw of [{}, {}]) await check({}, WITHOUT_ADDRESS, raw)
    if (warned) expectOnce('SLUICE_NO_ADDRESS', 'Pass `key` or `subject`')
    else expect(emitted()).toEqual([])
  })
})
