import { describe, expect, test, vi } from 'vitest'
import { createLimiter, type Limiter } from '../limiter.ts'
import { memoryStore } from '../store/memory.ts'
import { fakeClock } from '../testing/fake-clock.ts'
import { handTimers } from '../testing/hand-timers.ts'
import { parseCidr } from './cidr.ts'
import { type HttpRequest, judge, subjectOf } from './verdict.ts'

const CLOCK = { nowUs: () => 1_700_000_000_000_000 }

function limiterOf(rule: object): Limiter {
  return createLimiter({
    rules: [{ rule_id: 'test', window_seconds: 60, ...rule }],
    store: memoryStore({ clock: CLOCK }),
  })
}

function requestOf(headers: Readonly<Record<string, string>> = {}): HttpRequest {
  return { method: 'POST', url: '/a//b/?c=d', peer: '10.0.0.1', header: (name) => headers[name] }
}

describe('the subject of a request', () => {
  const trusted = [parseCidr('10.0.0.0/8') ?? expect.unreachable()]
  const headers = { 'x-forwarded-for': '203.0.113.1', forwarded: 'for=203.0.113.2' }

  test.each([
    ['the peer by default', undefined, '10.0.0.1'],
    ['whom a trusted proxy names', { trusted, header: 'x-forwarded-for' }, '203.0.113.1'],
    ['whom it names in the header that it writes', { trusted, header: 'forwarded' }, '203.0.113.2'],
  ] as const)('is %s, with the method, and the path as it was sent without its query', (_who, proxies, ip) => {
    expect(subjectOf(requestOf(headers), proxies)).toEqual({ ip, method: 'POST', path: '/a//b/' })
  })
})

describe('a verdict', () => {
  test('that allows has headers and no body', async () => {
    const verdict = await judge(limiterOf({ limit: 1, scope: 'per_ip' }), { ip: '1.2.3.4' }, { clock: CLOCK })
    expect(verdict).toMatchObject({ allowed: true, status: 200, body: undefined, decision: { ruleId: 'test' } })
    expect(verdict.headers).toMatchObject({ 'X-RateLimit-Limit': '1', 'X-RateLimit-Remaining': '0' })
    expect(verdict.headers).not.toHaveProperty('Content-Type')
  })

  test('that refuses is a problem document whose wait equals Retry-After, jitter included', async () => {
    const limiter = limiterOf({ limit: 1, scope: 'per_ip' })
    await judge(limiter, { ip: '1.2.3.4' })
    const headers = { retryAfterJitterSeconds: 9, random: () => 0.5 }
    const verdict = await judge(limiter, { ip: '1.2.3.4' }, { clock: CLOCK, headers })
    expect(verdict).toMatchObject({ allowed: false, status: 429 })
    expect(JSON.parse(verdict.body ?? '')).toMatchObject({ status: 429, retry_after: 65 })
    expect(verdict.headers).toMatchObject({ 'Content-Type': 'application/problem+json', 'Retry-After': '65' })
  })

  test('releases its permits once, however often it is done', async () => {
    const limiter = limiterOf({ limit: 1, scope: 'global', algorithm: 'concurrency' })
    const first = await judge(limiter, {})
    const second = await judge(limiter, {})
    second.done() // holds nothing: must not free the permit of the first
    expect((await judge(limiter, {})).allowed).toBe(false)
    first.done()
    const third = await judge(limiter, {})
    first.done()
    expect([third.allowed, (await judge(limiter, {})).allowed]).toEqual([true, false])
  })

  test('survives a release that fails', async () => {
    const limiter = limiterOf({ limit: 1, scope: 'global', algorithm: 'concurrency' })
    vi.spyOn(limiter, 'release').mockRejectedValue(new Error('gone'))
    const verdict = await judge(limiter, {})
    expect(() => verdict.done()).not.toThrow()
  })

  test('that refuses is a text for who would rather read that', async () => {
    const limiter = limiterOf({ limit: 0, scope: 'per_ip' })
    const verdict = await judge(limiter, { ip: '1.2.3.4' }, {}, 'text/html, */*;q=0.8')
    expect(verdict.headers['Content-Type']).toBe('text/plain; charset=utf-8')
    expect(verdict.body).toBe('Too many requests. Refused by rule test. Limit: 0. Waiting will not help.\n')
  })

  test('gives back what was taken when the status is one that is refunded', async () => {
    const limiter = limiterOf({ limit: 1, scope: 'global' })
    const options = { refunds: (status: number) => status >= 500 }
    const statuses = [503, 200, 503]
    const allowed: boolean[] = []
    for (const status of statuses) {
      const verdict = await judge(limiter, {}, options)
      allowed.push(verdict.allowed)
      verdict.done(status)
      verdict.done(503)
    }
    expect(allowed).toEqual([true, true, false])
  })

  test('renews its permits until it is done', async () => {
    const timers = handTimers()
    const clock = fakeClock()
    const rules = [{ rule_id: 'a', limit: 1, window_seconds: 9, scope: 'global', algorithm: 'concurrency' }]
    const limiter = createLimiter({ rules, store: memoryStore({ clock }) })
    const advance = async () => {
      clock.advanceUs(3_000_000)
      timers.advance(3000)
      await Promise.resolve()
    }
    const first = await judge(limiter, {}, { timers })
    for (let third = 0; third < 9; third += 1) await advance()
    expect((await judge(limiter, {})).allowed).toBe(false)
    const renew = vi.spyOn(limiter, 'renew')
    first.done()
    await advance()
    expect(renew).not.toHaveBeenCalled()
    expect((await judge(limiter, {})).allowed).toBe(true)
  })

  test('of a request that no rule matches has no headers', async () => {
    const verdict = await judge(limiterOf({ limit: 1, scope: 'per_ip', endpoint_pattern: '/other' }), { path: '/' })
    expect(verdict).toMatchObject({ allowed: true, headers: {} })
  })
})
