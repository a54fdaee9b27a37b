import { describe, expect, test } from 'vitest'
import { exampleRulesPath } from '../src/package-facts.ts'
import { readRuleFile } from '../src/rules/rule-file.ts'
import { BATCH, CHECK, MESSAGES_REQUEST, MESSAGES_RULE, serveApp } from './service.ts'

describe('the two documented examples', () => {
  test.each([
    ['the rule of the document', () => [MESSAGES_RULE], MESSAGES_REQUEST],
    [
      'the rules that come with Sluice',
      () => readRuleFile(exampleRulesPath()),
      { ...MESSAGES_REQUEST, endpoint: '/api/v1/comments' },
    ],
  ])(
    '%s: 100 requests are allowed with the documented four fields, the 101st is refused',
    async (_, rules, request) => {
      const { post, clock } = await serveApp(rules())
      clock.advanceMs(1500) // fixed windows start on the minute, unlike this request
      const nowSeconds = Math.floor(clock.nowUs() / 1e6)
      const allowed = await post(CHECK, request)
      expect(allowed.status).toBe(200)
      expect(allowed.body).toEqual({ allowed: true, remaining: 99, limit: 100, reset_at: expect.any(Number) })
      expect(Object.keys(allowed.body)).toEqual(['allowed', 'remaining', 'limit', 'reset_at'])
      for (let remaining = 98; remaining >= 0; remaining -= 1) {
        expect((await post(CHECK, request)).body).toMatchObject({ allowed: true, remaining, limit: 100 })
      }
      const denied = await post(CHECK, request)
      expect(denied.status).toBe(200)
      expect(denied.body).toMatchObject({ allowed: false, remaining: 0, limit: 100, retry_after: expect.any(Number) })
      expect(Object.keys(denied.body).slice(0, 5)).toEqual(['allowed', 'remaining', 'limit', 'reset_at', 'retry_after'])
      expect(denied.body.reset_at).toBeGreaterThan(nowSeconds)
      expect(Number.isInteger(denied.body.reset_at) && Number.isInteger(denied.body.retry_after)).toBe(true)
    },
  )
})

const BAN = {
  rule_id: 'ban',
  limit: 0,
  window_seconds: 1,
  scope: 'per_user',
  name: 'Banned "users"',
  when: { user: 'eve' },
}
const SLOW = {
  rule_id: 'slow',
  endpoint_pattern: '/slow',
  algorithm: 'leaky_bucket',
  limit: 1,
  window_seconds: 2,
  burst: 3,
}
const PAIR = {
  rule_id: 'pair',
  endpoint_pattern: '/pair',
  algorithm: 'fixed_window',
  limit: 2,
  window_seconds: 10,
  scope: ['user', 'method'],
}

describe('the answer', () => {
  test('a refusal says how long to wait, which rule refused and at which tier', async () => {
    const { check } = await serveApp([PAIR])
    const request = { client_id: 'a', endpoint: '/pair', method: 'GET' }
    await check(request)
    await check(request)
    expect(await check(request)).toEqual({
      allowed: false,
      remaining: 0,
      limit: 2,
      reset_at: 1893456010,
      retry_after: 10,
      retry_after_ms: 10000,
      rule_id: 'pair',
      violated_rule: 'pair',
      violated_tier: 'user+method',
      violated_limit: 'default',
      request_id: expect.any(String),
    })
  })

  test('a refusal names the limit of the rule that failed, beside the scope', async () => {
    const limits = [
      { limit: 3, window: '1m' },
      { limit: 4, window: '1h' },
      { name: 'daily', limit: 5, window: '1d' },
    ]
    const rule = { rule_id: 'tiers', scope: 'per_user', algorithm: 'fixed_window', limits }
    const { check, clock } = await serveApp([rule])
    const refused = async () => {
      for (;;) {
        const { allowed, violated_tier: tier, violated_limit: limit } = await check({ client_id: 'a' })
        if (!allowed) return [tier, limit]
      }
    }
    expect(await refused()).toEqual(['per_user', '1m'])
    clock.advanceUs(60_000_000)
    expect(await refused()).toEqual(['per_user', '1h'])
    clock.advanceUs(3_600_000_000)
    expect(await refused()).toEqual(['per_user', 'daily'])
  })

  test('reset_at and retry_after are rounded up, so a client that waits as long is admitted', async () => {
    const { check, clock } = await serveApp([PAIR])
    const request = { client_id: 'a', endpoint: '/pair', method: 'GET', cost: 2 }
    await check(request)
    clock.advanceMs(9001)
    expect(await check(request)).toMatchObject({ retry_after: 1, retry_after_ms: 999, reset_at: 1893456010 })
    clock.advanceMs(999)
    expect(await check(request)).toMatchObject({ allowed: true })
  })

  test('reset_at: refused, when the same request passes; allowed, when the limit is full, as full_at', async () => {
    const { check, clock, post } = await serveApp([{ rule_id: 'three', limit: 3, window_seconds: 60 }])
    for (const [remaining, reset_at] of [1893456020, 1893456040, 1893456060].entries()) {
      const answer = await check({ detail: true })
      expect(answer).toMatchObject({ allowed: true, remaining: 2 - remaining, reset_at, full_at: reset_at })
    }
    const reset = { allowed: false, reset_at: 1893456020, retry_after: 20 }
    const headers = { 'X-RateLimit-Reset': '1893456020', 'Retry-After': '20', RateLimit: '"three";r=0;t=20' }
    const rules = [{ reset_after_ms: 20_000, retry_after_ms: 20_000, full_after_ms: 60_000 }]
    expect(await check({ detail: true })).toMatchObject({ ...reset, full_at: 1893456060, headers, rules })
    expect((await post(BATCH, { checks: [{}] })).body).toMatchObject({ results: [reset] })
    const dear = { allowed: false, reset_at: 1893456040, retry_after: 40, full_at: 1893456060 }
    expect(await check({ cost: 2, detail: true })).toMatchObject(dear)
    const never = { allowed: false, reset_at: null, retry_after: null, full_at: 1893456060 }
    const { headers: without, ...answer } = await check({ cost: 4, detail: true })
    expect(answer).toMatchObject(never)
    expect(Object.keys(without as object)).not.toContain('X-RateLimit-Reset')
    clock.advanceMs(19_999)
    expect(await check({})).toMatchObject({ allowed: false, reset_at: 1893456020, retry_after_ms: 1 })
    clock.advanceMs(1)
    expect(await check({})).toMatchObject({ allowed: true })
  })

  test('no rule matched: allowed, and every number is null', async () => {
    const { check } = await serveApp([PAIR])
    expect(await check({})).toEqual({ allowed: true, remaining: null, limit: null, reset_at: null })
  })

  test('a ban has a retry_after of null and names its rule', async () => {
    const { check } = await serveApp([BAN])
    const refused = {
      allowed: false,
      limit: 0,
      retry_after: null,
      retry_after_ms: null,
      violated_rule: 'Banned "users"',
    }
    expect(await check({ client_id: 'eve' })).toMatchObject({ ...refused, violated_tier: 'per_user' })
  })

  test('a cost above the capacity is refused permanently, and consumes nothing', async () => {
    const { check } = await serveApp([PAIR])
    const request = { client_id: 'a', endpoint: '/pair', method: 'GET' }
    expect(await check({ ...request, cost: 3 })).toMatchObject({ allowed: false, remaining: 2, retry_after: null })
    expect(await check({ ...request, cost: 2 })).toMatchObject({ allowed: true, remaining: 0 })
  })

  test('a request that a leaky bucket delays has delay_ms; others do not', async () => {
    const { check } = await serveApp([SLOW])
    expect(await check({ endpoint: '/slow' })).not.toHaveProperty('delay_ms')
    expect(await check({ endpoint: '/slow' })).toMatchObject({ allowed: true, delay_ms: 2000 })
  })

  test('a dry run answers the same and consumes nothing', async () => {
    const { check, get } = await serveApp([PAIR])
    const request = { client_id: 'a', endpoint: '/pair', method: 'GET' }
    for (let times = 0; times < 3; times += 1) {
      expect(await check({ ...request, dry_run: true })).toMatchObject({ allowed: true, limit: 2, remaining: 2 })
    }
    expect(await check({ ...request, cost: 2 })).toMatchObject({ allowed: true, remaining: 0 })
    expect(await check({ ...request, dry_run: true })).toMatchObject({ allowed: false, rule_id: 'pair' })
    expect(String((await get('/metrics')).body.text)).toContain('sluice_checks_total{rule="pair",result="allowed"} 1')
  })

  test.each([
    ['an IPv4 address, and the same mapped into IPv6', '203.0.113.42', '::ffff:203.0.113.42'],
    ['two addresses of one IPv6 network', '2001:db8::1', '2001:DB8:0:0:ffff::2'],
  ])('%s are one client', async (_name, first, second) => {
    const { check } = await serveApp([{ rule_id: 'one', limit: 1, window_seconds: 60, scope: 'per_ip' }])
    expect(await check({ ip_address: first })).toMatchObject({ allowed: true })
    expect(await check({ ip_address: second })).toMatchObject({ allowed: false })
  })

  test('every fact of the body reaches the rules', async () => {
    const facts = { ip_address: '10.1.2.3', api_key: 'k', tenant: 't', plan: 'p', method: 'put', endpoint: '/x?q=1' }
    const when = { ip: '10.0.0.0/8', api_key: 'k', tenant: 't', plan: 'p', 'header.x': 'y', level: '3', beta: 'true' }
    const rule = { rule_id: 'all', endpoint_pattern: '/x', method: 'PUT', limit: 9, window_seconds: 1, when }
    const { check } = await serveApp([rule])
    const attributes = { 'header.x': 'y', level: 3, beta: true }
    expect(await check({ ...facts, attributes })).toMatchObject({ limit: 9 })
    for (const fact of Object.keys(facts)) {
      expect(await check({ ...facts, attributes, [fact]: undefined }), fact).toMatchObject({ limit: null })
    }
    expect(await check({ ...facts, attributes: { ...attributes, level: 4 } })).toMatchObject({ limit: null })
  })
})

describe('request ids', () => {
  test('a request id that was sent comes back; a generated one comes only with a refusal', async () => {
    const { check } = await serveApp([PAIR])
    const request = { client_id: 'a', endpoint: '/pair', method: 'GET' }
    expect(await check({ ...request, request_id: 'mine' })).toMatchObject({ allowed: true, request_id: 'mine' })
    expect(await check(request)).not.toHaveProperty('request_id')
    expect(await check(request)).toMatchObject({ allowed: false, request_id: expect.any(String) })
    expect(await check({ ...request, request_id: 'mine' })).toMatchObject({ allowed: false, request_id: 'mine' })
  })

  test('an answer that grants a permit contains its id', async () => {
    const { check } = await serveApp([{ rule_id: 'two', algorithm: 'concurrency', limit: 2, window_seconds: 60 }])
    expect(await check({})).toMatchObject({ allowed: true, request_id: expect.any(String) })
  })
})

test('detail adds every limit and the response headers for the client', async () => {
  const { check } = await serveApp([MESSAGES_RULE, { rule_id: 'all', limit: 1000, window_seconds: 1 }])
  const answer = await check({ ...MESSAGES_REQUEST, detail: true })
  expect(answer).toMatchObject({
    allowed: true,
    remaining: 99,
    request_id: expect.any(String),
    source: 'store',
    version: 1,
    rules: expect.arrayContaining([
      expect.objectContaining({ rule_id: 'all', limit: 1000, remaining: 999, window_ms: 1000, scope: 'global' }),
      expect.objectContaining({ rule_id: 'messages_per_min', limit: 100, remaining: 99, scope: 'per_user' }),
    ]),
    headers: { 'X-RateLimit-Limit': '100', 'X-RateLimit-Remaining': '99', 'RateLimit-Policy': expect.any(String) },
  })
  const headers = answer.headers as Record<string, string>
  expect(headers['X-RateLimit-Reset']).toBe(String(answer.reset_at))
})

test('detail of a refusal has the Retry-After of the answer', async () => {
  const { check } = await serveApp([PAIR])
  const request = { client_id: 'a', endpoint: '/pair', method: 'GET', cost: 2 }
  await check(request)
  expect(await check({ ...request, detail: true })).toMatchObject({
    retry_after: 10,
    headers: { 'Retry-After': '10', 'X-RateLimit-Remaining': '0' },
    rules: [{ rule_id: 'pair', allowed: false, short: 'now', retry_after_ms: 10000 }],
  })
})
