import { expect, onTestFinished, test } from 'vitest'
import { compileLimit, type Limit } from '../algorithms/limit.ts'
import { memoryStore } from '../store/memory.ts'
import { storeStats } from '../store/stats.ts'
import type { Charge } from '../store/store.ts'
import { fakeClock } from '../testing/fake-clock.ts'
import { manualTimers } from '../testing/manual-timers.ts'
import { remote } from '../testing/remote.ts'
import { leaseStore } from './lease-store.ts'

const WINDOW = { fact: 'user', algorithm: 'fixed_window', units: 1000, windowUs: 86_400e6 } as const

function chargeOf(limit: Limit): Charge {
  return { limit, owner: 'alice', detail: '', min: 1, max: 1, kind: 'enforce' }
}

test('units charged are units spent, held and expired', async () => {
  const clock = fakeClock()
  const timers = manualTimers()
  const node = leaseStore(remote(memoryStore({ clock })), { clock, timers })
  onTestFinished(() => node.close())
  const leased = chargeOf(compileLimit({ ...WINDOW, id: 'leased', lease: { ttlUs: 2_000_000 } }))
  const strict = chargeOf(compileLimit({ ...WINDOW, id: 'strict' }))
  await node.take({ charges: [strict] })
  expect(storeStats(node)).toMatchObject({ units_charged: 1, lease_misses: 0, store_queries: 1 })
  for (let checks = 0; checks < 100; checks += 1) {
    await node.take({ charges: [leased] })
    clock.advanceMs(1)
    timers.advance(1)
  }
  const busy = storeStats(node)
  expect(busy.lease_misses + busy.leased).toBe(100)
  expect(busy.lease_refills).toBeGreaterThan(0)
  expect(busy.lease_units_expired).toBe(0)
  const held = busy.units_charged - 101 // what 100 checks of the leased limit and one of the strict limit did not spend
  expect(held).toBeGreaterThan(0)
  clock.advanceMs(10_000)
  timers.advance(10_000)
  expect(storeStats(node)).toMatchObject({ units_charged: busy.units_charged, lease_units_expired: held })
})
