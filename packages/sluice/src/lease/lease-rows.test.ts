import { expect, test } from 'vitest'
import { compileLimit } from '../algorithms/limit.ts'
import type { BucketName, Give, Grant } from '../store/store.ts'
import { LeaseRows } from './lease-rows.ts'

const TTL_MS = 2000
const limit = compileLimit({
  ...{ id: 'r', algorithm: 'token_bucket', units: 100, windowUs: 1_000_000 },
  lease: { ttlUs: TTL_MS * 1000 },
})
const bucket = { limit, owner: 'alice', detail: '' }
const GRANT: Grant = { units: 10, short: false, remaining: 90, resetAfterUs: 100_000, retryAfterUs: 0, delayUs: 0 }
const BOOKED_US = 5_000_000

type Rest<F> = F extends (row: number, ...rest: infer R) => unknown ? R : never

/** A table of one lease, so that tests need not pass its row. */
class Lease {
  readonly #rows = new LeaseRows()
  readonly #row: number

  constructor(of: BucketName) {
    this.#row = this.#rows.add(of)
  }

  held(...args: Rest<LeaseRows['held']>): ReturnType<LeaseRows['held']> {
    return this.#rows.held(this.#row, ...args)
  }

  canSpend(...args: Rest<LeaseRows['canSpend']>): ReturnType<LeaseRows['canSpend']> {
    return this.#rows.canSpend(this.#row, ...args)
  }

  spend(...args: Rest<LeaseRows['spend']>): ReturnType<LeaseRows['spend']> {
    return this.#rows.spend(this.#row, ...args)
  }

  unspend(...args: Rest<LeaseRows['unspend']>): ReturnType<LeaseRows['unspend']> {
    return this.#rows.unspend(this.#row, ...args)
  }

  isLow(...args: Rest<LeaseRows['isLow']>): ReturnType<LeaseRows['isLow']> {
    return this.#rows.isLow(this.#row, ...args)
  }

  isRefusalEnding(...args: Rest<LeaseRows['isRefusalEnding']>): ReturnType<LeaseRows['isRefusalEnding']> {
    return this.#rows.isRefusalEnding(this.#row, ...args)
  }

  nextBatch(...args: Rest<LeaseRows['nextBatch']>): ReturnType<LeaseRows['nextBatch']> {
    return this.#rows.nextBatch(this.#row, ...args)
  }

  fill(...args: Rest<LeaseRows['fill']>): ReturnType<LeaseRows['fill']> {
    return this.#rows.fill(this.#row, ...args)
  }

  retryAfterUs(...args: Rest<LeaseRows['retryAfterUs']>): ReturnType<LeaseRows['retryAfterUs']> {
    return this.#rows.retryAfterUs(this.#row, ...args)
  }

  refusedForUs(...args: Rest<LeaseRows['refusedForUs']>): ReturnType<LeaseRows['refusedForUs']> {
    return this.#rows.refusedForUs(this.#row, ...args)
  }

  settle(...args: Rest<LeaseRows['settle']>): ReturnType<LeaseRows['settle']> {
    return this.#rows.settle(this.#row, ...args)
  }
}

function fresh(of: BucketName = bucket): Lease {
  return new Lease(of)
}

function filled(units: number): Lease {
  const lease = fresh()
  lease.fill(units, GRANT, BOOKED_US, 0, 1)
  return lease
}

function settled(lease: Lease, nowMs: number, when: 'query' | 'end'): Give[] {
  const gives: Give[] = []
  lease.settle(nowMs, when, gives)
  return gives
}

test('units that were never spent from a lease do not go back to it: the store does not count them as held', () => {
  const lease = filled(9)
  expect(lease.unspend(1, BOOKED_US, 2)).toBe(false)
  expect(lease.held(2)).toBe(9)
  lease.spend(2, 2)
  expect(lease.unspend(3, BOOKED_US, 2)).toBe(false)
  expect(lease.unspend(2, BOOKED_US, 2)).toBe(true)
  expect(lease.held(2)).toBe(9)
})

test('the TTL of a lease starts at the query, not at the reply', () => {
  const lease = filled(9)
  expect(lease.held(TTL_MS - 2)).toBe(9)
  expect(lease.held(TTL_MS)).toBe(0)
  expect(fresh().fill(9, GRANT, BOOKED_US, 0, TTL_MS), 'too late').toBe(false)
})

test('after the last unit of an emptied bucket, the wait is that of the store, not the pause of the lease', () => {
  const lease = fresh()
  lease.fill(2, { ...GRANT, remaining: 0, retryAfterUs: 20_000_000 }, BOOKED_US, 0, 1)
  lease.spend(1, 2)
  expect(lease.retryAfterUs(1, 2), 'a unit is left').toBe(0)
  lease.spend(1, 2)
  expect([lease.retryAfterUs(1, 1000), lease.refusedForUs(1000)]).toEqual([19_000_000, 19_000_000])
})

test('a batch is settled once: unspent units, and units no longer on lease', () => {
  const lease = filled(9)
  lease.spend(4, 2)
  expect(settled(lease, 3, 'query'), 'not expired yet').toEqual([])
  expect(settled(lease, 3, 'end')).toMatchObject([{ units: 5, settled: 9, bookedUs: BOOKED_US }])
  expect(settled(lease, 3, 'end')).toEqual([])
})

test('holds two batches, spends the first one first, and has no room for a third', () => {
  const lease = filled(3)
  expect(lease.fill(5, GRANT, BOOKED_US + 1, 1, 2)).toBe(true)
  expect(lease.fill(7, GRANT, BOOKED_US + 2, 2, 3)).toBe(false)
  expect(lease.nextBatch(3), 'no room for a third batch').toBe(0)
  expect([lease.spend(2, 3), lease.spend(1, 3), lease.spend(2, 3)]).toEqual([BOOKED_US, BOOKED_US, BOOKED_US + 1])
  expect(settled(lease, 3, 'query')).toMatchObject([{ units: 0, settled: 3, bookedUs: BOOKED_US }])
  expect(lease.fill(7, GRANT, BOOKED_US + 2, 2, 3)).toBe(true)
  expect(lease.held(3)).toBe(3 + 7)
})

test('a payment comes out of one batch, so that its refund finds all units by one booking time', () => {
  const lease = filled(2)
  lease.fill(5, GRANT, BOOKED_US + 1, 1, 2)
  expect(lease.canSpend(6, 3), 'neither batch covers it').toBe(false)
  expect(lease.spend(3, 3)).toBe(BOOKED_US + 1)
  expect([lease.held(3), lease.canSpend(3, 3)], 'each batch has two').toEqual([4, false])
  expect(lease.unspend(3, BOOKED_US + 1, 3)).toBe(true)
  expect(lease.canSpend(5, 3)).toBe(true)
})

test('batches too small for a request go back when it queries the store; on a refill, only the first does', () => {
  const twoEach = () => {
    const lease = filled(2)
    lease.fill(2, GRANT, BOOKED_US + 1, 1, 2)
    return lease
  }
  const given = (lease: Lease, when: 'query' | 'refill', cost: number) => {
    const gives: Give[] = []
    lease.settle(3, when, gives, cost)
    return gives.reduce((sum, { units }) => sum + units, 0)
  }
  expect(given(twoEach(), 'query', 3)).toBe(4)
  expect(given(twoEach(), 'refill', 3)).toBe(2)
  expect(given(twoEach(), 'query', 2), 'large enough').toBe(0)
  const lease = twoEach()
  given(lease, 'refill', 3)
  expect([lease.held(3), lease.nextBatch(3) > 0], 'there is room for a batch').toEqual([2, true])
})

test('requests few units at first, then as many as the rate needs, and more of a hot bucket', () => {
  const lease = filled(0)
  expect(fresh().nextBatch(0)).toBe(4)
  const slow = compileLimit({ id: 's', algorithm: 'token_bucket', units: 100, windowUs: 60_000_000, lease: {} })
  expect(fresh({ ...bucket, limit: slow }).nextBatch(0), 'slow refill: no batch at first').toBe(0)
  expect(lease.nextBatch(TTL_MS / 2)).toBe(2)
  lease.fill(0, GRANT, BOOKED_US, 0, 1)
  expect(lease.nextBatch(TTL_MS / 8)).toBe(8)
  lease.fill(0, GRANT, BOOKED_US, 0, 1)
  expect(lease.nextBatch(TTL_MS / 12)).toBe(12)
  lease.fill(0, GRANT, BOOKED_US, 0, 1)
  expect(lease.nextBatch(1), 'a fifth').toBe(20)
})

test('requests a quarter of the remaining units, and of a spent bucket what has refilled since', () => {
  const batchOf = (remaining: number) => {
    const lease = fresh()
    lease.fill(0, { ...GRANT, remaining }, BOOKED_US, 0, 1)
    return lease.nextBatch(2)
  }
  expect([60, 40, 4, 0].map(batchOf)).toEqual([15, 10, 5, 20])
  const window = compileLimit({ id: 'w', algorithm: 'fixed_window', units: 100, windowUs: 1_000_000, lease: {} })
  const lease = fresh({ ...bucket, limit: window })
  lease.fill(0, { ...GRANT, remaining: 1 }, BOOKED_US, 0, 1)
  expect(lease.nextBatch(100, 2), 'a new window').toBe(5)
})

test('a lease is low when it does not cover another request of the same cost', () => {
  const lease = filled(9)
  lease.spend(3, 1)
  expect([lease.isLow(1, 6), lease.isLow(1, 7)]).toEqual([false, true])
})

test('a lease without a refusal is not refilled before it is low', () => {
  expect(filled(9).isRefusalEnding(2)).toBe(false)
})

test('a steadily used lease is refilled when it expires within two more requests', () => {
  const lease = filled(9)
  const lowAt = (nowMs: number) => {
    lease.spend(1, nowMs)
    return lease.isLow(nowMs)
  }
  expect([0.2, 0.4, 0.6].map((part) => lowAt(TTL_MS * part))).toEqual([false, false, true])
  expect(lease.held(TTL_MS * 0.6)).toBe(6)
})

test('a rarely used lease is not refilled before it expires', () => {
  const lease = filled(9)
  lease.spend(1, TTL_MS * 0.5)
  expect(lease.isLow(TTL_MS * 0.9)).toBe(false)
})

test('no refill while two batches are held; a refill once the first is spent', () => {
  const lease = filled(8)
  lease.fill(8, GRANT, BOOKED_US + 1, 1, 2)
  lease.spend(7, 3)
  expect(lease.isLow(3)).toBe(false)
  lease.spend(8, 3)
  expect(lease.isLow(3)).toBe(true)
  settled(lease, 3, 'query')
  expect(lease.nextBatch(3)).toBeGreaterThan(0)
})

test('where refills are slow, a batch is at most four times the units used: two requests are not a rate', () => {
  const window = { id: 'w', algorithm: 'fixed_window', units: 1000, windowUs: 60_000_000 } as const
  const slow = { limit: compileLimit({ ...window, lease: {} }), owner: 'alice', detail: '' }
  const batchAfter = (cost: number) => {
    const lease = fresh(slow)
    lease.fill(0, { ...GRANT, remaining: 900 }, BOOKED_US, 0, 1)
    return lease.nextBatch(5, cost)
  }
  expect(batchAfter(1)).toBe(4)
  expect(batchAfter(12), 'four times the cost').toBe(48)
  expect(batchAfter(100), 'a fifth of the limit').toBe(200)
})
