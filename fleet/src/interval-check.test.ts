import { describe, expect, test } from 'vitest'
import { ExactBucket, IntervalCheck } from './interval-check.ts'

const ALLOWANCE = { burst: 3, perMs: 0.01 }

describe('the interval check', () => {
  test('accepts what one exact bucket admits', () => {
    const check = new IntervalCheck(ALLOWANCE)
    const bucket = new ExactBucket(ALLOWANCE)
    for (let nowMs = 0; nowMs < 5000; nowMs += 7) if (bucket.take(nowMs)) check.admitted(nowMs, nowMs)
    expect(check.violations).toBe(0)
    expect(check.peakUsage).toBeGreaterThan(0.95)
  })

  test('detects one unit above the burst', () => {
    const check = new IntervalCheck(ALLOWANCE)
    for (let count = 0; count < 4; count += 1) check.admitted(0, 0)
    expect(check.violations).toBe(1)
  })

  test('detects a rate that is slightly too high', () => {
    const check = new IntervalCheck(ALLOWANCE)
    for (let nowMs = 0; nowMs < 20_000; nowMs += 90) check.admitted(nowMs, nowMs)
    expect(check.violations).toBeGreaterThan(0)
  })

  test('does not count late responses as a burst, because each may have been decided when it was sent', () => {
    const check = new IntervalCheck(ALLOWANCE)
    for (let sentMs = 0; sentMs < 1000; sentMs += 100) check.admitted(sentMs, 1000)
    expect(check.violations).toBe(0)
  })

  test('detects an excess after a long pause', () => {
    const check = new IntervalCheck(ALLOWANCE)
    check.admitted(0, 1)
    for (let count = 0; count < 4; count += 1) check.admitted(200_000, 200_000)
    expect(check.violations).toBe(1)
  })
})
