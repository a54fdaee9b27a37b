import { describe, expect, test, vi } from 'vitest'
import { parseCidr } from '../canonical/cidr.ts'
import { createLimiter } from '../limiter.ts'
import type { Limiter } from '../limiter-api.ts'
import { memoryStore } from '../store/memory.ts'
import { fakeClock } from '../testing/fake-clock.ts'
import { manualTimers } from '../testing/manual-timers.ts'
import { checkToResponse } from './decision-response.ts'
import { type HttpRequest, subjectFromRequest } from './request.ts'

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
    ['the client that a trusted proxy reports', { trusted, header: 'x-forwarded-for' }, '203.0.113.1'],
    ['the client in the configured header', { trusted, header: 'forwarded' }, '203.0.113.2'],
  ] as const)('has the address of %s, the method, and the raw path without the query', (_who, proxies, ip) => {
    expect(subjectFromRequest(requestOf(headers), proxies)).toEqual({ ip, method: 'POST', path: '/a//b/' })
  })
})

describe('the response to a decision', () => {
  test('has headers and no body if the request is allowed', async () => {
    const result = await checkToResponse(limiterOf({ limit: 1, scope: 'per_ip' }), { ip: '1.2.3.4' }, { clock: CLOCK })
    expect(result).toMatchObject({ allowed: true, status: 200, body: undefined, decision: { ruleId: 'test' } })
    expect(result.headers).toMatchObject({ 'X-RateLimit-Limit': '1', 'X-RateLimit-Remaining': '0' })
    expect(result.headers).not.toHaveProperty('Content-Type')
  })

  test('is a problem document with the same wait as Retry-After, jitter included, if it is refused', async () => {
    const limiter = limiterOf({ limit: 1, scope: 'per_ip' })
    await checkToResponse(limiter, { ip: '1.2.3.4' })
    const headers = { retryAfterJitterSeconds: 9, random: () => 0.5 }
    const result = await checkToResponse(limiter, { ip: '1.2.3.4' }, { clock: CLOCK, headers })
    expect(result).toMatchObject({ allowed: false, status: 429 })
    expect(JSON.parse(result.body ?? '')).toMatchObject({ status: 429, retry_after: 65 })
    expect(result.headers).toMatchObject({ 'Content-Type': 'application/problem+json', 'Retry-After': '65' })
  })

  test('releases its permits once, however often done() is called', async () => {
    const limiter = limiterOf({ limit: 1, scope: 'global', algorithm: 'concurrency' })
    const first = await checkToResponse(limiter, {})
    const second = await checkToResponse(limiter, {})
    second.done() // holds nothing: must not free the permit of the first
    expect((await checkToResponse(limiter, {})).allowed).toBe(false)
    first.done()
    const third = await checkToResponse(limiter, {})
    first.done()
    expect([third.allowed, (await checkToResponse(limiter, {})).allowed]).toEqual([true, false])
  })

  test('ignores a release that fails', async () => {
    const limiter = limiterOf({ limit: 1, scope: 'global', algorithm: 'concurrency' })
    vi.spyOn(limiter, 'release').mockRejectedValue(new Error('gone'))
    const result = await checkToResponse(limiter, {})
    expect(() => result.done()).not.toThrow()
  })

  test('is text if the client prefers it', async () => {
    const limiter = limiterOf({ limit: 0, scope: 'per_ip' })
    const result = await checkToResponse(limiter, { ip: '1.2.3.4' }, {}, 'text/html, */*;q=0.8')
    expect(result.headers['Content-Type']).toBe('text/plain; charset=utf-8')
    expect(result.body).toBe('Too many requests. Refused by rule test (per_ip). Limit: 0. Waiting will not help.\n')
  })

  test('refunds the request if `refunds` says so for its status', async () => {
    const limiter = limiterOf({ limit: 1, scope: 'global' })
    const options = { refunds: (status: number) => status >= 500 }
    const statuses = [503, 200, 503]
    const allowed: boolean[] = []
    for (const status of statuses) {
      const result = await checkToResponse(limiter, {}, options)
      allowed.push(result.allowed)
      result.done(status)
      result.done(503)
    }
    expect(allowed).toEqual([true, true, false])
  })

  test('renews its permits until done() is called', async () => {
    const timers = manualTimers()
    const clock = fakeClock()
    const rules = [{ rule_id: 'a', limit: 1, window_seconds: 9, scope: 'global', algorithm: 'concurrency' }]
    const limiter = createLimiter({ rules, store: memoryStore({ clock }) })
    const advance = async () => {
      clock.advanceUs(3_000_000)
      timers.advance(3000)
      await Promise.resolve()
    }
    const first = await checkToResponse(limiter, {}, { timers })
    for (let third = 0; third < 9; third += 1) await advance()
    expect((await checkToResponse(limiter, {})).allowed).toBe(false)
    const renew = vi.spyOn(limiter, 'renew')
    first.done()
    await advance()
    expect(renew).not.toHaveBeenCalled()
    expect((await checkToResponse(limiter, {})).allowed).toBe(true)
  })

  test('has no headers if no rule matches', async () => {
    const result = await checkToResponse(limiterOf({ limit: 1, scope: 'per_ip', endpoint_pattern: '/other' }), {
      path: '/',
    })
    expect(result).toMatchObject({ allowed: true, headers: {} })
  })
})
