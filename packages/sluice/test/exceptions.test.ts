// Exceptions in every kind of rule and on Redis: composite keys, plans, fallbacks, leases, several nodes, outages.

import { Redis } from 'ioredis'
import { createLimiter, type Limiter, type Override, type RuleInput } from 'sluice'
import { redisStore } from 'sluice/redis'
import { type RedisProcess, startRedis } from 'sluice/testing'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { bench } from './limiter-fixture.ts'

const ADA = { ruleId: 'a', fact: 'user', owner: 'ada', expiresAtMs: null } as const

function override(id: string, effect: Override['effect'], key: Partial<Override> = {}): Override {
  return { id, ...ADA, effect, ...key }
}

describe('an override', () => {
  test('of a composite key covers every bucket of its first fact', () => {
    const { limiter, check } = bench([{ scope: ['user', 'endpoint'], endpoint_pattern: '/v1/**' }])
    limiter.changeOverrides({ set: [override('o', { limit: 3 })] })
    for (const path of ['/v1/a', '/v1/b']) expect(check({ user: 'ada', path, method: 'GET' }).limit).toBe(3)
    expect(check({ user: 'bob', path: '/v1/a', method: 'GET' }).limit).toBe(10)
  })

  test('changes the limit that it names; without a name it changes only rules that have one limit', () => {
    const limits = [
      { name: 'second', limit: 5, window: '1s' },
      { name: 'day', limit: 100, window: '1d' },
    ]
    const { limiter, check } = bench([{ scope: 'per_user', limits }])
    const numbers = () => check({ user: 'ada' }).outcomes.map(({ limit }) => limit)
    limiter.changeOverrides({ set: [override('o', { limit: 7, limitName: 'day' })] })
    expect(numbers()).toEqual([5, 7])
    limiter.changeOverrides({ set: [override('o', { limit: 7 })] })
    expect(numbers()).toEqual([5, 100])
    limiter.changeOverrides({ set: [override('o', { factor: 2 })] })
    expect(numbers()).toEqual([10, 200])
  })

  test('changes the limits of the plan that applies', () => {
    const { limiter, check } = bench([{ scope: 'per_user', by_plan: { pro: { limit: 50 }, free: 'unlimited' } }])
    limiter.changeOverrides({ set: [override('o', { factor: 0.5 })] })
    expect(['pro', 'free', 'other'].map((plan) => check({ user: 'ada', plan }).limit)).toEqual([25, null, 5])
    limiter.changeOverrides({ set: [override('o', { ban: 429 })] })
    expect(check({ user: 'ada', plan: 'free' })).toMatchObject({ allowed: false, ruleId: 'a', limit: 0 })
  })

  test('of an address applies to requests that fall back to it (on_missing: by_ip), of a user to the others', () => {
    const { limiter, check } = bench([{ scope: 'per_user', on_missing: 'by_ip' }])
    limiter.changeOverrides({
      set: [override('ip', { limit: 2 }, { fact: 'ip', owner: '10.0.0.1' }), override('user', { limit: 3 })],
    })
    expect(check({ ip: '10.0.0.1' }).limit).toBe(2)
    expect(check({ ip: '10.0.0.1', user: 'ada' }).limit).toBe(3)
    expect(check({ ip: '10.0.0.1', user: 'bob' }).limit).toBe(10)
    expect(check({ ip: '10.0.0.2' }).limit).toBe(10)
  })

  test('of a rule with the scope global has no key', () => {
    const { limiter, check } = bench([{ scope: 'global' }])
    limiter.changeOverrides({ set: [override('o', { limit: 4 }, { fact: '', owner: '' })] })
    expect(check().limit).toBe(4)
  })

  test('raises a rule with a limit of 0, or exempts from it, for its key alone', () => {
    const { limiter, check } = bench([{ scope: 'per_user', limit: 0 }])
    limiter.changeOverrides({ set: [override('o', { limit: 2 }), override('p', { factor: 9 }, { owner: 'eve' })] })
    expect(check({ user: 'ada' })).toMatchObject({ allowed: true, limit: 2 })
    expect(check({ user: 'eve' }).allowed).toBe(false)
    limiter.changeOverrides({ set: [override('o', { exempt: true })] })
    expect(check({ user: 'ada' })).toMatchObject({ allowed: true, limit: null })
  })

  test('changes the burst in proportion, and stays within the largest limit of the algorithm', () => {
    const { limiter, check } = bench([
      { scope: 'per_user', limit: 100, burst: 20, window_seconds: 60 },
      { scope: 'per_user', limit: 900, algorithm: 'sliding_window_log' },
      { scope: 'per_user', limit: 1000, window_seconds: 366 * 86_400 },
    ])
    limiter.changeOverrides({ set: [override('o', { factor: 0.5 }, { ruleId: null })] })
    expect(check({ user: 'ada' }).outcomes.map(({ limit, burst }) => [limit, burst])).toEqual([
      [50, 10],
      [450, 450],
      [500, 500],
    ])
    limiter.changeOverrides({ set: [override('o', { factor: 999.7 }, { ruleId: null })] })
    expect(check({ user: 'ada' }).outcomes.map(({ limit }) => limit)).toEqual([99_970, 1000, 999_700])
    limiter.changeOverrides({ set: [override('o', { limit: 999_999_999_989 }, { ruleId: null })] })
    const [, , year = { limit: 0 }] = check({ user: 'ada' }).outcomes
    expect(year.limit / 1e12).toBeCloseTo(1, 0)
  })

  test('of a shadow rule stays a trial, also a ban', () => {
    const { limiter, check } = bench([{ scope: 'per_user', mode: 'shadow' }])
    limiter.changeOverrides({ set: [override('o', { ban: 403 })] })
    const { allowed, status, outcomes } = check({ user: 'ada' })
    expect([allowed, status, outcomes[0]?.allowed]).toEqual([true, undefined, false])
  })

  test('appears in the decision, its JSON and the explanation', async () => {
    const { limiter, check } = bench([
      { scope: 'per_user', on_signal: { spam: { factor: 0.5 } } },
      { scope: 'per_user' },
    ])
    limiter.changeOverrides({ set: [override('o1', { limit: 8 }), override('o2', { exempt: true }, { ruleId: 'b' })] })
    const signal = { fact: 'user', owner: 'ada', kind: 'spam', severity: 'high', expiresAtMs: 1e14 } as const
    limiter.setSignals([signal])
    limiter.setGlobalFactor({ factor: 0.5, expiresAtMs: 1e14 })
    const expected = [
      { kind: 'override', id: 'o1', ruleId: 'a', effect: { limit: 8 } },
      { kind: 'signal', id: 'spam', ruleId: 'a', effect: { factor: 0.5 } },
      { kind: 'factor', id: 'global', ruleId: null, effect: { factor: 0.5 } },
      { kind: 'override', id: 'o2', ruleId: 'b', effect: { exempt: true } },
    ]
    expect(check({ user: 'ada' }).exceptions).toEqual(expected)
    expect(JSON.parse(JSON.stringify(check({ user: 'ada' })))).toMatchObject({ limit: 2, exceptions: expected })
    const { rules } = await limiter.explain({ user: 'ada' })
    expect(rules.map(({ reason }) => reason)).toEqual([null, 'exempt'])
    expect(rules[0]?.detail).toMatch(/^it applies: 2 per 60 s.*\(override o1: limit 8, signal spam: factor 0.5, global/)
    expect(rules[1]?.detail).toBe('override o2: exempt')
  })

  test('100,000 of them are loaded at once, and one more is an error', () => {
    const { limiter, check } = bench([{ scope: 'per_user' }])
    const set = Array.from({ length: 100_000 }, (_, index) =>
      override(`o${index}`, { limit: 1 + (index % 50) }, { owner: `u${index}`, ruleId: index % 2 === 0 ? 'a' : null }),
    )
    limiter.changeOverrides({ set, replaceAll: true })
    expect([0, 49, 99_999].map((index) => check({ user: `u${index}` }).limit)).toEqual([1, 50, 50])
    expect(() => limiter.changeOverrides({ set: [override('more', { limit: 1 })] })).toThrow(
      'set: keep at most 100000 overrides: remove some first (got 100001)',
    )
    limiter.changeOverrides({ set: [override('more', { limit: 1 })], remove: ['o0'] })
    expect([check({ user: 'ada' }).limit, check({ user: 'u0' }).limit]).toEqual([1, 10])
  })

  test('stays in force after a refund by receipt and after a reset of its key', async () => {
    const { limiter, check } = bench([{ scope: 'per_user', limit: 2 }])
    limiter.changeOverrides({ set: [override('o', { limit: 5 })] })
    const decision = check({ user: 'ada' })
    expect(await limiter.redeem(limiter.receipt(decision))).toEqual({ outcome: 'given', leftOut: [] })
    expect(check({ user: 'ada' }).remaining).toBe(4)
    await limiter.reset('a', 'ada')
    expect(check({ user: 'ada' }).remaining).toBe(4)
  })
})

describe('bad input names field, value and fix, and changes nothing', () => {
  const good = override('good', { ban: 429 })
  test.each<[object, string]>([
    [{ effect: {} }, 'set[1].effect: give exactly one of limit, factor, ban and exempt'],
    [{ effect: { limit: 1, factor: 2 } }, 'set[1].effect: give exactly one of limit'],
    [{ effect: { limit: 0 } }, 'to refuse every request, use ban (got 0)'],
    [{ effect: { limit: 1.5 } }, 'set[1].effect.limit: give a whole number from 1'],
    [{ effect: { limit: 1, limitName: 5 } }, 'set[1].effect.limitName: give the name of a limit'],
    [{ effect: { factor: 0 } }, 'set[1].effect.factor: give a number above 0 and at most 1000 (got 0)'],
    [{ effect: { ban: true } }, 'set[1].effect.ban: use 429 or 403 (got true)'],
    [{ effect: { exempt: false } }, 'set[1].effect.exempt: use limit, factor, ban, or exempt: true'],
    [{ id: '' }, 'set[1].id: give a unique id'],
    [{ ruleId: undefined }, 'set[1].ruleId: give the id of a rule, or null for every rule'],
    [{ ruleId: null, fact: 'endpoint' }, 'set[1].ruleId: name the rule: its key starts with "endpoint"'],
    [{ fact: 7 }, 'set[1].fact: give a fact, such as "user" (got 7)'],
    [{ owner: '' }, 'set[1].owner: give the value of the fact'],
    [{ fact: 'ip', owner: '10.0.0' }, 'set[1].owner: give an IPv4 or IPv6 address'],
    [{ expiresAtMs: undefined }, 'set[1].expiresAtMs: give a time in milliseconds since the epoch'],
  ])('%j', (change, message) => {
    const { limiter, check } = bench([{ scope: 'per_user' }])
    const set = [good, { ...override('bad', { limit: 1 }), ...change }] as Override[]
    expect(() => limiter.changeOverrides({ set })).toThrow(message)
    expect(check({ user: 'ada' }).limit).toBe(10)
  })

  test('of signals and of the global factor', () => {
    const { limiter } = bench([{ scope: 'per_user' }])
    const signal = { fact: 'user', owner: 'ada', kind: 'spam', severity: 'high', expiresAtMs: 1 } as const
    const setSignal = (change: object) => () => limiter.setSignals([{ ...signal, ...change }])
    expect(setSignal({ kind: 'No!' })).toThrow('signals[0].kind: give 1 to 64 characters')
    expect(setSignal({ severity: 3 })).toThrow('signals[0].severity: use one of low, medium, high, critical (got 3)')
    expect(setSignal({ expiresAtMs: undefined })).toThrow('signals[0].expiresAtMs: give a time')
    expect(() => limiter.setSignals({} as never)).toThrow('signals: give a list')
    expect(() => limiter.setGlobalFactor({ factor: -1, expiresAtMs: 1 })).toThrow('factor: give a number above 0')
    expect(() => limiter.setGlobalFactor({ factor: 1 } as never)).toThrow('expiresAtMs: give a time')
    expect(() => limiter.changeOverrides({ set: {} as never })).toThrow('set: give a list')
  })
})

describe('on Redis', () => {
  let redis: RedisProcess
  let client: Redis
  beforeAll(async () => {
    redis = await startRedis()
    client = new Redis(redis.url)
  })
  afterAll(async () => {
    client.disconnect()
    await redis.stop()
  })

  /** Two nodes on one Redis. */
  async function nodes(rules: readonly RuleInput[]): Promise<Limiter[]> {
    const bypass = () => ({ id: rules[0]?.rule_id as string, rules: undefined, paths: undefined, limitPerMinute: 7 })
    const stores = [redisStore(client, { deadlineMs: 0 }), redisStore(client, { deadlineMs: 0 })]
    await Promise.all(stores.map((store) => store.ready()))
    return stores.map((store) => createLimiter({ rules, store, bypass }))
  }

  async function admitted(limiters: readonly Limiter[], count: number, subject: object): Promise<number> {
    let allowed = 0
    for (let sent = 0; sent < count; sent += 1) {
      if ((await limiters[sent % limiters.length]?.check(subject))?.allowed) allowed += 1
    }
    return allowed
  }

  test.each(['token_bucket', 'fixed_window', 'sliding_window', 'sliding_window_log'])(
    'two nodes admit no more than a lowered limit of a leased rule: %s',
    async (algorithm) => {
      const rule = { rule_id: `lowered-${algorithm}`, scope: 'per_user', limit: 1000, window: '1d', algorithm }
      const limiters = await nodes([rule])
      const set = [override('o', { limit: 100 }, { ruleId: rule.rule_id })]
      expect(await admitted(limiters, 40, { user: 'ada' })).toBe(40)
      for (const limiter of limiters) limiter.changeOverrides({ set })
      const more = await admitted(limiters, 200, { user: 'ada' })
      expect(more).toBeLessThanOrEqual(60)
      expect(await admitted(limiters, 200, { user: 'bob' })).toBe(200)
      for (const limiter of limiters) limiter.changeOverrides({ remove: ['o'] })
      expect(await admitted(limiters, 50, { user: 'bob' })).toBe(50)
      for (const limiter of limiters) await limiter.close()
    },
  )

  test('two nodes that differ for a moment never answer stale_rules', async () => {
    const rule = { rule_id: 'differ', scope: 'per_user', limit: 1000, window: '1d', consistency: 'strict' }
    const limiters = await nodes([{ ...rule, algorithm: 'fixed_window' }])
    limiters[0]?.changeOverrides({ set: [override('o', { limit: 50 }, { ruleId: 'differ' })] })
    const shorts = new Set<unknown>()
    for (let sent = 0; sent < 60; sent += 1) {
      const decision = await limiters[sent % 2]?.check({ user: 'ada' })
      shorts.add(decision?.outcomes[0]?.short)
    }
    expect([...shorts]).toEqual([false, 'now'])
    for (const limiter of limiters) await limiter.close()
  })

  test('the own limit of a bypass token counts over all nodes', async () => {
    const limiters = await nodes([{ rule_id: 'shared', limit: 1, window: '1d', consistency: 'strict' }])
    expect(await admitted(limiters, 20, { bypassToken: 'x' })).toBe(7 + 1)
    for (const limiter of limiters) await limiter.close()
  })

  test('a refund of a bypassed request returns the unit of the token, also through another node', async () => {
    const limiters = await nodes([{ rule_id: 'refunded', limit: 1, window: '1d', consistency: 'strict' }])
    const [one, other] = limiters as [Limiter, Limiter]
    for (let sent = 0; sent < 12; sent += 1) {
      const decision = await one.check({ bypassToken: 'x' })
      expect(decision.exceptions).toHaveLength(1)
      if (sent % 2 === 0) await one.give(decision)
      else expect(await other.redeem(one.receipt(decision))).toEqual({ outcome: 'given', leftOut: [] })
    }
    for (const limiter of limiters) await limiter.close()
  })

  test.each([
    ['open', 20],
    ['closed', 0],
  ])('without Redis a bypass token changes nothing: on_fail %s', async (on_fail, expected) => {
    const own = await startRedis()
    const connection = new Redis(own.url, { retryStrategy: () => 50 })
    connection.on('error', () => {})
    const store = redisStore(connection, { deadlineMs: 50 })
    const bypass = () => ({ id: 't', rules: undefined, paths: undefined, limitPerMinute: 100 })
    const limiter = createLimiter({ rules: [{ rule_id: 'a', limit: 5, window: '1d', on_fail }], store, bypass })
    expect((await limiter.check({ bypassToken: 'x' })).exceptions).toHaveLength(1)
    await own.stop()
    let allowed = 0
    for (let sent = 0; sent < 20; sent += 1) {
      const decision = await limiter.check({ bypassToken: 'x' })
      expect(decision.exceptions).toEqual([])
      if (decision.allowed) allowed += 1
    }
    expect(allowed).toBe(expected)
    await limiter.close()
    connection.disconnect()
  })
})
