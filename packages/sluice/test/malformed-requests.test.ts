// Whatever one request contains, Redis answers the other requests of its batch and the circuit breaker stays closed.
// Covers the limiter and the middlewares; the drop-in stores and the store contract have their own tests.

import { Redis } from 'ioredis'
import { createLimiter, type Subject } from 'sluice'
import { rateLimit } from 'sluice/fetch'
import { type RedisStore, redisStore } from 'sluice/redis'
import { type RedisProcess, startRedis } from 'sluice/testing'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'

const RULES = [
  { rule_id: 'by-plan', limit: 1000, window_seconds: 60, scope: ['user', 'plan'] },
  { rule_id: 'by-method', limit: 1000, window_seconds: 60, scope: ['user', 'method'] },
  { rule_id: 'by-device', limit: 1000, window_seconds: 60, scope: ['user', 'attributes.device'] },
  { rule_id: 'concurrent', limit: 500, window_seconds: 60, scope: 'user', algorithm: 'concurrency' },
]
const ALICE: Subject = { user: 'alice', plan: 'pro', method: 'GET', path: '/', attributes: { device: 'phone' } }

let redis: RedisProcess
let client: Redis
let store: RedisStore
let stores = 0
beforeAll(async () => {
  redis = await startRedis()
  client = new Redis(redis.url)
})
afterAll(async () => {
  client.disconnect()
  await redis.stop()
})
beforeEach(async () => {
  store = redisStore(client, { prefix: `t${stores++}`, deadlineMs: 5000 })
  await store.ready()
  return () => store.close()
})

function isUnharmed(): boolean {
  const { errors, policy_decisions: byPolicy } = store.stats?.() ?? {}
  return errors === 0 && byPolicy === 0 && store.breaker() === 'closed'
}

const ODD: readonly [string, unknown][] = [
  ['an unpaired surrogate', '\ud800'],
  ['a zero byte', '\0'],
  ['a string of 1024 characters', '\uffff'.repeat(1024)],
  ['a string of 70,000 characters', 'x'.repeat(70_000)],
  ['a number', 7],
  ['NaN', Number.NaN],
  ['a list', ['a', 'b']],
  ['an object', { id: 'a' }],
]

describe.each(ODD)('%s', (_what, value) => {
  const subjects: readonly [string, Subject][] = [
    ...(['user', 'plan', 'method', 'path', 'ip', 'cost'] as const).map((fact): [string, Subject] => [
      fact,
      { ...ALICE, [fact]: value },
    ]),
    ['an attribute', { ...ALICE, attributes: { device: value as string } }],
  ]

  test.each(subjects)('as %s', async (_fact, subject) => {
    const limiter = createLimiter({ rules: RULES, store })
    const ask = async (one: Subject) => limiter.check(one)
    const [before, odd, after] = await Promise.allSettled([ask(ALICE), ask(subject), ask(ALICE)])
    expect([before, after]).toMatchObject(Array(2).fill({ status: 'fulfilled', value: { allowed: true } }))
    if (odd.status === 'rejected') expect(odd.reason).toMatchObject({ code: 'SUBJECT_INVALID', status: 400 })
    expect(isUnharmed()).toBe(true)
  })

  test('as a request id', async () => {
    const limiter = createLimiter({ rules: RULES, store })
    const ask = async (id: string) => limiter.check(ALICE, id)
    const [before, odd, after] = await Promise.allSettled([ask('1'), ask(value as string), ask('2')])
    expect([before, after]).toMatchObject(Array(2).fill({ status: 'fulfilled', value: { allowed: true } }))
    if (typeof value === 'string') expect(odd).toMatchObject({ status: 'fulfilled', value: { allowed: true } })
    expect(isUnharmed()).toBe(true)
  })

  test('as the key of a middleware', async () => {
    const key = (request: Request) => (request.url.endsWith('/odd') ? (value as string) : 'alice')
    const limited = rateLimit({ limit: 1000, window: '1m', key, store })(() => new Response('hello'))
    const ask = async (path: string) => limited(new Request(`http://localhost/${path}`))
    const [before, , after] = await Promise.allSettled([ask(''), ask('odd'), ask('')])
    expect([before, after]).toMatchObject(Array(2).fill({ status: 'fulfilled', value: { status: 200 } }))
    expect(isUnharmed()).toBe(true)
  })
})
