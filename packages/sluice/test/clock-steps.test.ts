// Setting the system clock: an hour ahead refills no bucket in memory, an hour back locks no client out, and reported
// times are times of day.

import { createLimiter, type Limiter, memoryStore, wallClock } from 'sluice'
import { afterEach, describe, expect, test, vi } from 'vitest'
import { steadyClock } from '../src/clock.ts'
import { responseFromDecision } from '../src/http/decision-response.ts'

const HOUR_MS = 3_600_000
const START_MS = Date.UTC(2030, 0, 1)
const ALGORITHMS = ['token_bucket', 'leaky_bucket', 'fixed_window', 'sliding_window', 'sliding_window_log'] as const
const STEPS = [
  ['ahead', HOUR_MS],
  ['back', -HOUR_MS],
] as const
const CASES = ALGORITHMS.flatMap((algorithm) => STEPS.map(([name, byMs]) => [algorithm, name, byMs] as const))

afterEach(() => {
  vi.restoreAllMocks()
})

function limiterOf(algorithm: string, store = memoryStore(), windowSeconds = 60): Limiter {
  const rule = { rule_id: 'r', scope: 'per_user', algorithm, limit: 5, window_seconds: windowSeconds }
  return createLimiter({ rules: [rule], store })
}

/** Number of admitted requests out of 20. */
function admitted(limiter: Limiter): number {
  return Array.from({ length: 20 }, () => limiter.checkSync({ user: 'alice' })).filter((one) => one?.allowed).length
}

/** The two clocks of a machine, advanced by the test. */
function machine() {
  const now = { wallMs: START_MS, elapsedMs: 0 }
  const clock = steadyClock({ nowUs: () => now.wallMs * 1000 }, () => now.elapsedMs)
  const pass = (ms: number) => {
    now.wallMs += ms
    now.elapsedMs += ms
  }
  return { now, clock, pass }
}

describe('with the system clock', () => {
  test.each(CASES)('%s: setting it an hour %s refills nothing', (algorithm, _, byMs) => {
    const limiter = limiterOf(algorithm, memoryStore(), 1800)
    const before = admitted(limiter)
    setSystemClock(byMs)
    expect([before, admitted(limiter)]).toEqual([5, 0])
  })

  test.each(STEPS)('reset_at is a wall-clock time, even after the clock was set an hour %s', (_, byMs) => {
    const limiter = limiterOf('token_bucket')
    admitted(limiter)
    const nowMs = wallClock.nowUs() / 1000 + byMs
    setSystemClock(byMs)
    const decision = limiter.checkSync({ user: 'alice' })
    const headers = decision && responseFromDecision(limiter, decision, { headers: { style: 'legacy' } }, '').headers
    expect(Math.abs((decision?.resetAtMs ?? 0) - nowMs - 12_000)).toBeLessThan(10_000)
    expect(Math.abs((decision?.fullAtMs ?? 0) - nowMs - 60_000)).toBeLessThan(10_000)
    expect(Math.abs(Number(headers?.['X-RateLimit-Reset']) * 1000 - nowMs - 12_000)).toBeLessThan(10_000)
  })

  test('fake timers of a test framework refill buckets in memory', () => {
    const limiter = limiterOf('token_bucket')
    vi.useFakeTimers()
    const before = [admitted(limiter), admitted(limiter)]
    vi.advanceTimersByTime(60_000)
    const after = admitted(limiter)
    vi.useRealTimers()
    expect([before, after]).toEqual([[5, 0], 5])
  })

  test('a rule expires by wall-clock time', () => {
    const ends = new Date(wallClock.nowUs() / 1000 + HOUR_MS / 2).toISOString()
    const limiter = createLimiter({ rules: [{ rule_id: 'r', limit: 1, window_seconds: 60, expires_at: ends }] })
    expect(admitted(limiter)).toBe(1)
    setSystemClock(HOUR_MS)
    expect(admitted(limiter)).toBe(20)
  })
})

describe('with a fake clock', () => {
  test.each(CASES)(
    '%s: after the clock was set an hour %s, a client that waits retryAfterMs is admitted',
    (algorithm, _, byMs) => {
      const { now, clock, pass } = machine()
      const limiter = limiterOf(algorithm, memoryStore({ clock }))
      pass(20_000)
      admitted(limiter)
      now.wallMs += byMs
      pass(5000)
      const refused = limiter.checkSync({ user: 'alice' })
      expect(refused).toMatchObject({ allowed: false })
      expect(refused?.retryAfterMs).toBeLessThanOrEqual(60_000)
      pass(refused?.retryAfterMs ?? 0)
      expect(limiter.checkSync({ user: 'alice' })).toMatchObject({ allowed: true })
    },
  )

  test.each(STEPS)('a day after the clock was set an hour %s, daily windows start at midnight again', (_, byMs) => {
    const { now, clock, pass } = machine()
    const limiter = limiterOf('fixed_window', memoryStore({ clock }), 86_400)
    const endsAt = () => new Date(limiter.checkSync({ user: 'alice' })?.resetAtMs ?? 0).toISOString()
    pass(HOUR_MS)
    expect(endsAt()).toBe('2030-01-02T00:00:00.000Z')
    now.wallMs += byMs
    pass(HOUR_MS)
    expect(endsAt(), 'the current window keeps its end').toBe(new Date(START_MS + 86_400_000 + byMs).toISOString())
    pass(22 * HOUR_MS)
    pass(HOUR_MS)
    const [midnight] = endsAt().split('T').slice(1)
    expect(midnight).toBe('00:00:00.000Z')
  })
})

/** Shifts wall-clock time from now on. */
function setSystemClock(byMs: number): void {
  const now = Date.now
  vi.spyOn(Date, 'now').mockImplementation(() => now() + byMs)
}
