import { expect, test } from 'vitest'
import { compileLimit } from '../algorithms/limit.ts'
import type { Grant } from '../store/store.ts'
import { Lease } from './lease.ts'

const limit = compileLimit({ id: 'r', algorithm: 'token_bucket', units: 100, windowUs: 1_000_000, lease: {} })
const GRANT: Grant = { units: 10, short: false, remaining: 90, resetAfterUs: 100_000, retryAfterUs: 0, delayUs: 0 }
const BOOKED_US = 5_000_000

function filled(units: number): Lease {
  const lease = new Lease(limit, 'alice', '')
  lease.fill(units, GRANT, BOOKED_US, 0, 1)
  return lease
}

test('units that were never spent from a lease do not come back to it: the store did not count them as held', () => {
  const lease = filled(9)
  expect(lease.unspend(1, BOOKED_US, 2)).toBe(false)
  expect(lease.held(2)).toBe(9)
  lease.spend(2, 2)
  expect(lease.unspend(3, BOOKED_US, 2)).toBe(false)
  expect(lease.unspend(2, BOOKED_US, 2)).toBe(true)
  expect(lease.held(2)).toBe(9)
})

test('a lease is good from when it was asked for, not from when it came', () => {
  const lease = filled(9)
  expect(lease.held(lease.ttlMs - 2)).toBe(9)
  expect(lease.held(lease.ttlMs)).toBe(0)
  expect(new Lease(limit, 'alice', '').fill(9, GRANT, BOOKED_US, 0, lease.ttlMs), 'too late').toBe(false)
})

test('what is settled is told once: what comes back, and what is on lease no more', () => {
  const lease = filled(9)
  lease.spend(4, 2)
  expect(lease.settle(3, 'asking'), 'it is still good').toEqual([])
  expect(lease.settle(3, 'ending')).toMatchObject([{ units: 5, settled: 9, bookedUs: BOOKED_US }])
  expect(lease.settle(3, 'ending')).toEqual([])
})
