import fc from 'fast-check'
import { describe, expect, test, vi } from 'vitest'
import {
  admitted,
  bench,
  complete,
  type Fields,
  MINUTE,
  rejection,
  remoteStore,
  thrownBy,
  untouchable,
} from '../test/limiter-fixture.ts'
import { ALGORITHM_NAMES } from './algorithms/traits.ts'
import type { Decision } from './decision.ts'
import { LimiterError } from './errors.ts'
import { rateLimitHeaders } from './http/headers.ts'
import { createLimiter } from './limiter.ts'
import type { Taken } from './store/store.ts'
import type { Subject } from './subject.ts'
import { fakeClock } from './testing/fake-clock.ts'

describe('a decision reports', () => {
  const TEN_SECONDS = { limit: 1, window_seconds: 10 }
  const FORTY_SECONDS = { limit: 1, window_seconds: 40 }

  test.each<[string, Fields[], number, Partial<Decision>]>([
    ['allowed: the lowest remaining / limit', [{ limit: 100 }, { limit: 10 }], 1, { ruleId: 'b', remaining: 9 }],
    [
      '… which need not be the lowest remaining',
      [
        { limit: 4, cost: 1 },
        { limit: 8, cost: 6 },
      ],
      1,
      { ruleId: 'b' },
    ],
    ['… ties go to the higher priority', [{}, { priority: 2 }, { priority: 1 }], 1, { ruleId: 'b' }],
    ['… then to the rule id that sorts first', [{ rule_id: 'z' }, { rule_id: 'y' }], 1, { ruleId: 'y' }],
    ['refused: the longest wait', [TEN_SECONDS, FORTY_SECONDS], 2, { ruleId: 'b', retryAfterMs: 40_000 }],
    ['… of the limits that failed', [TEN_SECONDS, { limit: 2, window_seconds: 900 }], 2, { ruleId: 'a' }],
    ['… ties go to the higher priority', [TEN_SECONDS, { ...TEN_SECONDS, priority: 1 }], 2, { ruleId: 'b' }],
    ['… then to the rule id that sorts first', [{ ...TEN_SECONDS, rule_id: 'z' }, TEN_SECONDS], 2, { ruleId: 'b' }],
    ['… of which an infinite wait is the longest', [TEN_SECONDS, { cost: 11 }], 1, { ruleId: 'b', retryAfterMs: null }],
    ['bans: the higher priority', [{ limit: 0 }, { limit: 0, priority: 1 }], 1, { ruleId: 'b', retryAfterMs: null }],
    [
      '… then the rule id that sorts first',
      [
        { rule_id: 'z', limit: 0 },
        { rule_id: 'y', limit: 0 },
      ],
      1,
      { ruleId: 'y' },
    ],
  ])('%s', (_promise, rules, checks, reported) => {
    for (const ordered of [complete(rules), complete(rules).reverse()]) {
      const { check } = bench(ordered)
      for (let index = 1; index < checks; index += 1) check()
      expect(check()).toMatchObject(reported)
    }
  })

  test('the numbers of its limit, and a wait after which the request is admitted', () => {
    const { check, clock } = bench([{ limit: 3, window_seconds: 1 }])
    const numbers = { ruleId: 'a', limit: 3, delayMs: 0, source: 'store', version: 1 }
    expect(check()).toMatchObject({ allowed: true, remaining: 2, resetAfterMs: 334, retryAfterMs: 0, ...numbers })
    expect(check({ cost: 2 })).toMatchObject({ allowed: true, remaining: 0, resetAfterMs: 1000, retryAfterMs: 0 })
    const refused = check()
    const waits = { resetAfterMs: 334, retryAfterMs: 334, fullAfterMs: 1000 }
    expect(refused).toMatchObject({ allowed: false, remaining: 0, ...waits, ...numbers })
    clock.advanceMs(333)
    expect(check().allowed).toBe(false)
    clock.advanceMs(1)
    expect(check().allowed).toBe(true)
  })

  test('refused: resets when the same request passes, and not a millisecond earlier, in every header', () => {
    const rule = fc.record({
      algorithm: fc.constantFrom(...ALGORITHM_NAMES),
      limit: fc.integer({ min: 5, max: 20 }),
      window_seconds: fc.integer({ min: 200, max: 90_000 }).map((ms) => ms / 1000),
    })
    const steps = fc.array(fc.tuple(fc.integer({ min: 1, max: 5 }), fc.integer({ min: 0, max: 3000 })), {
      minLength: 1,
    })
    const trace = fc.tuple(fc.array(rule, { minLength: 1, maxLength: 3 }), steps)
    const property = ([rules, taken]: typeof trace extends fc.Arbitrary<infer T> ? T : never) => {
      const { check, clock } = bench(rules)
      for (const [cost, advanceMs] of taken) {
        check({ cost })
        clock.advanceMs(advanceMs)
      }
      const [[cost] = [1]] = taken
      let refused = check({ cost })
      while (refused.allowed) refused = check({ cost })
      const nowMs = clock.nowUs() / 1000
      const waitMs = refused.retryAfterMs ?? Number.NaN
      const headers = rateLimitHeaders(refused, clock.nowUs(), { style: ['legacy', 'draft-6', 'draft-11'] })
      expect(refused).toMatchObject({ resetAfterMs: waitMs, resetAtMs: Math.ceil(nowMs + waitMs) })
      expect(refused.fullAfterMs).toBeGreaterThanOrEqual(waitMs)
      expect(headers['Retry-After']).toBe(String(Math.ceil(waitMs / 1000)))
      expect(headers['RateLimit-Reset']).toBe(headers['Retry-After'])
      expect(headers['X-RateLimit-Reset']).toBe(String(Math.ceil((nowMs + waitMs) / 1000)))
      const waits = refused.outcomes.flatMap(({ allowed, algorithm, retryAfterMs }) =>
        allowed || algorithm === 'concurrency' ? [] : [`;r=0;t=${Math.ceil(Number(retryAfterMs) / 1000)}`],
      )
      for (const wait of waits) expect(headers.RateLimit?.replaceAll(/;r=\d+/g, ';r=0')).toContain(wait)
      clock.advanceMs(waitMs - 1)
      expect(check({ cost }).allowed, `${waitMs} ms is the shortest wait`).toBe(false)
      clock.advanceMs(1)
      expect(check({ cost }).allowed, `${waitMs} ms suffice`).toBe(true)
    }
    fc.assert(fc.property(trace, property), { numRuns: 300 })
  })

  test.each(ALGORITHM_NAMES)('allowed: resets when the limit is full again, and not earlier (%s)', (algorithm) => {
    const limits = fc.tuple(fc.integer({ min: 1, max: 20 }), fc.integer({ min: 200, max: 90_000 }))
    const costs = fc.array(fc.tuple(fc.integer({ min: 1, max: 20 }), fc.integer({ min: 0, max: 3000 })), {
      minLength: 1,
    })
    const property = ([limit, windowMs]: [number, number], taken: [number, number][]) => {
      const { check, clock } = bench([{ algorithm, limit, window_seconds: windowMs / 1000 }])
      let last = check()
      for (const [cost, advanceMs] of taken) {
        clock.advanceMs(advanceMs)
        const next = check({ cost: Math.min(cost, limit) })
        if (!next.allowed) break
        last = next
      }
      const waitMs = Number(last.resetAtMs) - clock.nowUs() / 1000
      fc.pre(last.allowed && waitMs > 0)
      expect(last).toMatchObject({ resetAfterMs: last.fullAfterMs, resetAtMs: last.fullAtMs, retryAfterMs: 0 })
      clock.advanceMs(Math.ceil(waitMs) - 1)
      expect(check({ cost: limit }).allowed, 'not full yet').toBe(false)
      clock.advanceMs(1)
      expect(check({ cost: limit }).allowed, 'full').toBe(true)
    }
    fc.assert(fc.property(limits, costs, property), { numRuns: 100 })
  })

  test('waiting will not help: no reset, whatever else is left', () => {
    const { check } = bench([{ limit: 5 }])
    check()
    const never = { allowed: false, retryAfterMs: null, resetAfterMs: null, resetAtMs: null, fullAfterMs: 12_000 }
    expect(check({ cost: 6 })).toMatchObject(never)
    expect(bench([{ limit: 0 }]).check()).toMatchObject({ ...never, fullAfterMs: 0 })
  })

  test('nothing when no rule matched', () => {
    const { check } = bench([{ plan: 'other' }], { store: untouchable })
    const nulls = {
      ruleId: null,
      limit: null,
      remaining: null,
      resetAfterMs: null,
      fullAfterMs: null,
      retryAfterMs: null,
    }
    expect(check()).toMatchObject({ allowed: true, ...nulls, delayMs: 0, source: 'local', outcomes: [] })
  })

  test('that waiting will not help when the cost is above the capacity, and takes nothing', () => {
    const { check } = bench([{ limit: 5, burst: 8 }, {}])
    expect(check({ cost: 9 })).toMatchObject({ allowed: false, ruleId: 'a', retryAfterMs: null, limit: 5 })
    expect(check({ cost: 8 }).outcomes).toMatchObject([{ remaining: 0 }, { remaining: 2 }])
  })

  test('the delay of an admitted request', () => {
    const { check } = bench([{ algorithm: 'leaky_bucket', limit: 4, window_seconds: 1, burst: 3 }, {}])
    expect([check().delayMs, check().delayMs, check().delayMs]).toEqual([0, 250, 500])
    expect(check()).toMatchObject({ allowed: false, delayMs: 0, ruleId: 'a' })
  })

  test('one outcome for each limit of each rule', () => {
    const limits = [
      { ...MINUTE, name: 'minute' },
      { limit: 1, window: '1s', burst: 2 },
    ]
    const { check } = bench([{ limits, scope: ['user', 'endpoint'], priority: 3 }, { mode: 'shadow' }])
    const [minute, second, shadow] = check({ user: 'u', path: '/x', cost: 2 }).outcomes
    expect(minute).toEqual({
      ...{ ruleId: 'a', name: 'minute', scope: 'user+endpoint', algorithm: 'token_bucket', mode: 'enforce' },
      ...{ allowed: true, short: false, limit: 10, burst: 10, windowMs: 60_000, cost: 2, remaining: 8 },
      ...{ resetAfterMs: 12_000, fullAfterMs: 12_000, retryAfterMs: 0, delayMs: 0, priority: 3 },
    })
    expect(second).toMatchObject({ ruleId: 'a', name: '1s', limit: 1, burst: 2, windowMs: 1000, remaining: 0 })
    expect(shadow).toMatchObject({ ruleId: 'b', name: 'default', mode: 'shadow', scope: 'global' })
  })

  test('all documented fields when serialized to JSON', () => {
    const { check } = bench([{}])
    const decision = check({}, 'request-1')
    const json = JSON.parse(JSON.stringify(decision))
    const fields = [
      'ruleId',
      'limit',
      'remaining',
      'resetAfterMs',
      'resetAtMs',
      'fullAfterMs',
      'fullAtMs',
      'retryAfterMs',
      'delayMs',
      'source',
      'version',
    ]
    expect(Object.keys(json)).toEqual(['allowed', ...fields, 'requestId', 'outcomes', 'exceptions'])
    expect(json).toMatchObject({ allowed: true, requestId: 'request-1', outcomes: [{ ruleId: 'a' }] })
    expect(JSON.parse(JSON.stringify(decision))).toEqual(json)
  })

  test('a generated id unless the request has one', () => {
    const { check } = bench([{}])
    const [one, other] = [check(), check()]
    expect(one.requestId).toMatch(/^[\w-]{8,}$/)
    expect(one.requestId).toBe(one.requestId)
    expect(one.requestId).not.toBe(other.requestId)
  })
})

describe('a rule', () => {
  test('with limit 0 refuses every request without a round trip', async () => {
    const { check, limiter } = bench([{ scope: 'per_user', limit: 0 }, {}], { store: untouchable })
    const refused = { allowed: false, ruleId: 'a', limit: 0, remaining: 0, retryAfterMs: null, source: 'local' }
    expect(check({ user: 'u' })).toMatchObject(refused)
    expect(await limiter.check({ user: 'u' })).toMatchObject(refused)
    expect(await limiter.peek({ user: 'u' })).toMatchObject(refused)
    await limiter.give(check({ user: 'u' }))
  })

  test('that is unlimited costs nothing and needs no store', () => {
    const { check } = bench([{ limit: 'unlimited', scope: 'per_user' }], { store: untouchable })
    expect(check({ user: 'u' })).toMatchObject({ allowed: true, ruleId: null, outcomes: [] })
  })

  test('applies alone in its group: the highest priority, then the id that sorts first', () => {
    const grouped = { group: 'g', limit: 5 }
    const rules = [grouped, { ...grouped, priority: 7 }, { ...grouped, plan: 'pro', priority: 9 }, { group: 'h' }, {}]
    const { check } = bench([...rules, { ...grouped, priority: 7 }])
    const ids = (subject: Subject) => check(subject).outcomes.map(({ ruleId }) => ruleId)
    expect(ids({}).sort()).toEqual(['b', 'd', 'e'])
    expect(ids({ plan: 'pro' }).sort()).toEqual(['c', 'd', 'e'])
  })

  const NO_USER = { ip: '1.2.3.4' }
  const PLANNED = { ip: '1.2.3.4', plan: 'p' }
  test.each<[string, Fields, Subject, number, string | null]>([
    ['skip: the rule does not apply', {}, NO_USER, 20, null],
    ['skip: an empty string is a missing fact', {}, { user: '' }, 20, null],
    ['refuse: no request is admitted', { on_missing: 'refuse' }, NO_USER, 0, 'a'],
    ['by_ip: the address is the key', { on_missing: 'by_ip' }, NO_USER, 10, 'a'],
    ['by_ip without an address: no request is admitted', { on_missing: 'by_ip' }, {}, 0, 'a'],
    ['by_ip with the limits of the plan', { on_missing: 'by_ip', by_plan: { p: { limit: 3 } } }, PLANNED, 3, 'a'],
    ['by_ip of an unlimited plan', { on_missing: 'by_ip', by_plan: { p: 'unlimited' } }, PLANNED, 20, null],
    ['refuse of an unlimited plan', { on_missing: 'refuse', by_plan: { p: 'unlimited' } }, { plan: 'p' }, 20, null],
    ['any fact of the key counts', { scope: ['tenant', 'user'], on_missing: 'refuse' }, { tenant: 't' }, 0, 'a'],
  ])('whose key is missing: %s', (_promise, rule, subject, count, ruleId) => {
    const rules = [{ scope: 'per_user', ...rule }]
    expect(bench(rules).check(subject).ruleId).toBe(ruleId)
    expect(admitted(bench(rules), subject)).toBe(count)
  })

  test('whose key is missing does not disable other rules', () => {
    const without = { scope: 'per_user', on_missing: 'refuse' }
    expect(admitted(bench([{ limit: 4 }, { ...without, mode: 'shadow' }]))).toBe(4)
    expect(admitted(bench([{ limit: 4 }, { ...without, limit: 'unlimited', by_plan: { p: MINUTE } }]))).toBe(4)
    expect(bench([{ ...without, mode: 'shadow' }]).check().outcomes).toMatchObject([{ ruleId: 'a', allowed: false }])
  })

  test('never mixes users with the addresses used in their place', () => {
    const one = bench([{ scope: 'per_user', on_missing: 'by_ip', limit: 1 }])
    expect([admitted(one, { user: '1.2.3.4' }), admitted(one, { ip: '1.2.3.4' })]).toEqual([1, 1])
  })

  test('has separate buckets for limits by plan', () => {
    const one = bench([{ scope: 'per_user', by_plan: { pro: { limit: 15 }, team: 'unlimited' } }])
    expect([undefined, 'free', 'pro', 'team'].map((plan) => admitted(one, { user: 'u', plan }, 30))).toEqual([
      10, 0, 15, 30,
    ])
  })

  test('with several limits admits a request if all limits do, and otherwise takes nothing', () => {
    const one = bench([{ limits: [MINUTE, { limit: 2, window: '1s' }, { limit: 15, window: '1h' }] }])
    expect(admitted(one)).toBe(2)
    one.clock.advanceMs(1000)
    expect(admitted(one)).toBe(2)
    const { outcomes } = one.check()
    expect(outcomes.map(({ name, remaining }) => [name, remaining])).toEqual([
      ['1m', 6],
      ['1s', 0],
      ['1h', 11],
    ])
  })

  test('multiplies its cost by the cost of the request', () => {
    const { check } = bench([{ cost: 2 }])
    expect([check({ cost: 3 }).remaining, check().remaining]).toEqual([4, 2])
  })

  test.each<[unknown, Subject, number]>([
    ['size', { attributes: { size: 4 } }, 6],
    ['attributes.size', { attributes: { size: '4' } }, 6],
    ['size', {}, 9],
    ['constructor', { attributes: { constructor: 7 } }, 3],
    ['constructor', { attributes: {} }, 9],
    ['size', { cost: 3, attributes: { size: 2 } }, 4],
    ['size', { cost: 3 }, 7],
    [2, { cost: 3 }, 4],
  ])(
    'takes its cost, a number or an attribute, times the cost of the request: %j of %j',
    (cost, subject, remaining) => {
      const { check } = bench([{ cost }, { cost, mode: 'shadow' }])
      expect(check(subject).outcomes.map((outcome) => outcome.remaining)).toEqual([remaining, remaining])
    },
  )

  test('refuses a request whose cost times its attribute exceeds any capacity, however large both are', () => {
    for (const cost of ['size', 1_000_000_000]) {
      const { check } = bench([{ cost, limit: 1_000_000_000 }])
      const huge = { cost: 1_000_000_000, attributes: { size: 1_000_000_000 } }
      expect(check(huge)).toMatchObject({ allowed: false, retryAfterMs: null, remaining: 1_000_000_000 })
    }
  })
})

describe('a shadow rule', () => {
  test('never refuses, never delays, and reports what it would have done', () => {
    const leaky = { algorithm: 'leaky_bucket', limit: 2, window_seconds: 60, mode: 'shadow' }
    const one = bench([leaky, { limit: 0, mode: 'shadow' }, {}])
    expect(admitted(one)).toBe(10)
    one.clock.advanceMs(6000)
    const decision = one.check()
    expect(decision).toMatchObject({ allowed: true, ruleId: 'c', delayMs: 0 })
    expect(decision.outcomes.map(({ mode, allowed }) => [mode, allowed])).toEqual([
      ['shadow', false],
      ['shadow', false],
      ['enforce', true],
    ])
  })

  test('alone reports no numbers', () => {
    expect(bench([{ mode: 'shadow' }]).check()).toMatchObject({ allowed: true, ruleId: null, remaining: null })
  })

  test('counts in its own buckets, and only what was admitted', () => {
    const one = bench([{ mode: 'shadow', rule_id: 'x' }])
    admitted(one, {}, 4)
    one.limiter.setRules(complete([{ rule_id: 'x' }, { limit: 3 }]))
    expect(admitted(one)).toBe(3)
    one.limiter.setRules(complete([{ mode: 'shadow', rule_id: 'x' }]))
    expect(one.check().outcomes[0]?.remaining).toBe(5)
  })

  test('does not replace the enforced rule of its group', () => {
    const one = bench([
      { group: 'g', limit: 3 },
      { group: 'g', mode: 'shadow', priority: 9 },
    ])
    expect(admitted(one)).toBe(3)
  })
})

describe('invalid facts', () => {
  test.each<[string, Fields, unknown, string]>([
    ...[0, -1, 1.5, Number.NaN, 2 ** 53, 1e9 + 1, '5'].map((cost): [string, Fields, unknown, string] => {
      return [`cost ${String(cost)}`, {}, { cost }, 'cost']
    }),
    ['a bad cost, even if no rule matches', { enabled: false }, { cost: 0 }, 'cost'],
    ['a bad cost in an attribute', { cost: 'size' }, { attributes: { size: 'big' } }, 'attributes.size'],
    ['a cost of 0 in an attribute', { cost: 'attributes.size' }, { attributes: { size: 0 } }, 'attributes.size'],
    ['an invalid address', { scope: 'per_ip' }, { ip: '1.2.3' }, 'ip'],
    ['a key of 1025 characters', { scope: 'per_user' }, { user: 'x'.repeat(1025) }, 'per_user'],
    ['a user that is a number', { scope: 'per_user' }, { user: 42 }, 'user'],
    ['a user that is an object', { scope: 'per_user' }, { user: {} }, 'user'],
    ['a key that is a list', { scope: 'per_api_key' }, { apiKey: ['k'] }, 'apiKey'],
    ['an attribute that is an object', { scope: 'attributes.s' }, { attributes: { s: {} } }, 'attributes.s'],
    ['a condition on a number', { when: { tenant: 'x*' } }, { tenant: 5 }, 'tenant'],
    ['an address that is a number', { when: { ip: '10.0.0.0/8' } }, { ip: 5 }, 'ip'],
    ['a method that is a number', {}, { method: 5 }, 'method'],
    ['a path that is a list', {}, { path: ['/'] }, 'path'],
  ])('%s: SUBJECT_INVALID', async (_what, rule, subject, field) => {
    const { check, limiter } = bench([rule])
    expect(thrownBy(() => check(subject as Subject))).toEqual(rejection('SUBJECT_INVALID', field))
    await expect(limiter.check(subject as Subject)).rejects.toEqual(rejection('SUBJECT_INVALID', field))
    await expect(limiter.peek(subject as Subject)).rejects.toBeInstanceOf(LimiterError)
  })

  test.each([
    [0, 'got 0'],
    ['0', 'got 0'],
    ['1.5', 'got 1.5'],
    ['x', 'got a string of 1 character)'],
    ['Infinity', 'got a string of 8 characters)'],
  ])(
    'an error about a cost in an attribute shows numbers, also as text, and withholds other text: %j',
    (size, shown) => {
      const { check } = bench([{ cost: 'size' }])
      expect(() => check({ attributes: { size } })).toThrow(shown)
    },
  )

  test('null is a missing fact, as in parsed JSON', () => {
    const nulls = { ip: null, user: null, tenant: null, plan: null, method: null, path: null, attributes: null }
    const one = bench([{ scope: 'per_user', on_missing: 'by_ip' }, { when: { tenant: 'x', 'header.x': 'y' } }])
    expect(one.check(nulls as unknown as Subject)).toMatchObject({ allowed: false, ruleId: 'a', retryAfterMs: null })
  })
})

describe('a limiter', () => {
  test('draws random values with its first check, not when it is created: Workers reject them in modules', async () => {
    const draw = vi.spyOn(crypto, 'getRandomValues')
    const rule = { rule_id: 'a', limit: 1, window: '1m' }
    const limiters = [0, 1].map(() => createLimiter({ rules: [rule] }))
    expect(draw).not.toHaveBeenCalled()
    const admitted = await Promise.all(limiters.map((limiter) => limiter.check({ ip: '192.0.2.1' })))
    expect(draw).toHaveBeenCalled()
    const issuers = limiters.map((limiter, index) => limiter.receipt(admitted[index] as Decision).issuer)
    expect(new Set(issuers).size).toBe(limiters.length)
  })

  test('checks synchronously in memory, and takes nothing if it needs a round trip', async () => {
    const clock = fakeClock()
    const store = remoteStore(clock)
    const limiter = createLimiter({ rules: complete([{ scope: 'per_user' }]), store })
    expect(limiter.checkSync({ user: 'u' })).toBeUndefined()
    expect(store.takes).toBe(0)
    expect(await limiter.check({ user: 'u' })).toMatchObject({ allowed: true, remaining: 9 })
    expect(limiter.checkSync({})).toMatchObject({ allowed: true, ruleId: null })
    const promise = limiter.decide({ user: 'u' })
    expect(promise).toBeInstanceOf(Promise)
    expect(await promise).toMatchObject({ allowed: true, remaining: 8 })
    expect(store.takes).toBe(2)
    expect(limiter.decide({})).toMatchObject({ allowed: true, ruleId: null })
    expect(bench([{}]).limiter.decide({}, 'r1')).toMatchObject({ allowed: true, remaining: 9, requestId: 'r1' })
  })

  test('peeks without taking', async () => {
    const { check, limiter } = bench([{ limit: 1 }])
    for (let index = 0; index < 3; index += 1)
      expect(await limiter.peek({})).toMatchObject({ allowed: true, remaining: 1 })
    expect(check().allowed).toBe(true)
    expect(await limiter.peek({})).toMatchObject({ allowed: false, remaining: 0, retryAfterMs: 60_000 })
  })

  test('that is closed rejects calls', async () => {
    const { check, limiter } = bench([{}])
    await limiter.close()
    await limiter.close()
    expect(thrownBy(check)).toEqual(rejection('CLOSED'))
    expect(thrownBy(() => limiter.decide({}))).toEqual(rejection('CLOSED'))
    await expect(limiter.check({})).rejects.toEqual(rejection('CLOSED'))
    await expect(limiter.peek({})).rejects.toEqual(rejection('CLOSED'))
  })

  test('propagates errors of its store', async () => {
    const broken = {
      ...remoteStore(fakeClock()),
      take: (): Taken => {
        throw new LimiterError('STORE_UNAVAILABLE', 'no')
      },
    }
    const { limiter } = bench([{}], { store: broken })
    await expect(limiter.check({})).rejects.toEqual(rejection('STORE_UNAVAILABLE'))
    expect(thrownBy(() => limiter.decide({}))).toEqual(rejection('STORE_UNAVAILABLE'))
  })

  test.each<[Fields, string]>([
    [{ store: 'hot' }, 'a.store'],
    [{ spread: 'global' }, 'a.spread'],
  ])('rejects rules with %j, which would have no effect', (fields, field) => {
    expect(thrownBy(() => bench([fields]))).toEqual(rejection('RULE_INVALID', field))
  })

  test.each<[Fields, string]>([
    [{ layer: 'gateway' }, 'layer'],
    [{ ipv6Prefix: 0 }, 'ipv6Prefix'],
    [{ ipv6Prefix: 129 }, 'ipv6Prefix'],
    [{ ipv6Prefix: Number.NaN }, 'ipv6Prefix'],
  ])('rejects the option %j', (options, field) => {
    expect(thrownBy(() => bench([{}], options))).toEqual(rejection('OPTION_INVALID', field))
  })
})

describe('hot keys', () => {
  test('count each check once, synchronous or not, and no peeks', async () => {
    const clock = fakeClock()
    const limiter = createLimiter({ rules: complete([{ scope: 'per_user' }]), store: remoteStore(clock), clock })
    for (let index = 0; index < 5000; index += 1) {
      clock.advanceMs(1)
      await limiter.peek({ user: 'peeked' })
      if (limiter.checkSync({ user: 'alice' }) === undefined) await limiter.check({ user: 'alice' })
    }
    const [alice, ...others] = limiter.hotKeys()
    expect(others).toEqual([])
    expect(alice).toMatchObject({ ruleId: 'a', name: 'default', fact: 'user', owner: 'alice', detail: '', share: 1 })
    expect(Math.abs((alice?.checksPerSecond ?? 0) / 1000 - 1)).toBeLessThan(0.5)
  })
})
