// A flood of new keys never frees a blocked key, never exceeds the memory cap, and is counted.

import { compileLimit, memoryStore } from 'sluice'
import { fakeClock } from 'sluice/testing'
import { expect, test } from 'vitest'

/** A hundred times the cap. `npm run bench -- memory-keys` floods with 10 M keys. */
const FLOOD = 2_000_000
const MAX_KEYS = 20_000

test('a blocked key stays blocked through a flood of 2 M new keys at the cap', () => {
  const clock = fakeClock()
  const store = memoryStore({ clock, maxKeys: MAX_KEYS })
  const limit = compileLimit({ id: 'r', fact: 'ip', algorithm: 'token_bucket', units: 2, windowUs: 3_600_000_000 })
  const take = (owner: string) =>
    store.takeSync?.({ charges: [{ limit, owner, detail: '', min: 1, max: 1, kind: 'enforce' }] })
  const blocked = Array.from({ length: 1000 }, (_, index) => `blocked-${index}`)
  for (const owner of [...blocked, ...blocked]) expect(take(owner)?.granted).toBe(true)

  for (let index = 0; index < FLOOD; index += 1) {
    if (index % 100_000 === 0) clock.advanceMs(1)
    take(`flood-${index}`)
  }

  expect(blocked.filter((owner) => take(owner)?.granted)).toEqual([])
  const { keys = 0, overflowed = 0 } = store.stats?.() ?? {}
  expect(keys).toBeLessThanOrEqual(MAX_KEYS + 4096)
  expect(overflowed).toBeGreaterThan(FLOOD - MAX_KEYS - 4096)
})

test('buckets that are full again make room for new ones', () => {
  const clock = fakeClock()
  const store = memoryStore({ clock, maxKeys: 10_000 })
  const limit = compileLimit({ id: 'r', fact: 'ip', algorithm: 'token_bucket', units: 10, windowUs: 1_000_000 })
  const charge = (owner: string) => ({
    charges: [{ limit, owner, detail: '', min: 1, max: 1, kind: 'enforce' as const }],
  })
  for (let round = 0; round < 50; round += 1) {
    const owners = Array.from({ length: 5000 }, (_, index) => `${round}-${index}`)
    expect(owners.filter((owner) => store.takeSync?.(charge(owner))?.granted !== true)).toEqual([])
    clock.advanceMs(2000)
  }
  expect(store.stats?.().overflowed).toBe(0)
  expect(store.stats?.().keys).toBeLessThanOrEqual(10_000)
})

test.each(['sliding_window_log', 'concurrency'] as const)('lists of %s are bounded too', (algorithm) => {
  const clock = fakeClock()
  const store = memoryStore({ clock })
  const limit = compileLimit({ id: 'r', fact: 'ip', algorithm, units: 1, windowUs: 3_600_000_000 })
  const take = (owner: string) =>
    store.takeSync?.({ charges: [{ limit, owner, detail: '', min: 1, max: 1, kind: 'enforce' }], op: { id: owner } })
  take('blocked')
  for (let index = 0; index < 150_000; index += 1) take(`flood-${index}`)
  expect(
    store.takeSync?.({
      charges: [{ limit, owner: 'blocked', detail: '', min: 1, max: 1, kind: 'enforce' }],
      op: { id: 'x' },
    })?.granted,
  ).toBe(false)
  expect(store.stats?.().keys).toBeLessThanOrEqual(100_000 + 64)
})
