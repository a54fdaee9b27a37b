import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import type { HttpRequest } from './http/verdict.ts'

const HTTP: HttpRequest = { method: 'GET', url: '/', peer: '192.0.2.1', header: () => undefined }
const PROXIED: HttpRequest = { ...HTTP, header: (name) => (name === 'x-forwarded-for' ? '198.51.100.1' : undefined) }
const ok = { limit: 100, window: '1m' }

// A process gives each warning once, so each test has the modules of a new one.
const fresh = async () => ({
  ...(await import('./middleware/gate.ts')),
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

const given = () => vi.mocked(process.emitWarning).mock.calls

function expectOnce(code: string, fix: string): void {
  expect(given()).toEqual([[expect.stringContaining(fix), { code }]])
}

describe('a proxy that is not trusted', () => {
  test('is warned of once, with the option that trusts it', async () => {
    const { createGate } = await fresh()
    const gate = createGate(ok)
    await gate({}, HTTP, {})
    expect(given()).toEqual([])
    await gate({}, PROXIED, {})
    await createGate(ok)({}, PROXIED, {})
    expectOnce('SLUICE_UNTRUSTED_PROXY', 'trustProxy: ["10.0.0.0/8"]')
  })

  test('is none when the application has said which proxies there are', async () => {
    const { createGate } = await fresh()
    for (const trustProxy of [[], ['192.0.2.1']]) await createGate({ ...ok, trustProxy })({}, PROXIED, {})
    expect(given()).toEqual([])
  })
})

describe('a request that a second middleware refuses', () => {
  const twoGates = async (refund?: readonly number[]) => {
    const { createGate } = await fresh()
    const [first, second] = [createGate({ ...ok, refund }), createGate({ limit: 0, window: '1m', name: 'other' })]
    for (const raw of [{}, {}]) {
      expect((await first({}, HTTP, raw))?.allowed).toBe(true)
      expect((await second({}, HTTP, raw))?.allowed).toBe(false)
    }
  }

  test('is warned of once: the first one keeps what it took', async () => {
    await twoGates()
    expectOnce('SLUICE_UNITS_KEPT', 'refund: [429]')
  })

  test.each([[[429]], [[]]])('is none to warn of when the first says what it refunds: %j', async (refund) => {
    await twoGates(refund)
    expect(given()).toEqual([])
  })

  test('is none to warn of when it was the only one', async () => {
    const { createGate } = await fresh()
    await createGate({ limit: 0, window: '1m' })({}, HTTP, {})
    expect(given()).toEqual([])
  })
})

describe('a limiter that judges a request twice', () => {
  test('is warned of once', async () => {
    const { createGate, createLimiter } = await fresh()
    const limiter = createLimiter({ rules: [] })
    const [one, other] = [createGate({ limiter }), createGate({ limiter })]
    for (const raw of [{}, {}]) await Promise.all([one({}, HTTP, raw), other({}, HTTP, raw)])
    expectOnce('SLUICE_COUNTED_TWICE', 'Register one of them')
  })

  test('is also one by the same name on the same store', async () => {
    const { createGate, memoryStore } = await fresh()
    const options = { ...ok, store: memoryStore() }
    const raw = {}
    for (const gate of [createGate(options), createGate(options)]) await gate({}, HTTP, raw)
    expectOnce('SLUICE_COUNTED_TWICE', 'Register one of them')
  })

  test('is not one that judges two requests, nor two limiters', async () => {
    const { createGate } = await fresh()
    const [one, other] = [createGate(ok), createGate(ok)]
    for (const raw of [{}, {}]) await Promise.all([one({}, HTTP, raw), other({}, HTTP, raw), one({}, HTTP, raw)])
    expect(given()).toEqual([])
  })
})

describe('a limiter per request', () => {
  test('is warned of once', async () => {
    const { createGate } = await fresh()
    for (let request = 0; request < 30; request += 1) await createGate(ok)({}, HTTP, {})
    expectOnce('SLUICE_LIMITER_PER_REQUEST', 'once, outside of the handler')
  })

  test('is not a limiter that is made late and used again', async () => {
    const { createGate } = await fresh()
    for (let route = 0; route < 30; route += 1) {
      const gate = createGate(ok)
      for (let request = 0; request < 2; request += 1) await gate({}, HTTP, {})
    }
    expect(given()).toEqual([])
  })
})

describe('counters in the memory of one of several processes', () => {
  test('are warned of once, in either form, and only when nobody chose them', async () => {
    const { createGate, createLimiter, memoryStore } = await fresh()
    vi.stubEnv('NODE_APP_INSTANCE', '0')
    createGate(ok)
    vi.stubEnv('NODE_APP_INSTANCE', '1')
    createGate({ ...ok, store: memoryStore() })
    expect(given()).toEqual([])
    createGate(ok)
    createLimiter({ rules: [] })
    expectOnce('SLUICE_MEMORY_PER_PROCESS', 'redisStore')
  })
})

describe('a rule by user without a subject', () => {
  const gateOf = async (rule: object, subject?: () => object) => {
    const { createGate, createLimiter } = await fresh()
    const limiter = createLimiter({ rules: [{ rule_id: 'a', limit: 1, window: '1m', ...rule }] })
    return { limiter, gate: createGate({ limiter, subject }) }
  }

  test.each([['per_user'], ['per_api_key'], ['per_tenant'], [['user', 'endpoint']]])(
    'is warned of once: %j',
    async (scope) => {
      const { gate } = await gateOf({ scope })
      for (const raw of [{}, {}]) await gate({}, HTTP, raw)
      expectOnce('SLUICE_NO_SUBJECT', 'Pass subject: ')
    },
  )

  test('is warned of when it comes with an edit', async () => {
    const { limiter, gate } = await gateOf({ scope: 'per_ip' })
    await gate({}, HTTP, {})
    expect(given()).toEqual([])
    limiter.setRules([{ rule_id: 'b', limit: 1, window: '1m', scope: 'per_user' }])
    await gate({}, HTTP, {})
    expectOnce('SLUICE_NO_SUBJECT', 'Pass subject: ')
  })

  test.each<[object, (() => object)?]>([
    [{ scope: 'per_user' }, () => ({})],
    [{ scope: 'per_user', on_missing: 'by_ip' }],
    [{ scope: 'per_user', on_missing: 'refuse' }],
    [{ scope: 'per_user', enabled: false }],
    [{ scope: 'per_ip' }],
    [{ scope: ['attributes.header.x-client'] }],
  ])('is none to warn of: %j', async (rule, subject) => {
    const { gate } = await gateOf(rule, subject)
    await gate({}, HTTP, {})
    expect(given()).toEqual([])
  })
})

describe('a client without an address', () => {
  const NOBODY = { ...HTTP, peer: undefined }

  test.each([
    ['the short form', true],
    ['rules by address', true],
    ['other rules', false],
  ])('is warned of once: %s, %s', async (form, warned) => {
    const { createGate, createLimiter } = await fresh()
    const scope = form === 'rules by address' ? 'per_ip' : 'global'
    const limiter = createLimiter({ rules: [{ rule_id: 'a', limit: 1, window: '1m', scope }] })
    const gate = createGate(form === 'the short form' ? ok : { limiter })
    for (const raw of [{}, {}]) await gate({}, NOBODY, raw)
    if (warned) expectOnce('SLUICE_NO_ADDRESS', 'Pass `key` or `subject`')
    else expect(given()).toEqual([])
  })
})
