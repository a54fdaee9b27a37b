import { expect, test } from 'vitest'
import { compileLimit } from '../algorithms/limit.ts'
import type { Give, Grant } from '../store/store.ts'
import { Lease, ROW_LENGTH } from './lease.ts'

const TTL_MS = 2000
const limit = compileLimit({
  ...{ id: 'r', algorithm: 'token_bucket', units: 100, windowUs: 1_000_000 },
  lease: { ttlUs: TTL_MS * 1000 },
})
const bucket = { limit, owner: 'alice', detail: '' }
const GRANT: Grant = { units: 10, short: false, remaining: 90, resetAfterUs: 100_000, retryAfterUs: 0, delayUs: 0 }
const BOOKED_US = 5_000_000

function fresh(): Lease {
  const lease = new Lease().move(new Float64Array(ROW_LENGTH), 0)
  lease.clear()
  return lease
}

function filled(units: number): Lease {
  const lease = fresh()
  lease.fill(bucket, units, GRANT, BOOKED_US, 0, 1)
  return lease
}

function settled(lease: Lease, nowMs: number, when: 'asking' | 'ending'): Give[] {
  const gives: Give[] = []
  lease.settle(bucket, nowMs, when, gives)
  return gives
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
  expect(lease.held(TTL_MS - 2)).toBe(9)
  expect(lease.held(TTL_MS)).toBe(0)
  expect(fresh().fill(bucket, 9, GRANT, BOOKED_US, 0, TTL_MS), 'too late').toBe(false)
})

test('what is settled is told once: what comes back, and what is on lease no more', () => {
  const lease = filled(9)
  lease.spend(4, 2)
  expect(settled(lease, 3, 'asking'), 'it is still good').toEqual([])
  expect(settled(lease, 3, 'ending')).toMatchObject([{ units: 5, settled: 9, bookedUs: BOOKED_US }])
  expect(settled(lease, 3, 'ending')).toEqual([])
})

test('holds two parcels, spends the first one first, and has no room for a third', () => {
  const lease = filled(3)
  expect(lease.fill(bucket, 5, GRANT, BOOKED_US + 1, 1, 2)).toBe(true)
  expect(lease.fill(bucket, 7, GRANT, BOOKED_US + 2, 2, 3)).toBe(false)
  expect(lease.nextBatch(bucket, 3), 'it need not be asked for').toBe(0)
  expect([lease.spend(2, 3), lease.spend(1, 3), lease.spend(2, 3)]).toEqual([BOOKED_US, BOOKED_US, BOOKED_US + 1])
  expect(settled(lease, 3, 'asking')).toMatchObject([{ units: 0, settled: 3, bookedUs: BOOKED_US }])
  expect(lease.fill(bucket, 7, GRANT, BOOKED_US + 2, 2, 3)).toBe(true)
  expect(lease.held(3)).toBe(3 + 7)
})

test('a payment comes out of one parcel, so that its refund finds all units by one booking time', () => {
  const lease = filled(2)
  lease.fill(bucket, 5, GRANT, BOOKED_US + 1, 1, 2)
  expect(lease.canSpend(6, 3), 'neither has as many').toBe(false)
  expect(lease.spend(3, 3)).toBe(BOOKED_US + 1)
  expect([lease.held(3), lease.canSpend(3, 3)], 'two in each').toEqual([4, false])
  expect(lease.unspend(3, BOOKED_US + 1, 3)).toBe(true)
  expect(lease.canSpend(5, 3)).toBe(true)
})

test('parcels too small for a request go back when it asks the store; ahead of need, only the first does', () => {
  const twoEach = () => {
    const lease = filled(2)
    lease.fill(bucket, 2, GRANT, BOOKED_US + 1, 1, 2)
    return lease
  }
  const given = (lease: Lease, when: 'asking' | 'ahead', cost: number) => {
    const gives: Give[] = []
    lease.settle(bucket, 3, when, gives, cost)
    return gives.reduce((sum, { units }) => sum + units, 0)
  }
  expect(given(twoEach(), 'asking', 3)).toBe(4)
  expect(given(twoEach(), 'ahead', 3)).toBe(2)
  expect(given(twoEach(), 'asking', 2), 'large enough').toBe(0)
  const lease = twoEach()
  given(lease, 'ahead', 3)
  expect([lease.held(3), lease.nextBatch(bucket, 3) > 0], 'there is room for a batch').toEqual([2, true])
})

test('asks for little at first, then for what the rate calls for, and for more of a hot bucket', () => {
  const lease = filled(0)
  expect(fresh().nextBatch(bucket, 0)).toBe(4)
  const slow = compileLimit({ id: 's', algorithm: 'token_bucket', units: 100, windowUs: 60_000_000, lease: {} })
  expect(fresh().nextBatch({ ...bucket, limit: slow }, 0), 'units that would be missed stay where they are').toBe(0)
  expect(lease.nextBatch(bucket, TTL_MS / 2)).toBe(2)
  lease.fill(bucket, 0, GRANT, BOOKED_US, 0, 1)
  expect(lease.nextBatch(bucket, TTL_MS / 8)).toBe(8)
  lease.fill(bucket, 0, GRANT, BOOKED_US, 0, 1)
  expect(lease.nextBatch(bucket, TTL_MS / 12)).toBe(12)
  lease.fill(bucket, 0, GRANT, BOOKED_US, 0, 1)
  expect(lease.nextBatch(bucket, 1), 'a fifth').toBe(20)
})

test('of what is left a quarter is asked for, and of a spent bucket what it has got back since', () => {
  const batchOf = (remaining: number) => {
    const lease = fresh()
    lease.fill(bucket, 0, { ...GRANT, remaining }, BOOKED_US, 0, 1)
    return lease.nextBatch(bucket, 2)
  }
  expect([60, 40, 4, 0].map(batchOf)).toEqual([15, 10, 5, 20])
  const window = compileLimit({ id: 'w', algorithm: 'fixed_window', units: 100, windowUs: 1_000_000, lease: {} })
  const lease = fresh()
  lease.fill({ ...bucket, limit: window }, 0, { ...GRANT, remaining: 1 }, BOOKED_US, 0, 1)
  expect(lease.nextBatch({ ...bucket, limit: window }, 100, 2), 'the window is a new one').toBe(5)
})

test('a bucket is low when there is not enough for another request of the same cost', () => {
  const lease = filled(9)
  lease.spend(3, 1)
  expect([lease.isLow(1, 6), lease.isLow(1, 7)]).toEqual([false, true])
})

test('of a bucket that has refused nobody, nothing is asked for before it is low', () => {
  expect(filled(9).isRefusalEnding(bucket, 2)).toBe(false)
})

test('more is asked for while two requests are to come before the units end, of a bucket that is used steadily', () => {
  const lease = filled(9)
  const lowAt = (nowMs: number) => {
    lease.spend(1, nowMs)
    return lease.isLow(nowMs)
  }
  expect([0.2, 0.4, 0.6].map((part) => lowAt(TTL_MS * part))).toEqual([false, false, true])
  expect(lease.held(TTL_MS * 0.6)).toBe(6)
})

test('a bucket that is used now and then is not asked for ahead of its end', () => {
  const lease = filled(9)
  lease.spend(1, TTL_MS * 0.5)
  expect(lease.isLow(TTL_MS * 0.9)).toBe(false)
})

test('while two parcels are at hand none is asked for, and when the first is spent it is', () => {
  const lease = filled(8)
  lease.fill(bucket, 8, GRANT, BOOKED_US + 1, 1, 2)
  lease.spend(7, 3)
  expect(lease.isLow(3)).toBe(false)
  lease.spend(8, 3)
  expect(lease.isLow(3)).toBe(true)
  settled(lease, 3, 'asking')
  expect(lease.nextBatch(bucket, 3)).toBeGreaterThan(0)
})

test('a batch is four times what went, at most, where others would miss it: two requests are no rate yet', () => {
  const window = { id: 'w', algorithm: 'fixed_window', units: 1000, windowUs: 60_000_000 } as const
  const slow = { limit: compileLimit({ ...window, lease: {} }), owner: 'alice', detail: '' }
  const batchAfter = (cost: number) => {
    const lease = fresh()
    lease.fill(slow, 0, { ...GRANT, remaining: 900 }, BOOKED_US, 0, 1)
    return lease.nextBatch(slow, 5, cost)
  }
  expect(batchAfter(1)).toBe(4)
  expect(batchAfter(12), 'enough for some more of the same').toBe(48)
  expect(batchAfter(100), 'a fifth of the limit').toBe(200)
})
