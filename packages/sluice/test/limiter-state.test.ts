// State of a limiter: refunds, permits, resets, edited rules, keys.

import fc from 'fast-check'
import {
  ALGORITHM_NAMES,
  type AlgorithmName,
  createLimiter,
  type Decision,
  type ErrorCode,
  type Rule,
  type RulesInput,
  type Subject,
} from 'sluice'
import { fakeClock } from 'sluice/testing'
import { describe, expect, test } from 'vitest'
import { leaseStore } from '../src/lease/lease-store.ts'
import {
  admitted,
  type Bench,
  bench,
  complete,
  type Fields,
  MINUTE,
  rejection,
  remoteStore,
  thrownBy,
} from './limiter-fixture.ts'

describe('a refund', () => {
  test.each(ALGORITHM_NAMES)('%s: returns the units taken, once', async (algorithm) => {
    const one = bench([{ algorithm }, { limit: 9 }])
    const decision = one.check({ cost: 4 })
    await one.limiter.give(decision)
    await one.limiter.give(decision)
    expect(one.check().outcomes.map(({ remaining }) => remaining)).toEqual([9, 8])
  })

  test.each<[number, number]>([
    [2, 7],
    [5, 10],
    [99, 10],
  ])('of %d of 5 units leaves %d, and the rest cannot be refunded later', async (units, remaining) => {
    const { check, limiter } = bench([{}])
    const decision = check({ cost: 5 })
    await limiter.give(decision, units)
    await limiter.give(decision)
    expect((await limiter.peek({})).remaining).toBe(remaining)
  })

  test('of a refusal or a peek returns nothing', async () => {
    const { check, limiter } = bench([{}, { limit: 5 }])
    check({ cost: 5 })
    await limiter.give(check())
    await limiter.give(await limiter.peek({}))
    expect((await limiter.peek({})).outcomes.map(({ remaining }) => remaining)).toEqual([5, 0])
  })

  test.each<[string, (decision: Decision) => Decision]>([
    ['spread', (decision) => ({ ...decision })],
    ['JSON', (decision) => JSON.parse(JSON.stringify(decision))],
    ['structuredClone', (decision) => structuredClone(decision)],
  ])('of a copy made by %s is rejected', async (_way, copy) => {
    const { check, limiter } = bench([{ algorithm: 'concurrency' }])
    for (const verb of ['give', 'release', 'renew'] as const) {
      await expect(limiter[verb](copy(check()))).rejects.toEqual(rejection('OPTION_INVALID', 'decision'))
    }
  })

  test.each([0, -1, 1.5, Number.NaN, 2 ** 53])('of %d units is rejected', async (units) => {
    const { check, limiter } = bench([{}])
    await expect(limiter.give(check(), units)).rejects.toEqual(rejection('OPTION_INVALID', 'units'))
  })
})

describe('permits', () => {
  const PERMITS = { algorithm: 'concurrency', limit: 2, window_seconds: 10 }

  test('are held until they are released', async () => {
    const { check, limiter } = bench([PERMITS])
    const [first, , third] = [check(), check(), check()]
    expect(third).toMatchObject({ allowed: false, retryAfterMs: 10_000 })
    await limiter.release(first)
    expect([check().allowed, check().allowed]).toEqual([true, false])
  })

  test('expire unless they are renewed', async () => {
    const one = bench([PERMITS])
    const [kept] = [one.check(), one.check()]
    one.clock.advanceMs(8000)
    expect(await one.limiter.renew(kept)).toBe(true)
    one.clock.advanceMs(8000)
    expect(admitted(one)).toBe(1)
  })

  test('are named by the request id: the same id renews', () => {
    const one = bench([PERMITS])
    for (let index = 0; index < 5; index += 1) expect(one.check({}, 'same').allowed).toBe(true)
    expect(admitted(one)).toBe(1)
  })

  test('that expired are taken again if available', async () => {
    const one = bench([PERMITS])
    const lost = one.check()
    one.clock.advanceMs(10_000)
    expect(await one.limiter.renew(lost)).toBe(true)
    one.clock.advanceMs(10_000)
    admitted(one)
    expect(await one.limiter.renew(lost)).toBe(false)
  })

  test('are not acquired by renewing a refusal, or after a release or refund', async () => {
    const one = bench([PERMITS])
    const [first, second, refused] = [one.check(), one.check(), one.check()]
    await one.limiter.release(first)
    await one.limiter.give(second)
    for (const decision of [first, second, refused]) expect(await one.limiter.renew(decision)).toBe(false)
    expect(admitted(one)).toBe(2)
  })

  test('are released once, even if the id is used again', async () => {
    const { check, limiter } = bench([{ ...PERMITS, limit: 1 }])
    const first = check({}, 'id')
    await limiter.release(first)
    check({}, 'id')
    await limiter.release(first)
    await limiter.give(first)
    expect(check({}, 'other').allowed).toBe(false)
  })

  test('are released without a refund of consumed units, or refunded with them', async () => {
    const { check, limiter } = bench([PERMITS, {}])
    const left = async () => (await limiter.peek({})).outcomes.map(({ remaining }) => remaining)
    await limiter.release(check())
    expect(await left()).toEqual([2, 9])
    await limiter.give(check())
    expect(await left()).toEqual([2, 9])
  })

  test('do not affect other rules', async () => {
    const { check, limiter } = bench([{}])
    const decision = check()
    expect(await limiter.renew(decision)).toBe(true)
    await limiter.release(decision)
    expect((await limiter.peek({})).remaining).toBe(9)
  })
})

describe('a reset of', () => {
  type Key = string | Record<string, string>
  const byIp = { scope: ['user', 'tenant'], on_missing: 'by_ip' }
  const byPattern = { scope: 'per_endpoint', endpoint_pattern: '/u/:id' }
  const byPlan = { scope: 'per_user', by_plan: { p: { burst: 3 } } }
  const builtIn = { constructor: 'x' }
  const inSession = (s: string): Subject => ({ attributes: { s } })
  const from = (ip: string): Subject => ({ user: 'u', plan: 'p', ip })

  test.each<[string, Fields, Subject, Key, Subject]>([
    ['a user', { scope: 'per_user' }, { user: 'u' }, 'u', { user: 'v' }],
    ['a global bucket', {}, {}, '', { user: 'anyone' }],
    ['an address', { scope: 'per_ip' }, { ip: '1.2.3.4' }, '::ffff:102:304', { ip: '1.2.3.5' }],
    ['a network', { scope: 'per_ip' }, { ip: '2001:db8::1' }, '2001:DB8:0::ffff', { ip: '2001:db8:0:1::' }],
    [
      'an endpoint',
      { scope: 'per_endpoint' },
      { method: 'GET', path: '/a' },
      'get //a/?q',
      { method: 'PUT', path: '/a' },
    ],
    ['a pattern', byPattern, { method: 'GET', path: '/u/7' }, 'GET /u/:id', { method: 'PUT', path: '/u/7' }],
    ['an attribute', { scope: 'attributes.s' }, inSession('x'), 'x', inSession('y')],
    ['constructor', { scope: ['attributes.constructor'] }, { attributes: builtIn }, builtIn, inSession('x')],
    [
      'two facts',
      { scope: ['user', 'tenant'] },
      { user: 'u', tenant: 't' },
      { user: 'u', tenant: 't' },
      { user: 'u', tenant: 'x' },
    ],
    [
      'three',
      { scope: ['user', 'ip', 'plan'] },
      from('1.1.1.1'),
      { plan: 'p', ip: '::ffff:1.1.1.1', user: 'u' },
      from('1.1.1.2'),
    ],
    ['an address used in place of a user', byIp, { ip: '1.2.3.4' }, { ip: '1.2.3.4' }, { user: 'u', tenant: 't' }],
    ['the buckets of a plan', byPlan, { user: 'u', plan: 'p' }, 'u', { user: 'v', plan: 'p' }],
    ['a shadow rule', { scope: 'per_user', mode: 'shadow' }, { user: 'u' }, 'u', { user: 'v' }],
  ])('%s restores its full limit and no other', async (_what, rule, subject, key, other) => {
    const { check, limiter } = bench([{ limit: 3, ...rule }])
    const left = async (of: Subject) => (await limiter.peek(of)).outcomes[0]?.remaining
    check(subject)
    check(other)
    const before = await left(other)
    await limiter.reset('a', key)
    expect(await left(subject)).toBe(3)
    expect(await left(other)).toBe(rule.scope === undefined ? 3 : before)
  })

  test.each<[string, string, Key, ErrorCode, string]>([
    ['an unknown rule', 'z', 'u', 'OPTION_INVALID', 'ruleId'],
    ['one fact of two', 'a', 'u', 'OPTION_INVALID', 'key'],
    ['one fact of two by name', 'a', { endpoint: 'GET /' }, 'OPTION_INVALID', 'key'],
    ['no endpoint', 'a', { user: 'u' }, 'OPTION_INVALID', 'key'],
    ['an invalid address', 'b', 'here', 'SUBJECT_INVALID', 'ip'],
  ])('%s is rejected', async (_what, ruleId, key, code, field) => {
    const { limiter } = bench([{ scope: ['user', 'endpoint'] }, { scope: 'per_ip' }])
    await expect(limiter.reset(ruleId, key)).rejects.toEqual(rejection(code, field))
  })
})

describe('new rules', () => {
  test('replace all others atomically, under the next version', () => {
    const { check, limiter } = bench([{}], { version: 7 })
    expect([limiter.version, check().version]).toEqual([7, 7])
    limiter.setRules([{ rule_id: 'z', ...MINUTE }])
    expect([limiter.version, limiter.rules.map(({ rule_id }) => rule_id)]).toEqual([8, ['z']])
    expect(check()).toMatchObject({ ruleId: 'z', version: 8 })
    limiter.setRules([], 100)
    expect([limiter.version, check().version]).toEqual([100, 100])
  })

  test.each<[string, unknown]>([
    [
      'a mistake',
      [
        { ...MINUTE, rule_id: 'b' },
        { rule_id: 'c', limit: -1, window_seconds: 1 },
      ],
    ],
    ['a field without effect', [{ ...MINUTE, rule_id: 'b', store: 'hot' }]],
    ['a value that is not a list', 'rules'],
  ])('with %s are rejected as a whole, and the old ones stay active', async (_what, rules) => {
    const one = bench([{}])
    admitted(one, {}, 4)
    expect(thrownBy(() => one.limiter.setRules(rules as RulesInput))).toEqual(rejection('RULE_INVALID'))
    await expect(one.limiter.prepareRules(rules as RulesInput)).rejects.toEqual(rejection('RULE_INVALID'))
    expect([one.limiter.version, one.limiter.rules.length]).toEqual([1, 1])
    expect(admitted(one)).toBe(6)
  })

  test('that are prepared have no effect before enforce(), and do not block checks', async () => {
    const { check, limiter } = bench([{}])
    const many = Array.from({ length: 2000 }, (_, index) => ({ rule_id: `r${index}`, ...MINUTE }))
    const preparing = limiter.prepareRules(many)
    expect(check()).toMatchObject({ ruleId: 'a', version: 1 })
    const prepared = await preparing
    expect([check().version, prepared.rules.length, limiter.rule('a')?.rule_id]).toEqual([1, 2000, 'a'])
    prepared.enforce()
    expect([check().version, limiter.rules.length]).toEqual([2, 2000])
    expect([limiter.rule('r7')?.rule_id, limiter.rule('a')]).toEqual(['r7', undefined])
  })

  test('may contain active Rule objects', () => {
    const { check, limiter } = bench([{ limit: 5 }, { limit: 9 }])
    const [a, b] = limiter.rules as [Rule, Rule]
    limiter.setRules([a, { ...b, limits: undefined, rule_id: 'c', ...MINUTE }])
    expect(limiter.rules[0]).toBe(a)
    expect(check().outcomes.map(({ ruleId, limit, remaining }) => [ruleId, limit, remaining])).toEqual([
      ['a', 5, 4],
      ['c', MINUTE.limit, MINUTE.limit - 1],
    ])
    expect(thrownBy(() => limiter.setRules([a, a]))).toEqual(rejection('RULE_INVALID'))
  })

  test('that did not change keep their leases', async () => {
    const store = leaseStore(remoteStore(fakeClock()))
    const rules = (limit: number) => [
      { rule_id: 'kept', scope: 'per_user', ...MINUTE, limit: 1000, algorithm: 'fixed_window' },
      { rule_id: 'edited', scope: 'per_ip', ...MINUTE, limit },
    ]
    const limiter = createLimiter({ rules: rules(10), store })
    for (let index = 0; index < 10; index += 1) await limiter.check({ user: 'alice' })
    limiter.setRules(rules(20))
    expect(limiter.checkSync({ user: 'alice' })?.source).toBe('lease')
    await limiter.close()
  })

  test('do not affect a check in flight', async () => {
    const clock = fakeClock()
    const store = remoteStore(clock)
    const { limiter } = bench([{}], { store })
    let answer = () => {}
    store.answer = new Promise((resolve) => {
      answer = resolve
    })
    const pending = limiter.check({})
    limiter.setRules([])
    answer()
    expect(await pending).toMatchObject({ ruleId: 'a', version: 1 })
  })

  test.each(ALGORITHM_NAMES)('%s: an edited rule keeps the units in use', (algorithm) => {
    const one = bench([{ algorithm }])
    admitted(one, {}, 6)
    one.limiter.setRules(complete([{ algorithm, limit: 8, name: 'Lower', priority: 3 }]))
    expect(admitted(one)).toBe(2)
    one.limiter.setRules(complete([{ algorithm, name: 'As it was' }]))
    expect(admitted(one)).toBeLessThanOrEqual(2)
  })

  test.each(ALGORITHM_NAMES)(
    'from %s to any other algorithm: units in use are kept, except to or from a list algorithm',
    (from) => {
      const isList = (name: AlgorithmName) => name === 'sliding_window_log' || name === 'concurrency'
      for (const to of ALGORITHM_NAMES) {
        const one = bench([{ algorithm: from }])
        admitted(one, {}, 6)
        one.limiter.setRules(complete([{ algorithm: to }]))
        expect(admitted(one), to).toBe(from !== to && (isList(from) || isList(to)) ? 10 : 4)
      }
    },
  )

  test('that are older do not overwrite newer ones', () => {
    const one = bench([{ version: 2 }])
    admitted(one, {}, 6)
    one.limiter.setRules(complete([{ version: 1, limit: 100 }]))
    expect(one.check()).toMatchObject({ allowed: false, outcomes: [{ short: 'stale_rules' }] })
  })
})

describe('keys', () => {
  const listed = ['token_bucket', 'sliding_window_log', 'concurrency']
  /** A string cut into three facts: (ab, c) and (a, bc) are different clients. */
  const cut = fc.string({ minLength: 3, maxLength: 9, unit: fc.constantFrom('1', '2', ':', '|', '\0', 'é', '\ud800') })
  const places = fc.tuple(cut, fc.nat(), fc.nat()).map(([text, one, two]) => {
    const first = 1 + (one % (text.length - 2))
    const second = first + 1 + (two % (text.length - first - 1))
    return [text.slice(0, first), text.slice(first, second), text.slice(second)]
  })

  test.each(listed)('%s: composite keys never collide', (algorithm) => {
    const property = fc.property(
      fc.uniqueArray(places, { minLength: 2, selector: (facts) => facts.join('\n') }),
      (keys) => {
        const { check } = bench([{ algorithm, scope: ['user', 'tenant', 'attributes.x'], limit: 1 }])
        const subjects = keys.map(([user, tenant, x = '']): Subject => ({ user, tenant, attributes: { x } }))
        expect(subjects.every((subject) => check(subject).allowed)).toBe(true)
        expect(subjects.some((subject) => check(subject).allowed)).toBe(false)
      },
    )
    fc.assert(property)
  })

  test.each<[string, number | undefined, string[], string[]]>([
    ['one IPv6 /64 is one client', undefined, ['2001:db8:1:2::1', '2001:DB8:1:2:ffff::'], ['2001:db8:1:3::1']],
    ['or a /48, if configured', 48, ['2001:db8:1:2::1', '2001:db8:1:ffff::'], ['2001:db8:2::']],
    ['or each address', 128, ['2001:db8::1', '2001:0db8:0:0::1%eth0'], ['2001:db8::2']],
    [
      'an IPv4 address is the same in any notation',
      undefined,
      ['1.2.3.4', '::ffff:1.2.3.4', '::FFFF:102:304'],
      ['1.2.3.5'],
    ],
  ])('%s', (_promise, ipv6Prefix, same, others) => {
    const { check } = bench([{ scope: 'per_ip', limit: 1 }], { ipv6Prefix })
    expect(same.map((ip) => check({ ip }).allowed)).toEqual(same.map((_ip, index) => index === 0))
    for (const ip of others) expect(check({ ip }).allowed).toBe(true)
  })

  test('the endpoint is method and pattern, or method and path', () => {
    const one = bench([{ scope: 'per_endpoint', endpoint_pattern: '/u/:id', limit: 1 }])
    const two = bench([{ scope: 'per_endpoint', limit: 1 }])
    const requests = [
      ['GET', '/u/1'],
      ['get', '/u/2'],
      ['PUT', '/u/1'],
      ['GET', '/u/1/'],
    ]
    const results = ({ check }: Bench) => requests.map(([method, path]) => check({ method, path }).allowed)
    expect(results(one)).toEqual([true, false, true, false])
    expect(results(two)).toEqual([true, true, true, false])
  })

  const HOSTILE = [
    ...['__proto__', 'constructor', 'toString', 'hasOwnProperty', 'valueOf', 'null', 'undefined', '[object Object]'],
    ...[
      '\ud800',
      '\ud801',
      '\udfff',
      '\ufffd',
      '\ud83e\udda6',
      '\0',
      ' ',
      '  ',
      '{}',
      '{a}',
      '*',
      'a\r\nb',
      '%00',
      '%',
    ],
    ...['é', 'e\u0301', 'x'.repeat(1024), `${'x'.repeat(1023)}y`, 'overflow', '0', '1', '-1', '1e3', '|', '||'],
  ]

  test.each<[string, Fields, (text: string) => Subject]>([
    ['users', { scope: 'per_user' }, (user) => ({ user })],
    ['users in a log', { scope: 'per_user', algorithm: 'sliding_window_log' }, (user) => ({ user })],
    ['API keys with permits', { scope: 'per_api_key', algorithm: 'concurrency' }, (apiKey) => ({ apiKey })],
    ['attributes', { scope: 'attributes.a' }, (a) => ({ attributes: { a } })],
    ['second facts', { scope: ['user', 'attributes.a'] }, (a) => ({ user: 'u', attributes: { a } })],
  ])('hostile %s neither crash nor share a bucket', (_what, rule, subjectOf) => {
    const { check } = bench([{ ...rule, limit: 1 }])
    expect(HOSTILE.map((text) => check(subjectOf(text)).allowed)).toEqual(HOSTILE.map(() => true))
    expect(HOSTILE.map((text) => check(subjectOf(text)).allowed)).toEqual(HOSTILE.map(() => false))
  })

  test('attributes with hostile names are read, and missing when absent', () => {
    const usable = HOSTILE.filter((text) => !/\p{Cc}/u.test(text) && text.length < 200 && text !== '__proto__')
    for (const name of usable) {
      const { check } = bench([{ scope: [`attributes.${name}`], limit: 1, on_missing: 'refuse' }])
      expect(check({ attributes: {} }).allowed, name).toBe(false)
      expect(check({ attributes: Object.fromEntries([[name, 'x']]) }).allowed, name).toBe(true)
      expect(check({ attributes: Object.fromEntries([[name, 'x']]) }).allowed, name).toBe(false)
    }
  })

  test('an attribute called __proto__ is ignored, and changes no object', () => {
    const { check } = bench([{ scope: ['attributes.a'], limit: 1, on_missing: 'refuse' }])
    const attributes = JSON.parse('{ "__proto__": { "a": "x" } }')
    expect(check({ attributes }).allowed, 'a is not inherited').toBe(false)
    expect(check({ attributes: Object.assign(attributes, { a: 'x' }) }).allowed).toBe(true)
    expect(Object.hasOwn(Object.prototype, 'a')).toBe(false)
  })
})
