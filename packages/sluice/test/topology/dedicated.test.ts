// Rules pinned to a Redis of their own: takes are all or nothing across servers, and a server that is down affects only
// the rules pinned to it.

import { Redis } from 'ioredis'
import { createLimiter } from 'sluice'
import { redisStore } from 'sluice/redis'
import { type RedisProcess, startRedis } from 'sluice/testing'
import { afterEach, beforeEach, expect, onTestFinished, test, vi } from 'vitest'

const WINDOW = { algorithm: 'fixed_window', window_seconds: 366 * 86_400 }

let first: RedisProcess
let second: RedisProcess
beforeEach(async () => {
  ;[first, second] = await Promise.all([startRedis(), startRedis()])
})
afterEach(() => Promise.all([first.stop(), second.stop()]))

function limiterOf(rules: readonly object[], deadlineMs = 5000) {
  const clientOf = ({ url }: RedisProcess) => new Redis(url, { lazyConnect: true })
  const store = redisStore(clientOf(first), { deadlineMs, stores: { hot: clientOf(second) } })
  const limiter = createLimiter({ rules, store })
  onTestFinished(() => limiter.close())
  return limiter
}

async function keysOf({ url }: RedisProcess): Promise<string[]> {
  const client = new Redis(url)
  try {
    return (await client.keys('*')).sort()
  } finally {
    client.disconnect()
  }
}

test('a rule with `store` keeps its buckets on that server', async () => {
  const limiter = limiterOf([
    { rule_id: 'user', scope: 'per_user', limit: 10, consistency: 'strict', ...WINDOW },
    { rule_id: 'ip', scope: 'per_ip', limit: 10, consistency: 'strict', store: 'hot', ...WINDOW },
  ])
  expect((await limiter.check({ user: 'alice', ip: '192.0.2.1' })).allowed).toBe(true)
  expect(await keysOf(first)).toEqual(['sl:{user:alice}'])
  expect(await keysOf(second)).toEqual(['sl:{ip:192.0.2.1}'])
})

test.each(['strict', 'leased'])(
  '%s: a request refused by one server consumes nothing on the other',
  async (consistency) => {
    const limiter = limiterOf([
      { rule_id: 'user', scope: 'per_user', limit: 1000, consistency, ...WINDOW },
      { rule_id: 'all', scope: 'global', limit: 7, consistency, store: 'hot', ...WINDOW },
    ])
    let admitted = 0
    const check = async () => {
      if ((await limiter.check({ user: 'alice' })).allowed) admitted += 1
    }
    await Promise.all(Array.from({ length: 100 }, check))
    // A cached refusal lasts as long as a lease, even if units were given back meanwhile.
    await vi.waitFor(() => check().then(() => expect(admitted).toBe(7)), { timeout: 10_000, interval: 50 })
    await expect.poll(async () => remainingOf(await limiter.peek({ user: 'alice' }), 'user')).toBe(993)
    await check()
    expect(admitted).toBe(7)
  },
)

test('a refund gives units back on every server that was charged', async () => {
  const limiter = limiterOf([
    { rule_id: 'user', scope: 'per_user', limit: 10, consistency: 'strict', ...WINDOW },
    { rule_id: 'all', scope: 'global', limit: 10, consistency: 'strict', store: 'hot', ...WINDOW },
  ])
  await limiter.give(await limiter.check({ user: 'alice', cost: 4 }))
  const peeked = await limiter.peek({ user: 'alice' })
  expect(peeked.outcomes.map(({ remaining }) => remaining)).toEqual([10, 10])
})

test('a server that is down affects only the rules pinned to it', async () => {
  const rules = [
    { rule_id: 'user', scope: 'per_user', limit: 5, consistency: 'strict', on_fail: 'closed', ...WINDOW },
    { rule_id: 'all', scope: 'global', limit: 1000, consistency: 'strict', store: 'hot', on_fail: 'open', ...WINDOW },
  ]
  const limiter = limiterOf(rules)
  await limiter.check({ user: 'warm' })
  await second.stop()
  const decisions = []
  for (let index = 0; index < 8; index += 1) decisions.push(await limiter.check({ user: 'alice' }))
  expect(decisions.map(({ allowed }) => allowed)).toEqual([true, true, true, true, true, false, false, false])
  expect(decisions[0]?.source, 'on_fail decided one of the rules').toBe('policy')
})

test('a rule with an unknown store is rejected with the names of the known ones', () => {
  expect(() => limiterOf([{ rule_id: 'a', scope: 'global', limit: 1, store: 'cold', ...WINDOW }])).toThrow(
    'use "default" or "hot"',
  )
})

test('on_fail decides for a Redis that is out of memory', async () => {
  const full = new Redis(second.url)
  await full.call('CONFIG', 'SET', 'maxmemory', '1')
  full.disconnect()
  const limiter = limiterOf([
    {
      rule_id: 'closed',
      endpoint_pattern: '/closed',
      scope: 'global',
      limit: 5,
      store: 'hot',
      on_fail: 'closed',
      ...WINDOW,
    },
    { rule_id: 'open', endpoint_pattern: '/open', scope: 'global', limit: 5, store: 'hot', on_fail: 'open', ...WINDOW },
  ])
  expect(await limiter.check({ path: '/open' })).toMatchObject({ allowed: true, source: 'policy' })
  expect(await limiter.check({ path: '/closed' })).toMatchObject({ allowed: false, source: 'policy' })
})

function remainingOf({ outcomes }: { outcomes: readonly { ruleId: string; remaining: number }[] }, ruleId: string) {
  return outcomes.find((outcome) => outcome.ruleId === ruleId)?.remaining
}
