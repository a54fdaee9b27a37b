import fc from 'fast-check'
import { type Item, parseList } from 'structured-headers'
import { describe, expect, test } from 'vitest'
import type { Decision, Outcome } from '../decision.ts'
import { joinedHeaders, rateLimitHeaders, retryAfterSeconds } from './headers.ts'
import { quotaExceeded } from './problem.ts'

const NOW_US = 1_700_000_000_250_000

const OUTCOME: Outcome = {
  ruleId: 'messages_per_user',
  name: 'default',
  scope: 'per_user',
  algorithm: 'token_bucket',
  mode: 'enforce',
  allowed: true,
  short: false,
  limit: 100,
  burst: 100,
  windowMs: 60_000,
  cost: 1,
  remaining: 42,
  resetAfterMs: 34_800,
  fullAfterMs: 34_800,
  retryAfterMs: 0,
  delayMs: 0,
  priority: 1,
}

/** A decision with the numbers of its first outcome. */
function decisionOf(...changes: readonly Partial<Outcome>[]): Decision {
  const outcomes = changes.map((change) => ({ ...OUTCOME, ...change }))
  const first = outcomes[0]
  return {
    allowed: outcomes.every((outcome) => outcome.allowed),
    ruleId: first?.ruleId ?? null,
    limit: first?.limit ?? null,
    remaining: first?.remaining ?? null,
    resetAfterMs: first?.resetAfterMs ?? null,
    resetAtMs: null,
    fullAfterMs: first?.fullAfterMs ?? null,
    fullAtMs: null,
    retryAfterMs: first?.retryAfterMs ?? null,
    delayMs: 0,
    source: 'store',
    version: 1,
    requestId: 'req-1',
    outcomes,
    exceptions: [],
  }
}

const WAITS = { retryAfterMs: 12_001, resetAfterMs: 12_001, fullAfterMs: 60_000 }
const REFUSED = { allowed: false, short: 'now', remaining: 0, ...WAITS } as const

describe('the headers of a decision, exactly', () => {
  test('allowed', () => {
    expect(rateLimitHeaders(decisionOf({}), NOW_US)).toEqual({
      'X-RateLimit-Limit': '100',
      'X-RateLimit-Remaining': '42',
      'X-RateLimit-Reset': '1700000036',
      'RateLimit-Policy': '"messages_per_user";q=100;w=60',
      RateLimit: '"messages_per_user";r=42;t=35',
    })
  })

  test('refused: the wait is rounded up, and the refusing limit reports the same', () => {
    expect(rateLimitHeaders(decisionOf(REFUSED), NOW_US)).toEqual({
      'X-RateLimit-Limit': '100',
      'X-RateLimit-Remaining': '0',
      'X-RateLimit-Reset': '1700000013',
      'RateLimit-Policy': '"messages_per_user";q=100;w=60',
      RateLimit: '"messages_per_user";r=0;t=13',
      'Retry-After': '13',
    })
  })

  test('allowed, with too little left for the same request: t until full, and when that request passes', () => {
    const spent = decisionOf({ remaining: 0, resetAfterMs: 60_000, retryAfterMs: 19_001 })
    expect(rateLimitHeaders(spent, NOW_US)).toMatchObject({
      'X-RateLimit-Reset': '1700000061',
      RateLimit: '"messages_per_user";r=0;t=60;sluice-retry-after=20',
    })
    const window = decisionOf({ remaining: 0, resetAfterMs: 60_000, retryAfterMs: 60_000 })
    expect(rateLimitHeaders(window, NOW_US).RateLimit).toBe('"messages_per_user";r=0;t=60')
  })

  test('several limits: one item each, named by rule and limit, without shadow limits', () => {
    const headers = rateLimitHeaders(
      decisionOf(
        { ruleId: 'api', name: 'second', limit: 10, windowMs: 1000, remaining: 9, resetAfterMs: 100 },
        { ruleId: 'api', name: 'day', limit: 5000, windowMs: 86_400_000, remaining: 4999, resetAfterMs: 17_280 },
        { ruleId: 'trial', mode: 'shadow', allowed: false },
        { ruleId: 'uploads', algorithm: 'concurrency', limit: 4, windowMs: 30_000, remaining: 3, resetAfterMs: 30_000 },
      ),
      NOW_US,
      { style: 'draft-11' },
    )
    expect(headers).toMatchObject({
      'RateLimit-Policy': '"api:second";q=10;w=1, "api:day";q=5000;w=86400, "uploads";q=4;qu="concurrent-requests"',
      RateLimit: '"api:second";r=9;t=1, "api:day";r=4999;t=18, "uploads";r=3',
    })
  })

  test('draft-6: three fields instead of the list, with seconds from now', () => {
    expect(rateLimitHeaders(decisionOf({}), NOW_US, { style: 'draft-6' })).toEqual({
      'RateLimit-Limit': '100',
      'RateLimit-Remaining': '42',
      'RateLimit-Reset': '35',
    })
  })

  test('none: only Retry-After', () => {
    const none = { style: 'none' } as const
    expect(rateLimitHeaders(decisionOf({}), NOW_US, none)).toEqual({})
    expect(rateLimitHeaders(decisionOf(REFUSED), NOW_US, none)).toEqual({ 'Retry-After': '13' })
  })

  test('no rule matched: no headers', () => expect(rateLimitHeaders(decisionOf(), NOW_US)).toEqual({}))

  test('waiting will not help: neither Retry-After nor t', () => {
    const ban = { ...REFUSED, limit: 0, retryAfterMs: null, resetAfterMs: null }
    const headers = rateLimitHeaders(decisionOf(ban), NOW_US)
    expect(headers).toEqual({
      'X-RateLimit-Limit': '0',
      'X-RateLimit-Remaining': '0',
      'RateLimit-Policy': '"messages_per_user";q=0;w=60',
      RateLimit: '"messages_per_user";r=0',
    })
  })

  test('a window below a second is reported as one second', () => {
    const headers = rateLimitHeaders(decisionOf({ windowMs: 100, resetAfterMs: 0 }), NOW_US)
    expect(headers).toMatchObject({
      'RateLimit-Policy': expect.stringContaining(';w=1'),
      RateLimit: expect.stringContaining(';t=0'),
    })
  })
})

describe('Retry-After', () => {
  test.each([
    [0, 1],
    [1, 1],
    [1000, 1],
    [1001, 2],
    [59_999, 60],
  ])('%i ms → %i s', (retryAfterMs, expected) => {
    expect(retryAfterSeconds(decisionOf({ ...REFUSED, retryAfterMs }))).toBe(expected)
  })

  test('jitter is uniform over whole seconds and never negative', () => {
    const waits = [0, 0.2499, 0.25, 0.5, 0.75, 0.9999].map((random) =>
      retryAfterSeconds(decisionOf(REFUSED), { retryAfterJitterSeconds: 3, random: () => random }),
    )
    expect(waits).toEqual([13, 13, 14, 15, 16, 16])
  })
})

describe('as a structured field', () => {
  const nonNegative = fc.oneof(fc.nat(1000), fc.maxSafeNat(), fc.constant(Number.POSITIVE_INFINITY))
  const name = fc.oneof(
    fc.constant('default'),
    fc.string({ unit: 'binary', minLength: 1 }),
    fc.constantFrom('a"b', 'a\\', 'é', '\r\nX: y'),
  )
  const outcome = fc.record({
    ruleId: fc.stringMatching(/^[a-z0-9_.-]{1,64}$/),
    name,
    limit: nonNegative,
    windowMs: nonNegative,
    remaining: nonNegative,
    resetAfterMs: nonNegative,
  })

  test('any names and numbers parse back to one item per limit', () => {
    fc.assert(
      fc.property(fc.array(outcome, { minLength: 1, maxLength: 4 }), (outcomes) => {
        const decision = decisionOf(...outcomes)
        const headers = rateLimitHeaders(decision, NOW_US)
        const policies = parseList(headers['RateLimit-Policy'] ?? '') as Item[]
        const states = parseList(headers.RateLimit ?? '') as Item[]
        const names = quotaExceeded(decisionOf(...outcomes.map((each) => ({ ...each, allowed: false }))))[
          'violated-policies'
        ]
        expect(policies.map(([item]) => item)).toEqual(names)
        expect(states.map(([item]) => item)).toEqual(names)
        for (const [, parameters] of policies) expect(parameters.get('w')).toBeGreaterThanOrEqual(1)
        for (const [, parameters] of states) expect(parameters.get('r')).toBeLessThanOrEqual(999_999_999_999_999)
      }),
    )
  })

  test('an ordinary name stays unchanged', () => {
    const [item] = parseList(rateLimitHeaders(decisionOf({ name: 'say "hi"\\' }), NOW_US).RateLimit ?? '') as Item[]
    expect(item?.[0]).toBe('messages_per_user:say "hi"\\')
    expect([...(item?.[1] ?? [])]).toEqual([
      ['r', 42],
      ['t', 35],
    ])
  })
})

describe('the problem document', () => {
  test('has the violated policies, named as in RateLimit-Policy, the request id and the wait', () => {
    const decision = decisionOf(
      { ...REFUSED, name: 'minute' },
      { ruleId: 'other' },
      { ruleId: 'trial', mode: 'shadow', allowed: false },
    )
    expect(quotaExceeded(decision)).toEqual({
      type: 'https://iana.org/assignments/http-problem-types#quota-exceeded',
      title: 'Too many requests',
      status: 429,
      detail: 'Refused by rule messages_per_user (per_user). Limit: 100. Try again in 13 s.',
      'violated-policies': ['messages_per_user:minute'],
      request_id: 'req-1',
      rule_id: 'messages_per_user',
      violated_rule: 'messages_per_user',
      violated_tier: 'per_user',
      violated_limit: 'minute',
      retry_after: 13,
      retry_after_ms: 12_001,
    })
  })

  test('of several limits that refuse, names the one with the longest wait', () => {
    const longer = { ...REFUSED, ruleId: 'day', name: '1d', scope: 'per_ip', retryAfterMs: 60_000 }
    const decision = { ...decisionOf(REFUSED, longer), ruleId: 'day', retryAfterMs: 60_000 }
    expect(quotaExceeded(decision, 62, 'Per day')).toMatchObject({
      ...{ rule_id: 'day', violated_rule: 'Per day', violated_tier: 'per_ip', violated_limit: '1d' },
      ...{ retry_after: 62, retry_after_ms: 60_000 },
    })
  })

  test('says so when waiting will not help', () => {
    const problem = quotaExceeded(decisionOf({ ...REFUSED, retryAfterMs: null }))
    expect(problem).toMatchObject({
      retry_after: null,
      retry_after_ms: null,
      detail: expect.stringContaining('Waiting will not help.'),
    })
  })
})

describe('on a response that has headers of another limiter', () => {
  const legacy = (limit: number, remaining: number, reset: number) => ({
    'X-RateLimit-Limit': String(limit),
    'X-RateLimit-Remaining': String(remaining),
    'X-RateLimit-Reset': String(reset),
  })
  const join = (own: Record<string, string>, other: Record<string, string>, allowed = true) => ({
    ...other,
    ...joinedHeaders(own, allowed, (name) => other[name]),
  })

  test('policies are appended', () => {
    const lists = (name: string) => ({ 'RateLimit-Policy': `"${name}";q=1;w=1`, RateLimit: `"${name}";r=1;t=1` })
    expect(join(lists('b'), lists('a'))).toEqual({
      'RateLimit-Policy': '"a";q=1;w=1, "b";q=1;w=1',
      RateLimit: '"a";r=1;t=1, "b";r=1;t=1',
    })
  })

  test.each([
    ['the scarcer numbers stay', legacy(10, 5, 1), legacy(10, 4, 2), true, 4],
    ['the scarcer numbers come', legacy(10, 3, 1), legacy(10, 4, 2), true, 3],
    ['a refusal comes', legacy(10, 3, 1), legacy(10, 0, 2), false, 3],
    ['a refusal stays', legacy(10, 1, 1), { ...legacy(10, 2, 2), 'Retry-After': '1' }, true, 2],
    ['nothing was there', legacy(10, 1, 1), {}, true, 1],
  ])('of two sets of three fields, %s', (_what, own, other, allowed, remaining) => {
    expect(join(own, other, allowed)['X-RateLimit-Remaining']).toBe(String(remaining))
    const whole = join(own, other, allowed)['X-RateLimit-Reset'] === own['X-RateLimit-Reset'] ? own : other
    expect(join(own, other, allowed)).toMatchObject(whole)
  })
})
